"""What a person may do: each action one audited transition, refused when the event changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from msgspec import UNSET

from ..errors import ConfigError, ListingFailed, WrongState
from ..filters import Filter
from ..ledger import Effect
from ..model import EventRow, History
from ..states import BY_NAME
from ..store.ops.erasure import Erased
from ..store.ops.imported_keys import Imported
from ..store.ops.job import Deed, Job, Resolving
from ..store.ops.pauses import Pause
from ..store.ops.pruning import Tombstone
from ..store.ops.reconciling import Counts
from ..store.ops.restores import Restore
from ..store.protocol import Store
from . import bulk, effects, restore
from .insight import Insight
from .preview import Preview, Verdict
from .recheck import Rechecked, recheck, take_in
from .reconcile import LEASE, Comparison, Report, Window, carry_out
from .repair import made

LONGEST = 2000
"""Characters of a reason, and of every name that a person gives."""


class Actions:
    """`actor` is who asks, for the audit. `insight`: that of the inbox, for what needs more than the store."""

    def __init__(self, store: Store, actor: str, insight: Insight | None = None) -> None:
        if not actor.strip():
            raise ConfigError("an action names who asked for it")
        _keepable(actor, "who asks")
        self._store = store
        self._insight = insight or Insight(store)
        self._actor = actor

    async def retry(self, event: EventRow, reason: str) -> History:
        """Send a failed, retrying or reviewed event round again now, with a fresh budget."""
        _why(reason)
        allowed = BY_NAME["retry"].sources
        if event.state not in allowed:
            names = ", ".join(sorted(state.value for state in allowed))
            raise WrongState(f"event {event.id} is {event.state}: only {names} can be retried")
        await self._store.retry(event.id, event.state, self._actor, reason, seen=event.claim)
        return await self._insight.event(str(event.id))

    async def replay(
        self, event: EventRow, reason: str, repeat: Sequence[str] = (), *, shown: Preview | None = None
    ) -> History:
        """Process an event again as a new run, on what is known of it now: what is done is skipped.

        `event` as it was when the decision was made: one that changed since then is refused. So is a replay that
        needs a decision first, or that would do something else than what was `shown`. `repeat` names effects that are
        to be done once more, each a decision of its own.
        """
        _why(reason)
        history = await self._insight.event(str(event.id))
        repeated: list[Effect] = []
        if (history.event.state, history.event.claim) == (event.state, event.claim):  # else the store says who did it
            repeated = self._insight.repeated(history, repeat)
            preview = self._insight.preview(history, repeated)
            if preview.verdict is Verdict.NEEDS_A_DECISION:
                raise WrongState(f"event {event.id}: {preview.words}")
            if shown is not None and not preview.says_the_same(shown):
                raise WrongState(f"event {event.id}: its effects changed meanwhile. A replay now: {preview.words}")
        await self._store.replay(event.id, event.state, self._actor, reason, seen=event.claim, repeat=repeated)
        return await self._insight.event(str(event.id))

    async def discard(self, event: EventRow, reason: str) -> History:
        """Close an event; what the outbox has of it goes on, unless it is cancelled there."""
        _why(reason)
        await self._store.discard(event.id, event.state, self._actor, reason, seen=event.claim)
        return await self._insight.event(str(event.id))

    async def resolve(
        self,
        effect: Effect,
        decision: Literal["happened", "did_not_happen", "cancel"],
        reason: str,
        result: object = UNSET,
    ) -> History:
        """Decide about an effect whose outcome is unknown, or that failed; its event or the outbox goes on. A call
        that happened needs its result where its handler reads one; None is a result."""
        _why(reason)
        kept = None
        if decision == "happened":
            kept = self._insight.kept_result(effect, result)
        elif result not in (UNSET, None):
            raise ConfigError("only what happened has a result")
        await self._store.ledger.resolve(effect, decision, kept, self._actor, reason)
        return await self._insight.event(str(effect.event_id))

    async def try_now(self, effect: Effect, reason: str) -> History:
        """Have the outbox go on with an effect now, with a fresh budget; its policy says whether it is repeated."""
        _why(reason)
        await effects.try_now(self._store, self._insight, effect, self._actor, reason)
        return await self._insight.event(str(effect.event_id))

    async def erase(
        self, event: EventRow, reason: str, *, key_too: bool = False, whole_request: bool = False, dry: bool = False
    ) -> Erased:
        """Forget what a finished event said: bytes, arguments, results, tracebacks. Its key and those of its
        effects stay; `key_too` shows digests for them. `dry`: only say what it would be."""
        _why(reason)
        where = (event.id, event.state, event.claim, self._actor, reason)
        return await self._store.erasure.erase(*where, key_too=key_too, whole_request=whole_request, dry=dry)

    async def erase_pruned(self, tombstone: Tombstone, reason: str, *, key_too: bool = False) -> int:
        """The same for what the ledger still has of a pruned event; returns how many effects."""
        _why(reason)
        return await self._store.erasure.erase_effects(tombstone.event_id, self._actor, reason, key_too=key_too)

    async def trip(self, downstream: str, reason: str) -> None:
        """Stop all calls to a downstream until it is reset."""
        _why(reason)
        if not downstream.strip():
            raise ConfigError("name the downstream")
        await self._store.circuits.trip(downstream, self._actor, reason)

    async def reset(self, downstream: str, reason: str) -> None:
        """Let a downstream be called again."""
        _why(reason)
        await self._store.circuits.reset(downstream, self._actor, reason)

    # ── many at once ──

    async def plan_job(
        self,
        name: Deed,
        where: Filter,
        reason: str,
        *,
        count: int | None = None,
        per_second: float = bulk.PER_SECOND,
        resolving: Resolving | None = None,
        fingerprint: str | None = None,
    ) -> Job:
        """Freeze the events that are meant, and leave it to a worker to act on each, at this pace, as the single
        action would. `count`: how many they must be; as many as there are if it is None. `resolving`: for `resolve`,
        which of their effects and how; `count` is how many effects then, and `fingerprint` that of the prospect:
        whoever names it decides no call that was made after the look.
        """
        _why(reason)
        return await bulk.plan(
            self._store,
            name,
            where,
            self._actor,
            reason,
            count=count,
            per_second=per_second,
            resolving=resolving,
            fingerprint=fingerprint,
        )

    async def cancel_job(self, job: Job, reason: str) -> Job:
        """Stop it after the step that is being taken; what was done stays, the rest is not touched."""
        _why(reason)
        return await self._store.jobs.cancel(job.id, self._actor, reason)

    # ── pauses ──

    async def pause(self, source: str, reason: str, pattern: str = "*") -> Pause:
        """Workers claim nothing of a source, or of some of its types, until it is resumed. What is being processed
        finishes, deliveries are accepted, and what is in the outbox is performed."""
        _why(reason)
        self._insight.check_source(source)
        _keepable(source, "the source")
        return await self._store.pauses.pause(source, _pattern(pattern), self._actor, reason)

    async def resume(self, source: str, reason: str, pattern: str = "*") -> None:
        """Take back a pause of exactly these types."""
        _why(reason)
        _keepable(source, "the source")
        await self._store.pauses.resume(source, _pattern(pattern), self._actor, reason)

    # ── after a restore ──

    async def after_restore(
        self, backup_at: datetime, reason: str, *, lease: float, told: Callable[[int], None] = lambda _: None
    ) -> tuple[Restore, int]:
        """The database was restored from a backup of this time: what was planned or started then is unknown now, and
        effects that are never repeated wait for a person until the gap is closed."""
        _why(reason)
        if backup_at > datetime.now(UTC):
            raise ConfigError("the backup was taken in the past: give --backup-at its time")
        return await restore.after_restore(self._store, backup_at, self._actor, reason, lease=lease, told=told)

    async def close_gap(self, reason: str) -> Restore:
        """What came between backup and restore is reconciled: effects are performed as declared again."""
        _why(reason)
        return await self._store.restores.close(self._actor, reason)

    # ── what did not plainly become an event ──

    async def admit(self, reference: str, reason: str) -> History:
        """An odd delivery becomes an event of its own, pending, as its source would identify it now."""
        _why(reason)
        request_id, place = await self._insight.delivery(reference)
        request = await self._insight.request(request_id)
        items = self._insight.receiving.identify(request)
        if place >= len(items):
            raise WrongState(f"as source {request.source!r} reads it now, the request has no event at place {place}")
        item = items[place]
        if item.invalid is not None:
            raise WrongState(f"delivery {request_id}:{place} cannot be handled: {item.invalid}")
        if item.skip is not None:
            raise WrongState(f"delivery {request_id}:{place} would run: {item.skip}")
        event_id = await self._store.cases.admit(request_id, place, item, self._actor, reason)
        return await self._insight.event(str(event_id))

    async def take_in(self, source: str, reason: str) -> list[Rechecked]:
        """Judge a source's refused requests anew, and record those that prove authentic now, each with an action.
        They leave the sample; the others stay as they are."""
        _why(reason)
        found = await recheck(self._store.cases, self._insight.receiving, source)
        return await take_in(self._store, found, self._actor, reason)

    async def reconcile(
        self,
        source: str,
        window: Window | None,
        reason: str,
        *,
        dry_run: bool = False,
        resend: bool = False,
        told: Callable[[Counts], None] = lambda _: None,
    ) -> Report:
        """Compare a provider's log with the inbox, and take in what is missing: one action when it begins and one
        when it ends; the deliveries are the evidence for each event. A dry run changes nothing and is not audited.

        `window` None: as far back as the source says.
        """
        plan = self._insight.receiving.plan(source)
        if plan.lister is None:
            raise ConfigError(
                f"source {source!r} has no lister: set [sources.{source}.reconcile], or give it one with "
                f"@source.lister{self._listable(source)}"
            )
        now = datetime.now(UTC)
        window = window or Window(now - timedelta(seconds=plan.look_back), now)
        comparison = self.comparison(source, window, reason, dry_run=dry_run, resend=resend, told=told)
        if dry_run:
            try:
                return await comparison.run(plan.lister)
            except ListingFailed as error:
                return comparison.report(str(error))
        _why(reason)
        values = (source, window.since, window.until, self._actor, reason)
        begun = await self._store.reconciling.begin(*values, lease=LEASE)
        assert begun is not None, "only a planned one can be another's"
        return await carry_out(self._store, begun, comparison, plan.lister)

    def _listable(self, source: str) -> str:
        """Where a lister would ask."""
        contract = self._insight.receiving.facts(source).contract
        where = "; ".join(filter(None, (contract.lister.list, contract.lister.enable)))
        return f" ({contract.title}: {where})" if where else ""

    def comparison(
        self,
        source: str,
        window: Window,
        reason: str,
        *,
        dry_run: bool = False,
        resend: bool = False,
        told: Callable[[Counts], None] = lambda _: None,
    ) -> Comparison:
        """One that is not begun yet; objects that changed unheard are repaired in this actor's name."""
        plan = self._insight.receiving.plan(source)

        async def repair(object_id: str) -> UUID:
            return (await self.repair(source, object_id, reason)).event.id

        return Comparison(
            self._store,
            self._insight.receiving,
            source,
            window,
            dry_run=dry_run,
            resend=resend,
            repair=repair if plan.repairs and plan.runs else None,
            told=told,
        )

    async def repair(self, source: str, object_id: str, reason: str, about: EventRow | None = None) -> History:
        """Have a worker run the source's repair handler for one object: an event of its own, linked to the one that
        it is `about`. Refused while an earlier repair of the object is still to come."""
        _why(reason)
        plan = self._insight.receiving.plan(source)
        if not plan.repairs:
            raise ConfigError(f"source {source!r} has no repair handler: declare one with @source.repair")
        if not plan.runs:
            raise WrongState(f"source {source!r} observes: it runs nothing yet")
        arrival = made(source, object_id, self._actor, reason, about)
        ident = await self._store.reconciling.repair(
            arrival, None if about is None else about.id, self._actor, reason
        )
        return await self._insight.event(str(ident))

    async def repair_event(self, event: EventRow, reason: str) -> History:
        """The same for the object that an event is about."""
        if event.object_id is None:
            raise WrongState(f"event {event.id} names no object: ask for the repair by the object's id")
        return await self.repair(event.source, event.object_id, reason, event)

    async def import_keys(self, source: str, identities: Sequence[bytes], reason: str) -> Imported:
        """Take identities whose events were processed elsewhere: a delivery of one is a duplicate from here on."""
        _why(reason)
        return await self._store.cases.import_keys(source, identities, self._actor, reason)


def _why(reason: str) -> None:
    if not reason.strip():
        raise ConfigError("an action says why")
    _keepable(reason, "the reason")


def _keepable(text: str, what: str) -> None:
    """It is kept with every event of a job, and read by people: short, and text that every database takes."""
    if len(text) > LONGEST:
        raise ConfigError(f"{what} is longer than {LONGEST:,} characters")
    if "\0" in text:
        raise ConfigError(f"{what} has a NUL in it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} has something in it that is no text") from error


def _pattern(pattern: str) -> str:
    if not pattern or "*" in pattern[:-1]:
        raise ConfigError(f"{pattern!r} is not an event type: a * may only stand at the end")
    _keepable(pattern, "the event type")
    return pattern
