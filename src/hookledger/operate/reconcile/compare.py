"""Compares a provider's log with the inbox, and imports missing events."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar
from uuid import UUID

from msgspec import Struct

from ...errors import BadData, ContentGone, HookledgerError, ListingFailed, WrongState
from ...model import Arrival, Recorded
from ...providers.listing.base import Changed, Content, Entry, Listed, Lister
from ...receive.reasons import in_words
from ...states import KeyOrigin, State
from ...store.history import EventRow
from ...store.ops.filters import Filter
from ...store.ops.quarantine import QUARANTINED
from ...store.ops.reconciling import NEW, Begun, Counts, Known
from .. import search
from ..context import Context
from .plan import Window

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
PAGE = 100
MARGIN = timedelta(minutes=10)
"""Time at each edge of the window in which an event missing there proves nothing: clocks differ, and logs lag."""
MOST = 1000
"""Maximum number of differences listed; all are counted."""

OURS = (KeyOrigin.QUARANTINE, KeyOrigin.ARRIVAL, KeyOrigin.DIGEST)
"""Origins of keys that no provider's log can have."""

Kind = Literal["missing", "failed", "unknown", "not_importable"]
Repair = Callable[[str], Awaitable[UUID]]


class Difference(Struct, frozen=True):
    """One event, or changed object, about which the provider's log and the inbox differ."""

    kind: Kind
    key: str
    """The event key; without one, the object's or the provider's id."""
    type: str = ""
    at: datetime | None = None
    event_id: UUID | None = None
    state: State | None = None
    words: str = ""
    """What was done about it, or why nothing was."""


