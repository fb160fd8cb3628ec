"""Every reading that a front end needs, in one place."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from ..errors import BadResult, ConfigError, HookledgerError
from ..filters import EVERYTHING, Filter
from ..identities import id_bounds, operation_key
from ..ledger import Effect
from ..model import EventRow, Health, History, Kind, RequestRow, Waiting, WorkerInfo
from ..states import DeliveryOutcome, EffectKind, State
from ..store.ops.circuits import Circuit
from ..store.ops.consistency import Accounting, Oddity
from ..store.ops.job import Deed, ItemOutcome, Job, JobItem, Refusals, Resolving
from ..store.ops.pauses import Pause
from ..store.ops.pruning import Tombstone
from ..store.ops.quarantine import OddDelivery
from ..store.ops.reconciling import Reconciliation
from ..store.ops.rejections import RefusalCount, RefusalRow
from ..store.ops.restores import Restore
from ..store.protocol import Store
from ..store.search import FailureGroup, Lag, Page
from ..store.trouble import Trouble
from . import bulk
from .audit import KeyReport, audit_keys, webhooks
from .cutover import Comparison, KeyRule, compare
from .difference import Conflict, Difference, differ
from .handlers import live_patterns, mark_unhandled
from .preview import Declared, EffectFacts, NothingDeclared, Preview, foresee
from .receiving import Receiving
from .recheck import Rechecked, recheck
from .timeline import Entry, timeline


class NotFound(HookledgerError):
    """There is nothing of that id or key."""


class Ambiguous(HookledgerError):
    """Several begin like this."""


class Summary(Struct, frozen=True):
    """How many of each there are."""

    events: dict[str, int]
    deliveries: dict[str, int]


class Insight:
    """What a person may see. `receiving`: the intake's own judgements, for what needs them; `declared`: what the
    application says of its handlers and effects.
    """

    def __init__(self, store: Store, receiving: Receiving | None = None, declared: Declared | None = None) -> None:
        self._store = store
        self._receiving = receiving
        self._declared = declared or NothingDeclared()

    @property
    def receiving(self) -> Receiving:
        if self._receiving is None:
            raise ConfigError("this needs the sources: ask the inbox for it")
        return self._receiving

    @property
    def advice(self) -> Sequence[str]:
        """What may surprise about the application's own connections."""
        return self._declared.advice

    async def events(
        self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50
    ) -> list[EventRow]:
        """The newest first, however long it takes to find them."""
        return await self._store.search.events(where, before=before, limit=limit)

    async def page(self, where: Filter = EVERYTHING, *, before: UUID | None = None, limit: int = 50) -> Page:
        """The newest first, as far as one stretch of the search goes; the page says where to go on."""
        return await self._store.search.page(where, before=before, limit=limit)

    async def count(self, where: Filter, *, seconds: float = 10.0) -> int:
        """How many there are, exactly; Unavailable when that takes longer."""
        return await self._store.search.count(where, seconds=seconds)

    async def failures(self, source: str | None = None) -> list[FailureGroup]:
        """What is in trouble, by cause, the most frequent first."""
        return await self._store.search.failures(source)

    async def lag(self, lease: float) -> list[Lag]:
        """Every kind with events that are not settled yet, that with the oldest first; `lease`: how long a worker
        counts as living."""
        live = await live_patterns(self._store, lease)
        here = self._handled_here if self._declared.loaded else None
        return [mark_unhandled(one, live, here) for one in await self._store.search.lag()]

    def _handled_here(self, kind: Kind) -> bool:
        return self._declared.handler(kind.source, kind.type) is not None

    async def event(self, reference: str) -> History:
        """One event in full, by id, the beginning of an id, or key."""
        found = await self._store.find(reference)
        if len(found) > 1:
            raise Ambiguous(f"{reference!r} fits several events: {', '.join(map(str, found))}")
        history = await self._store.history(found[0]) if found else None
        if history is None:
            words = "; ".join(tombstone.words for tombstone in await self.pruned(reference))
            raise NotFound(words or f"no event has the id or key {reference!r}")
        return history

    async def pruned(self, reference: str) -> list[Tombstone]:
        """What is left of pruned events with this id, or beginning of one, or key."""
        found = await self._store.find(reference)
        bounds = (found[0], found[0]) if found else id_bounds(reference)
        return await self._store.pruning.pruned(*bounds) if bounds else []

    async def effect(self, reference: str, effect: str) -> Effect:
        """One call or outbox entry of an event: by its name, by NAME:KEY, or by its idempotency key."""
        history = await self.event(reference)
        known = [entry.effect for entry in history.effects if entry.effect.kind is not EffectKind.ONCE]
        return _the_one(known, effect)

    def timeline(self, history: History) -> tuple[Entry, ...]:
        """All that happened to an event, the first first, with every key."""
        return timeline(history)

    def preview(self, history: History, repeat: Sequence[Effect] = ()) -> Preview:
        """What a replay would do, and whether it is safe; with effects that are to be done once more."""
        return foresee(history, self._declared, {effect.identity for effect in repeat})

    def repeated(self, history: History, effects: Iterable[str]) -> list[Effect]:
        """The effects that are named as `effect` takes them, those under `event.once` too."""
        known = [entry.effect for entry in history.effects if not entry.effect.superseded]
        return [_the_one(known, effect) for effect in effects]

    def needs_result(self, effect: Effect) -> bool:
        """Whether an effect that happened after all needs a result: its handler may read it. No handler reads what
        the outbox did, and a recorded result stays. What this application does not declare may need one."""
        facts = self._declared.effect(effect.name)
        return effect.kind is EffectKind.CALL and effect.result is None and (facts is None or facts.needs_result)

    def result_form(self, effect: Effect) -> str | None:
        """An example of an effect's result, as JSON; None where this application does not declare it."""
        facts = self._declared.effect(effect.name)
        return None if facts is None else facts.form

    def kept_result(self, effect: Effect, result: object) -> bytes | None:
        """The result of an effect that happened, as the ledger keeps it; UNSET: none is given. ConfigError where it
        is missing, BadResult where the handler could not read it."""
        facts = self._declared.effect(effect.name)
        if result is not UNSET:
            try:
                return msgspec.json.encode(result) if facts is None else facts.keep_result(result)
            except BadResult as error:
                assert facts is not None
                form = shlex.quote(facts.form)
                raise BadResult(f"{error}; give it as JSON of this form: --result {form}") from error
        if not self.needs_result(effect):
            return None
        if facts is None:
            raise ConfigError(
                f"effect {effect.name} may need the result of the call that happened: its declaration is not loaded "
                "here; name the application by --app, or say --result null if its handler reads no result"
            )
        says = f"effect {effect.name} needs the result of the call that happened: its handler reads it"
        raise ConfigError(f"{says}; add it as JSON of this form: --result {shlex.quote(facts.form)}")

    def declared_effect(self, name: str) -> EffectFacts | None:
        """What the application says of an effect; None where it is not loaded, or has none of this name."""
        return self._declared.effect(name)

    @property
    def trouble(self) -> Trouble:
        """What an operator must see, and effects by state."""
        return self._store.trouble

    async def circuits(self) -> list[Circuit]:
        """Every downstream that ever failed or was tripped."""
        return await self._store.circuits.all()

    # ── bulk work and pauses ──

    async def prospect(self, name: Deed, where: Filter, resolving: Resolving | None = None) -> bulk.Prospect:
        """What a job would be about, if it were made now. `resolving`: as `Actions.plan_job` takes it."""
        return await bulk.look(self._store, self._declared, name, where, resolving)

    async def jobs(self, *, before: UUID | None = None, limit: int = 50) -> list[Job]:
        """The newest first."""
        return await self._store.jobs.jobs(before=before, limit=limit)

    async def job(self, reference: str) -> Job:
        """One job by id, or the beginning of one."""
        found = await self._store.jobs.find(reference)
        if len(found) > 1:
            raise Ambiguous(f"{reference!r} fits several jobs: {', '.join(map(str, found))}")
        job = await self._store.jobs.job(found[0]) if found else None
        if job is None:
            raise NotFound(f"no job has the id {reference!r}: `hookledger jobs` lists them")
        return job

    async def job_refusals(self, job: Job) -> list[Refusals]:
        """Its refused events, by cause."""
        return await self._store.jobs.refusals(job.id)

    async def job_states(self, job: Job) -> dict[str, int]:
        """How many of the events that it acted on are in each state by now; `pruned`: gone."""
        return await self._store.jobs.present(job.id)

    async def job_items(
        self, job: Job, *, outcome: ItemOutcome | None = None, after: UUID | None = None, limit: int = 50
    ) -> list[JobItem]:
        """Its events in the order of their ids."""
        return await self._store.jobs.items(job.id, outcome=outcome, after=after, limit=limit)

    async def pauses(self) -> list[Pause]:
        """What workers leave alone for now."""
        return await self._store.pauses.pauses()

    def check_source(self, name: str) -> None:
        """ConfigError for a source that is not configured here, where any is."""
        known = self._receiving.sources() if self._receiving else []
        if known and name not in known:
            raise ConfigError(f"there is no source {name!r}; there are: {', '.join(sorted(known))}")

    async def summary(self) -> Summary:
        events, deliveries = await self._store.counts(), await self._store.delivery_counts()
        return Summary({state.value: events.get(state, 0) for state in State}, deliveries)

    async def health(self) -> Health:
        return await self._store.health()

    # ── whether everything is accounted for ──

    async def accounting(self, limit: float) -> Accounting:
        """The books, within so many seconds."""
        return await self._store.books.accounting(limit=limit)

    async def unperformable(self) -> Oddity | None:
        """Outbox entries that wait for a worker that knows their arguments."""
        return await self._store.books.unperformable()

    async def gap(self) -> Restore | None:
        """The restore from a backup that is not closed, if there is one."""
        return await self._store.restores.gap()

    async def stuck(self, longer_than: float) -> list[Oddity]:
        """Leases that ran out more than so many seconds ago, and nobody took back."""
        return await self._store.books.stuck(longer_than)

    async def settings(self) -> dict[str, str]:
        """The database's own, as far as the promise rests on them."""
        return await self._store.books.settings()

    async def integrity(self, limit: float) -> list[str]:
        """What the database finds wrong with its file, within so many seconds."""
        return await self._store.books.integrity(limit=limit)

    async def workers(self) -> list[WorkerInfo]:
        """Every worker seen that has not stopped: those that live, and those that died."""
        return [worker for worker in await self._store.workers() if not worker.left]

    async def waiting(self) -> list[Waiting]:
        """Which kinds have events in the queue, the longest due first."""
        return await self._store.waiting()

    # ── what did not plainly become an event ──

    async def refusals(
        self, *, source: str | None = None, reason: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[RefusalRow]:
        """The sample of refused requests, the newest first."""
        return await self._store.cases.refusals(source=source, reason=reason, before=before, limit=limit)

    async def refusal_counts(self) -> list[RefusalCount]:
        """How many were refused, by source and reason; the sample holds only some of them."""
        return await self._store.cases.refusal_counts()

    async def refusal(self, reference: str) -> RefusalRow:
        """One of the sample, by its id or the beginning of that."""
        bounds = id_bounds(reference)
        found = []
        if bounds is not None:
            after = UUID(int=min(bounds[1].int + 1, 2**128 - 1))
            found = await self._store.cases.refusals(before=after, limit=10)
            found = [row for row in found if bounds[0] <= row.id]
        if len(found) > 1:
            raise Ambiguous(f"{reference!r} fits several: {', '.join(str(row.id) for row in found)}")
        if not found:
            raise NotFound(f"no rejected request with the id {reference!r} is in the sample")
        return found[0]

    async def odd_deliveries(
        self,
        *,
        source: str | None = None,
        outcome: DeliveryOutcome | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[OddDelivery]:
        """Conflicts and known bodies under other ids, the newest first."""
        return await self._store.cases.odd_deliveries(source=source, outcome=outcome, before=before, limit=limit)

    async def delivery(self, reference: str) -> tuple[UUID, int]:
        """Request and place of one odd delivery, by REQUEST or REQUEST:ITEM; a beginning of the request's id does."""
        found = await self._store.cases.find_delivery(reference)
        if len(found) > 1:
            raise Ambiguous(f"{reference!r} fits several: {', '.join(f'{i}:{n}' for i, n in found)}")
        if not found:
            raise NotFound(f"no quarantined delivery has the id {reference!r}: `hookledger quarantine` lists them")
        return found[0]

    async def difference(self, odd: OddDelivery) -> Difference:
        """What differs between a conflict and the event that it met."""
        history = await self._store.history(odd.event_id)
        met = (None, 0) if history is None else (history.request, history.event.item)
        return await self._difference(met, odd.request_id, odd.item)

    async def conflicts(self, history: History, limit: int = 3) -> list[Conflict]:
        """The newest deliveries of an event with other content than it has, and what differs."""
        found = [row for row in history.deliveries if row.outcome is DeliveryOutcome.CONFLICT][: -limit - 1 : -1]
        met, conflicts = (history.request, history.event.item), []
        for row in found:
            difference = await self._difference(met, row.request_id, row.item)
            conflicts.append(Conflict(f"{row.request_id}:{row.item}", row.received_at, difference))
        return conflicts

    async def _difference(self, met: tuple[RequestRow | None, int], request_id: UUID, item: int) -> Difference:
        request = await self._store.cases.request(request_id)
        # In a thread: two bodies of a megabyte take a second.
        return await asyncio.to_thread(differ, self.receiving, met, (request, item))

    async def request(self, request_id: UUID) -> RequestRow:
        """A request that was kept, with its bytes."""
        found = await self._store.cases.request(request_id)
        if found is None:
            raise NotFound(f"the bytes of request {request_id} are not kept")
        return found

    async def recheck(self, source: str) -> list[Rechecked]:
        """What a source refused, judged anew; nothing is taken in."""
        return await recheck(self._store.cases, self.receiving, source)

    # ── the provider's side ──

    async def reconciliations(self) -> list[Reconciliation]:
        """The last comparison of each source with its provider's log."""
        return await self._store.reconciling.last()

    # ── keys ──

    async def webhooks(self, source: str, *, sample: int) -> tuple[str, ...]:
        """The provider's webhooks that its last events came from, by their ids."""
        return await webhooks(self._store, self.receiving.facts(source), sample=sample)

    async def keys(self, source: str, *, last: int, sample: int) -> KeyReport:
        """What the last events of a source say about its keys, and which rule would fit them."""
        return await audit_keys(self._store, self.receiving, source, last=last, sample=sample)

    def key_rule(self, source: str) -> KeyRule:
        """How keys from elsewhere become identities of a source; ConfigError where they cannot."""
        return KeyRule(self.receiving.facts(source))

    def query(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        """The rows of a reading query on the inbox's own database, in batches."""
        return self._store.cases.query_keys(sql)

    async def compare_keys(self, rule: KeyRule, batches: AsyncIterator[Iterable[tuple[bytes, ...]]]) -> Comparison:
        """Keys from elsewhere beside those of this inbox."""
        return await compare(self._store, self.receiving, rule, batches)


def _the_one(known: Sequence[Effect], effect: str) -> Effect:
    found = [entry for entry in known if effect in (entry.name, _label(entry), _key(entry))]
    if len(found) > 1:
        raise Ambiguous(f"the event has several: {', '.join(f'{_label(e)} ({_key(e)})' for e in found)}")
    if not found:
        names = ", ".join(map(_label, known)) or "none"
        raise NotFound(f"the event has no effect {effect!r}; it has: {names}")
    return found[0]


def _label(effect: Effect) -> str:
    return f"{effect.name}:{effect.key}"


def _key(effect: Effect) -> str:
    return operation_key(effect.identity, effect.generation)
