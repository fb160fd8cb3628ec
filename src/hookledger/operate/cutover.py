"""Keys known from elsewhere: how they are written, and how they compare with what came here.

For the day on which a hand-written table of event ids hands over to the inbox: what it knows is imported, so that it
is not processed once more; before that, `mode = "observe"` shows whether both see the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from hashlib import blake2b

from msgspec import Struct

from ..errors import ConfigError
from ..filters import Filter
from ..identities import key_identity
from ..providers.fields import Constant, exact, written
from ..states import KeyOrigin
from ..store.protocol import Store
from .receiving import Receiving, SourceFacts

BATCH = 100_000
"""Keys that go to the store together, as one audited action. It takes them a thousand at a time."""
PAGE = 1000
MOST = 100_000
"""Events of this inbox that a comparison looks at."""
SAMPLE = 5
_BY_KEY = (KeyOrigin.SIGNED_ID, KeyOrigin.UNSIGNED_ID, KeyOrigin.COMPOSITE)


class Comparison(Struct, frozen=True):
    """Keys from elsewhere beside those of this inbox."""

    given: int
    known: int
    """Of these, taken here."""
    missing: int
    """Of these, not seen here."""
    missing_sample: tuple[str, ...]
    events: int
    """Events of the source here that were looked at, the newest."""
    extra: int
    """Of these, not among the given."""
    extra_sample: tuple[str, ...]


class KeyRule:
    """How a source makes its identities, for keys that come as plain values."""

    def __init__(self, facts: SourceFacts) -> None:
        contract = facts.contract
        if contract.hint:
            raise ConfigError(
                f"source {facts.name!r} has no keys: {contract.title} only says that something changed, so each "
                "arrival is an event of its own"
            )
        if facts.key_function:
            raise ConfigError(
                f"the key of source {facts.name!r} is what your function makes of each request, and an id alone is "
                "no request: keys cannot be imported"
            )
        if not facts.key_fields:
            raise ConfigError(
                f"source {facts.name!r} knows its events by their content, and an id is not that: keys cannot be "
                "imported"
            )
        self.source = facts.name
        self._fields = facts.key_fields
        self.wanted = tuple(written(field) for field in facts.key_fields if not isinstance(field, Constant))
        """The fields whose values must be given, in this order."""

    def parts(self, values: Sequence[object]) -> tuple[bytes, ...] | None:
        """The exact key; None where a value is missing or blank."""
        given = iter(values)
        parts = [exact(field.text if isinstance(field, Constant) else next(given, None)) for field in self._fields]
        return None if None in parts else tuple(part for part in parts if part is not None)

    def identity(self, parts: Sequence[bytes]) -> bytes:
        return key_identity(self.source, *parts)


def _short(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()


async def compare(
    store: Store, receiving: Receiving, rule: KeyRule, batches: AsyncIterator[Iterable[tuple[bytes, ...]]]
) -> Comparison:
    """Nothing is written. A key counts once, however often it is given."""
    seen: set[bytes] = set()
    taken: set[bytes] = set()
    given = known = 0
    missing_sample: list[str] = []
    async for batch in batches:
        new = {}
        for parts in batch:
            identity = rule.identity(parts)
            if identity not in taken:
                taken.add(identity)
                new[identity] = shown = receiving.shown(parts)
                seen.add(_short(shown))
        here = await store.cases.known_keys(sorted(new))
        given += len(new)
        known += len(here)
        missing_sample += [shown for identity, shown in new.items() if identity not in here]
        del missing_sample[SAMPLE:]
    events = extra = looked_at = 0
    extra_sample: list[str] = []
    before = None
    while looked_at < MOST and (page := await store.events(Filter(source=rule.source), before=before, limit=PAGE)):
        before, looked_at = page[-1].id, looked_at + len(page)
        keyed = [row for row in page if row.key_origin in _BY_KEY]
        events += len(keyed)
        others = [row.key for row in keyed if _short(row.key) not in seen]
        extra += len(others)
        extra_sample += others[: SAMPLE - len(extra_sample)]
    return Comparison(given, known, given - known, tuple(missing_sample), events, extra, tuple(extra_sample))
