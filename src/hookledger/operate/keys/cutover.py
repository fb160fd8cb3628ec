"""Keys of another system: how they are written, and how they compare with those recorded here.

When Hookledger replaces a hand-written table of event ids, importing them keeps its events from being processed
again; before that, `mode = "observe"` shows whether both systems see the same events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from hashlib import blake2b

from msgspec import Struct

from ...errors import ConfigError
from ...ids import key_identity, show
from ...providers.fields import Constant, exact, written
from ...receive.endpoint import Endpoint
from ...states import KeyOrigin
from ...store.ops.audit import Audit
from ...store.ops.filters import Filter
from ...store.ops.imported_keys import Imported
from .. import search
from ..context import Context

BATCH = 100_000
"""Keys per audited action; the store takes a thousand at a time."""
PAGE = 1000
MOST = 100_000
"""Maximum number of events that a comparison reads here."""
SAMPLE = 5
_BY_KEY = (KeyOrigin.SIGNED_ID, KeyOrigin.UNSIGNED_ID, KeyOrigin.COMPOSITE)


class Comparison(Struct, frozen=True):
    """Keys of another system compared with those recorded here."""

    given: int
    known: int
    """Of these, recorded here."""
    missing: int
    """Of these, not recorded here."""
    missing_sample: tuple[str, ...]
    events: int
    """Newest events of the source that were read."""
    extra: int
    """Of these, not among the given."""
    extra_sample: tuple[str, ...]


class KeyRule:
    """How a source makes its keys, for keys given as plain values."""

    def __init__(self, endpoint: Endpoint) -> None:
        contract = endpoint.contract
        if contract.hint:
            raise ConfigError(
                f"source {endpoint.name!r} has no keys: {contract.title} only says that something changed, so each "
                "arrival is a new event"
            )
        if endpoint.key_function is not None:
            raise ConfigError(
                f"the key of source {endpoint.name!r} is made by your function from a whole request, "
                "not from an id: keys cannot be imported"
            )
        if not endpoint.key_fields:
            raise ConfigError(f"source {endpoint.name!r} uses the content as key, not an id: keys cannot be imported")
        self.source: str = endpoint.name
        self._fields = endpoint.key_fields
        self.wanted: tuple[str, ...] = tuple(
            written(field) for field in endpoint.key_fields if not isinstance(field, Constant)
        )
        """The fields whose values must be given, in order."""

    def parts(self, values: Sequence[object]) -> tuple[bytes, ...] | None:
        """Return the exact key; None if a value is missing or blank."""
        given = iter(values)
        parts = [exact(field.text if isinstance(field, Constant) else next(given, None)) for field in self._fields]
        return None if None in parts else tuple(part for part in parts if part is not None)

    def identity(self, parts: Sequence[bytes]) -> bytes:
        return key_identity(self.source, *parts)


def _short(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()


async def compare(context: Context, rule: KeyRule, batches: AsyncIterator[Iterable[tuple[bytes, ...]]]) -> Comparison:
    """Compare keys of another system with those recorded here; nothing is written. Repeated keys count once."""
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
                new[identity] = shown = show(b":".join(parts))
                seen.add(_short(shown))
        here = await context.store.imported_keys.known_keys(sorted(new))
        given += len(new)
        known += len(here)
        missing_sample += [shown for identity, shown in new.items() if identity not in here]
        del missing_sample[SAMPLE:]
    events = extra = looked_at = 0
    extra_sample: list[str] = []
    async for row in search.each(context, Filter(source=rule.source), page=PAGE):
        looked_at += 1
        if row.key_origin in _BY_KEY:
            events += 1
            if _short(row.key) not in seen:
                extra += 1
                extra_sample += [row.key] if len(extra_sample) < SAMPLE else []
        if looked_at >= MOST:
            break
    return Comparison(given, known, given - known, tuple(missing_sample), events, extra, tuple(extra_sample))


def query_keys(context: Context, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
    """Yield the rows of a read-only query on the inbox's database, in batches."""
    return context.store.imported_keys.query_keys(sql)


async def import_keys(context: Context, by: Audit, source: str, identities: Sequence[bytes]) -> Imported:
    """Import keys of events processed elsewhere: a delivery with one is a duplicate from then on."""
    return await context.store.imported_keys.import_keys(source, identities, *by)