class Report(Struct, frozen=True, kw_only=True):
    """The result of a comparison."""

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
    """One comparison. `repair`: requests the repair of an object, if the source can; `resend`: ask the provider to
    redeliver missing events instead of importing them; `on_page` gets the counts after every page."""

    def __init__(
        self,
        context: Context,
        source: str,
        window: Window,
        *,
        dry_run: bool = False,
        resend: bool = False,
        repair: Repair | None = None,
        on_page: Callable[[Counts], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._store = context.store
        self._examiner = context.sources
        self._endpoint = context.sources.endpoint(source)
        self._source = source
        self._window = window
        self._dry_run = dry_run
        self._resend = resend
        self._repair = repair
        self._on_page = on_page
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
        """Compare the whole window. ListingFailed if the log ends early: what was imported stays, and a second run
        finds it recorded. `begun`: the reconciliation on record; required unless it is a dry run."""
        self._begun = begun
        self._log = getattr(lister, "lists_events", True)
        async for page in _pages(lister(self._window.since, self._window.until)):
            self._count("listed", len(page))
            await self._compare([entry for entry in page if isinstance(entry, Listed)])
            for entry in page:
                if isinstance(entry, Changed):
                    self._keep(entry)
            self._on_page(self.counts)
        contract = self._endpoint.contract
        if contract.lister.enable and not self.counts.listed:  # an empty log may mean that the log is not enabled
            raise ListingFailed(f"{contract.title} listed nothing: {contract.lister.enable}")
        await self._look_here()
        self._on_page(self.counts)
        return self.report()

    # ── what is there ──

    async def _compare(self, page: list[Listed]) -> None:
        """Compare a page. If the headers have the key, the body is fetched only for a missing event."""
        keys = [self._examiner.listed_key(self._source, entry.headers) for entry in page]
        known = await self._store.reconciling.known([key[0] for key in keys if key is not None])
        arrivals: list[tuple[Listed, Arrival]] = []
        for entry, key in zip(page, keys, strict=True):
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
                self._not_importable(entry, "the provider has no content of it")
                return None
            try:
                content = await _own(entry.load)
            except ContentGone as error:
                self._not_importable(entry, str(error))
                return None
        try:
            verdict = self._examiner.listed(self._source, content, datetime.now(UTC).timestamp())
        except Exception as error:  # from the user's key function: the others are still compared
            log.exception("a listed event cannot be identified")
            self._not_importable(entry, f"its key cannot be made: {type(error).__name__}: {error}"[:300])
            return None
        if isinstance(verdict, Arrival):
            return verdict
        if verdict == "type_rejected":
            self._count("ignored")
        else:
            self._not_importable(entry, in_words(verdict))
        return None

    async def _take(self, arrivals: list[tuple[Listed, Arrival]]) -> None:
        """Import what is not recorded, as deliveries are. The unique constraint decides: a delivery that arrives at
        the same time makes ours a duplicate."""
        identities = [item.identity for _, arrival in arrivals for item in arrival.items]
        known = await self._store.reconciling.known(identities)
        missing: list[tuple[Listed, Arrival]] = []
        for entry, arrival in arrivals:
            first = arrival.items[0]
            if all(item.identity in known for item in arrival.items):
                self._is_known(entry, first.key, first.type, known[first.identity])
            elif self._dry_run:
                self._add(Difference("missing", first.key, first.type, entry.at, words="would be imported"))
            else:
                missing.append((entry, arrival))
        await self._record(missing)

    async def _record(self, missing: list[tuple[Listed, Arrival]]) -> None:
        """Record in one commit; each alone if the store does not accept one of them."""
        if not missing:
            return
        assert self._begun is not None, "a dry run must not record"
        try:
            arrivals = [arrival for _, arrival in missing]
            results = await self._store.reconciling.record(self._begun, arrivals, self.counts)
        except BadData as error:
            if len(missing) == 1:
                self._not_importable(missing[0][0], f"the store does not accept it: {error}")
                return
            for one in missing:
                await self._record([one])
            return
        for (entry, arrival), became in zip(missing, results, strict=True):
            self._recorded(entry, arrival, became)

    def _recorded(self, entry: Listed, arrival: Arrival, became: list[Recorded]) -> None:
        first = arrival.items[0]
        new = [recorded for recorded in became if recorded.outcome in NEW]
        withheld = [recorded for recorded in became if recorded.outcome in QUARANTINED]
        if withheld:
            self._not_importable(entry, f"quarantined as {withheld[0].outcome}: `hookledger quarantine`")
        elif not new:
            self._count("matched")
        if not new:
            return
        self._count("imported")
        self._add(Difference("missing", first.key, first.type, entry.at, new[0].event_id, words="imported"))

    async def _ask_again(self, entry: Listed) -> None:
        assert entry.resend is not None
        words = "redelivery would be requested"
        if not self._dry_run:
            try:
                await _own(entry.resend)
            except ContentGone as error:
                self._not_importable(entry, str(error))
                return
            self._count("resent")
            words = "redelivery requested"
        self._add(Difference("missing", entry.id, at=entry.at, words=words))

    def _is_known(self, entry: Listed, key: str, kind: str, known: Known) -> None:
        if known.state in (State.FAILED, State.NEEDS_REVIEW):
            words = f"`hookledger show {known.event_id}`"
            self._add(Difference("failed", key, kind, entry.at, known.event_id, known.state, words))
        else:
            self._count("matched")

    def _not_importable(self, entry: Listed, words: str) -> None:
        self._add(Difference("not_importable", entry.id, at=entry.at, words=words))

    # ── what is here ──

    def _keep(self, changed: Changed) -> None:
        last = self._changed.get(changed.object_id)
        if last is None or last.at < changed.at:
            self._changed[changed.object_id] = changed

    async def _look_here(self) -> None:
        """Find events that the log should list and does not, and changed objects without an event."""
        latest: dict[str, datetime] = {}
        async for row in search.each(self._context, Filter(source=self._source, since=self._window.since)):
            at = row.occurred_at or row.received_at
            if row.object_id in self._changed:
                latest[row.object_id] = max(at, row.received_at, latest.get(row.object_id, at))
            if self._should_be_there(row, at):
                self._add(Difference("unknown", row.key, row.type, at, row.id, row.state))
        for changed in self._changed.values():
            last = latest.get(changed.object_id)
            if last is not None and last >= changed.at - MARGIN:
                self._count("matched")
            else:
                await self._unheard(changed)

    def _should_be_there(self, row: EventRow, at: datetime) -> bool:
        if not self._log or self._changed or row.key_origin in OURS or row.key in self._keys:
            return False
        if not self._endpoint.allows(row.type):  # such entries of the log are ignored
            return False
        return self._window.since + MARGIN <= at < self._window.until - MARGIN

    async def _unheard(self, changed: Changed) -> None:
        words, ident = "no event arrived since it changed", None
        if self._repair is not None and not self._dry_run:
            try:
                ident = await self._repair(changed.object_id)
                words += "; repair requested"
                self._count("repairs")
            except WrongState as error:
                words += f"; {error}"
        self._add(Difference("missing", changed.object_id, changed.type, changed.at, ident, words=words))

    # ── counting ──

    def _count(self, name: str, number: int = 1) -> None:
        self._tally[name] = self._tally.get(name, 0) + number

    def _add(self, difference: Difference) -> None:
        self._count(difference.kind)
        if len(self._differences) < MOST:
            self._differences.append(difference)


async def _pages(entries: AsyncIterator[Entry]) -> AsyncIterator[list[Entry]]:
    """Yield entries in pages. An error of the user's lister ends the run like a failed request."""
    page: list[Entry] = []
    with _lister_errors():
        async for entry in entries:
            page.append(_entry(entry))
            if len(page) >= PAGE:
                yield page
                page = []
    if page:
        yield page


def _entry(given: object) -> Entry:
    if not isinstance(given, Listed | Changed):
        raise ListingFailed(f"a lister yields Listed or Changed, not {type(given).__name__}")
    return given


async def _own(ask: Callable[[], Awaitable[T]]) -> T:
    """Call what a lister passed along, with its errors handled in the same way."""
    with _lister_errors():
        return await ask()


@contextmanager
def _lister_errors() -> Iterator[None]:
    """Raise ListingFailed for an error in the user's code."""
    try:
        yield
    except HookledgerError:
        raise
    except Exception as error:
        log.exception("the lister failed")
        raise ListingFailed(f"the lister raised {type(error).__name__}: {error}"[:500]) from error
