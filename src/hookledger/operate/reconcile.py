"""Compares a provider's log with the inbox, and takes in what is missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar
from uuid import UUID

from msgspec import Struct

from ..errors import BadData, ConfigError, ContentGone, HookledgerError, ListingFailed, WrongState
from ..filters import Filter
from ..model import Arrival, EventRow, Recorded
from ..providers.listing.base import Changed, Content, Entry, Listed, Lister
from ..states import KeyOrigin, State
from ..store.ops.reconciling import NEW, WITHHELD, Begun, Counts, Known, taken_up
from ..store.protocol import Store
from .receiving import Receiving

log = logging.getLogger(__name__)

T = TypeVar("T")
LEASE = 30.0
"""Seconds after which another may take it up."""
PAGE = 100
MARGIN = timedelta(minutes=10)
"""At the edges of the window, what is here and not there proves nothing: clocks differ, and logs lag."""
MOST = 1000
"""Differences that are told one by one; all are counted."""

OURS = (KeyOrigin.ADMITTED, KeyOrigin.ARRIVAL, KeyOrigin.DIGEST)
"""Keys that no provider's log can have."""

Kind = Literal["missing", "failed", "unknown", "refused"]
Repair = Callable[[str], Awaitable[UUID]]


class Window(Struct, frozen=True):
    """What the provider is asked about."""

    since: datetime
    until: datetime

    def __post_init__(self) -> None:
        if self.since.tzinfo is None or self.until.tzinfo is None:
            raise ConfigError("a window has a time zone")
        if self.since >= self.until:
            raise ConfigError(f"a window ends after it begins, not from {self.since} to {self.until}")


class Difference(Struct, frozen=True, kw_only=True):
    """One event, or changed object, about which the two sides do not agree."""

    kind: Kind
    key: str
    """The event key; or the object's id, or the provider's, where there is none."""
    type: str = ""
    at: datetime | None = None
    event_id: UUID | None = None
    state: State | None = None
    words: str = ""
    """What was done about it, or why nothing was."""


class Report(Struct, frozen=True, kw_only=True):
    """What a comparison found."""

    source: str
    since: datetime
    until: datetime
    dry_run: bool
    counts: Counts
    differences: tuple[Difference, ...]
    """At most 1,000."""
    problem: str | None = None
    """Why it ended early."""


class Comparison:
    """One run. `repair`: asks for the repair of an object, where the source can; `resend`: have the provider deliver
    what is missing again, instead of taking it in; `told` hears of every page."""

    def __init__(
        self,
        store: Store,
        receiving: Receiving,
        source: str,
        window: Window,
        *,
        dry_run: bool = False,
        resend: bool = False,
        repair: Repair | None = None,
        told: Callable[[Counts], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._receiving = receiving
        self._source = source
        self._window = window
        self._dry_run = dry_run
        self._resend = resend
        self._repair = repair
        self._told = told
        self._begun: Begun | None = None
        self._log = True
        self._keys: set[str] = set()
        self._changed: dict[str, Changed] = {}
        self._tally: dict[str, int] = {}
        self._differences: list[Difference] = []

    @property
    def counts(self) -> Counts:
        return Counts(**self._tally)

    def report(self, problem: str | None = None) -> Report:
        return Report(
            source=self._source,
            since=self._window.since,
            until=self._window.until,
            dry_run=self._dry_run,
            counts=self.counts,
            differences=tuple(self._differences),
            problem=problem,
        )

    async def run(self, lister: Lister, begun: Begun | None = None) -> Report:
        """All of the window. ListingFailed when the log ends early: what was taken in until then is, and a second run
        finds it known. `begun`: what is recorded is counted there; needed unless it is a dry run."""
        self._begun = begun
        self._log = getattr(lister, "lists_events", True)
        async for page in _pages(lister(self._window.since, self._window.until)):
            self._count("listed", len(page))
            await self._compare([entry for entry in page if isinstance(entry, Listed)])
            for entry in page:
                if isinstance(entry, Changed):
                    self._keep(entry)
            self._told(self.counts)
        contract = self._receiving.facts(self._source).contract
        if contract.lister.enable and not self.counts.listed:  # an empty list proves nothing
            raise ListingFailed(f"{contract.title} listed nothing: {contract.lister.enable}")
        await self._look_here()
        self._told(self.counts)
        return self.report()

    # ── what is there ──

    async def _compare(self, page: list[Listed]) -> None:
        """Cheaply where the key is in the headers: the rest is asked for only if it is missing."""
        told = [self._receiving.listed_key(self._source, entry.headers) for entry in page]
        known = await self._store.reconciling.known([key[0] for key in told if key is not None])
        arrivals: list[tuple[Listed, Arrival]] = []
        for entry, key in zip(page, told, strict=True):
            if key is not None:
                self._keys.add(key[1])
            if key is not None and key[0] in known:
                self._is_known(entry, key[1], "", known[key[0]])
            elif self._resend and entry.resend is not None:
                await self._ask_again(entry)
            elif (arrival := await self._arrival(entry)) is not None:
                self._keys.update(item.key for item in arrival.items)
                arrivals.append((entry, arrival))
        await self._take(arrivals)

    async def _arrival(self, entry: Listed) -> Arrival | None:
        content = Content(entry.body or b"", entry.headers)
        if entry.body is None:
            if entry.load is None:
                self._refuse(entry, "the provider has no content of it")
                return None
            try:
                content = await _own(entry.load)
            except ContentGone as error:
                self._refuse(entry, str(error))
                return None
        try:
            verdict = self._receiving.listed(self._source, content, datetime.now(UTC).timestamp())
        except Exception as error:  # of the user's key function: one event is no reason to leave out the others
            log.exception("a listed event cannot be identified")
            self._refuse(entry, f"its key cannot be made: {type(error).__name__}: {error}"[:300])
            return None
        if isinstance(verdict, Arrival):
            return verdict
        if verdict == "type_refused":
            self._count("ignored")
        else:
            self._refuse(entry, self._receiving.reason(verdict))
        return None

    async def _take(self, arrivals: list[tuple[Listed, Arrival]]) -> None:
        """What is known is left alone; the rest goes in, as deliveries do, and the unique constraint has the last
        word: one that came at this very moment makes ours a duplicate."""
        identities = [item.identity for _, arrival in arrivals for item in arrival.items]
        known = await self._store.reconciling.known(identities)
        missing: list[tuple[Listed, Arrival]] = []
        for entry, arrival in arrivals:
            first = arrival.items[0]
            if all(item.identity in known for item in arrival.items):
                self._is_known(entry, first.key, first.type, known[first.identity])
            elif self._dry_run:
                self._differ("missing", key=first.key, type=first.type, at=entry.at, words="would be taken in")
            else:
                missing.append((entry, arrival))
        await self._record(missing)

    async def _record(self, missing: list[tuple[Listed, Arrival]]) -> None:
        """In one commit; each alone when one of them is refused."""
        if not missing:
            return
        assert self._begun is not None, "a dry run records nothing"
        try:
            arrivals = [arrival for _, arrival in missing]
            results = await self._store.reconciling.record(self._begun, arrivals, self.counts)
        except BadData as error:
            if len(missing) == 1:
                self._refuse(missing[0][0], f"the store refuses it: {error}")
                return
            for one in missing:
                await self._record([one])
            return
        for (entry, arrival), became in zip(missing, results, strict=True):
            self._recorded(entry, arrival, became)

    def _recorded(self, entry: Listed, arrival: Arrival, became: list[Recorded]) -> None:
        first = arrival.items[0]
        new = [recorded for recorded in became if recorded.outcome in NEW]
        withheld = [recorded for recorded in became if recorded.outcome in WITHHELD]
        if withheld:
            self._refuse(entry, f"quarantined as {withheld[0].outcome}: `hookledger quarantine`")
        elif not new:
            self._count("matched")
        if not new:
            return
        self._count("taken_in")
        self._differ(
            "missing", key=first.key, type=first.type, at=entry.at, event_id=new[0].event_id, words="taken in"
        )

    async def _ask_again(self, entry: Listed) -> None:
        assert entry.resend is not None
        words = "would be asked for again"
        if not self._dry_run:
            try:
                await _own(entry.resend)
            except ContentGone as error:
                self._refuse(entry, str(error))
                return
            self._count("resent")
            words = "asked for again"
        self._differ("missing", key=entry.id, at=entry.at, words=words)

    def _is_known(self, entry: Listed, key: str, kind: str, known: Known) -> None:
        if known.state in (State.FAILED, State.NEEDS_REVIEW):
            words = f"`hookledger show {known.event_id}`"
            self._differ(
                "failed", key=key, type=kind, at=entry.at, event_id=known.event_id, state=known.state, words=words
            )
        else:
            self._count("matched")

    def _refuse(self, entry: Listed, words: str) -> None:
        self._differ("refused", key=entry.id, at=entry.at, words=words)

    # ── what is here ──

    def _keep(self, changed: Changed) -> None:
        last = self._changed.get(changed.object_id)
        if last is None or last.at < changed.at:
            self._changed[changed.object_id] = changed

    async def _look_here(self) -> None:
        """Events that the log should have and has not; objects that changed and no event told so."""
        latest: dict[str, datetime] = {}
        async for row in self._events():
            at = row.occurred_at or row.received_at
            if row.object_id in self._changed:
                latest[row.object_id] = max(at, row.received_at, latest.get(row.object_id, at))
            if self._should_be_there(row, at):
                self._differ("unknown", key=row.key, type=row.type, at=at, event_id=row.id, state=row.state)
        for changed in self._changed.values():
            told = latest.get(changed.object_id)
            if told is not None and told >= changed.at - MARGIN:
                self._count("matched")
            else:
                await self._unheard(changed)

    async def _events(self) -> AsyncIterator[EventRow]:
        before: UUID | None = None
        where = Filter(source=self._source, since=self._window.since)
        while page := await self._store.events(where, before=before, limit=1000):
            before = page[-1].id
            for row in page:
                yield row

    def _should_be_there(self, row: EventRow, at: datetime) -> bool:
        if not self._log or self._changed or row.key_origin in OURS or row.key in self._keys:
            return False
        if not self._receiving.takes(self._source, row.type):  # ignored there, so not looked for here
            return False
        return self._window.since + MARGIN <= at < self._window.until - MARGIN

    async def _unheard(self, changed: Changed) -> None:
        words, ident = "no event about it came since it changed", None
        if self._repair is not None and not self._dry_run:
            try:
                ident = await self._repair(changed.object_id)
                words += "; its repair is asked for"
                self._count("repairs")
            except WrongState as error:
                words += f"; {error}"
        self._differ("missing", key=changed.object_id, type=changed.type, at=changed.at, event_id=ident, words=words)

    # ── the books of this run ──

    def _count(self, name: str, number: int = 1) -> None:
        self._tally[name] = self._tally.get(name, 0) + number

    def _differ(
        self,
        kind: Kind,
        *,
        key: str,
        type: str = "",  # noqa: A002 - the model's own word
        at: datetime | None = None,
        event_id: UUID | None = None,
        state: State | None = None,
        words: str = "",
    ) -> None:
        self._count(kind)
        if len(self._differences) < MOST:
            self._differences.append(
                Difference(kind=kind, key=key, type=type, at=at, event_id=event_id, state=state, words=words)
            )


async def _pages(entries: AsyncIterator[Entry]) -> AsyncIterator[list[Entry]]:
    """Some at a time. What the user's own lister raises ends the run with its words, as a failed answer does."""
    page: list[Entry] = []
    try:
        async for entry in entries:
            page.append(_entry(entry))
            if len(page) >= PAGE:
                yield page
                page = []
    except (HookledgerError, asyncio.CancelledError, GeneratorExit):
        raise
    except Exception as error:
        log.exception("the lister failed")
        raise ListingFailed(f"the lister raised {type(error).__name__}: {error}"[:500]) from error
    if page:
        yield page


def _entry(given: object) -> Entry:
    if not isinstance(given, Listed | Changed):
        raise ListingFailed(f"a lister yields Listed or Changed, not {type(given).__name__}")
    return given


async def _own(ask: Callable[[], Awaitable[T]]) -> T:
    """The same for what a lister gave along."""
    try:
        return await ask()
    except HookledgerError:
        raise
    except Exception as error:
        log.exception("the lister failed")
        raise ListingFailed(f"the lister raised {type(error).__name__}: {error}"[:500]) from error


def _storable(words: str) -> str:
    """Whatever a provider or a lister said, as every database takes it."""
    return words.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


async def carry_out(
    store: Store, begun: Begun, comparison: Comparison, lister: Lister, *, again_in: float | None = None
) -> Report:
    """A comparison that was begun, to its end on record. A log that cannot be read is a report with a problem;
    `again_in`: after so many seconds another may try."""
    problem: str | None = None
    await store.know_sources([begun.source])  # no delivery may ever have come
    try:
        report = await _renewed(store, begun, comparison.run(lister, begun))
    except (ListingFailed, ConfigError) as error:
        counts = comparison.counts
        problem = f"{_storable(str(error))} (after {counts.listed:,} listed, {counts.taken_in:,} taken in)"[:1000]
        report = comparison.report(problem)
    if not await store.reconciling.end(begun, report.counts, problem, again_in=again_in if problem else None):
        raise taken_up(begun)
    return report


async def _renewed(store: Store, begun: Begun, work: Coroutine[Any, Any, Report]) -> Report:
    """The lease is renewed while it runs; one that another took up is broken off."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([task], timeout=LEASE / 3))[0]:
            if not await store.reconciling.renew(begun, LEASE):
                raise taken_up(begun)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
