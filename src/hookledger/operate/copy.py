"""Copies the whole inbox to another database, or abandons that. Killed at any point, it can be run again.

    source                       target
    1 moving                                      from here on nothing can be written to the source
                                 2 migrate        where there is no schema yet
                                 3 incomplete     nothing but the copy can be written to the target
                                 4 the rows       in batches, each with its position
    5 the same figures on both sides              else it stops here, and can be abandoned
    6 moved                                       the one commit that decides; after it only this target can be used
                                 7 complete       from here on the target can be written
    abandoned instead of 6:
    6 abandoning                                  the one commit that decides; after it no target can be used
                                 7 abandoned      for good
    8 as before

Between two commits neither side can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from ..errors import SchemaMismatch, StoreError, Unavailable, WrongState
from ..store import SCHEMA_RANGE, is_newer, out_of_range
from ..store.ops.audit import Audit
from ..store.ops.consistency import ConsistencyReport
from ..store.ops.copy import LONG, Copy, CopyState, Position, last_row, not_empty
from ..store.protocol import Store
from ..store.tables import Table
from ..store.url import UNNAMED

ROWS = 2000
"""Rows in one batch."""
SIZE = 8 * 2**20
"""Bytes of bodies, arguments and results in one batch."""

Tell = Callable[[int], None]


class Side(NamedTuple):
    """A database of a copy, and its name without password."""

    store: Store
    name: str


class Copied(Struct, frozen=True):
    """The result of a copy."""

    id: UUID
    state: CopyState | None
    """Its state at the target; None if it was abandoned before the target had anything of it."""
    source: str
    target: str
    rows: dict[str, int]
    """Rows per table."""


async def look(source: Side, target: Side) -> dict[str, int]:
    """Count the rows of each table. Raises, before anything changes, if the copy could not begin."""
    await _begun(source, target)
    return await source.store.copies.totals()


async def copy(source: Side, target: Side, by: Audit, tell: Tell = lambda _: None) -> Copied:
    """Copy everything, or resume an interrupted copy; audited on both sides. `tell` gets the number of rows in the
    target."""
    begun = await _begun(source, target) or await source.store.copies.move(target.name, by)
    try:
        return await _resume(begun, source, target, by, tell)
    except Unavailable as error:
        raise Unavailable(f"the copy is not complete: {error}; run the same command again to resume it") from error


async def _resume(begun: Copy, source: Side, target: Side, by: Audit, tell: Tell) -> Copied:
    if (await target.store.health()).problem == out_of_range(0):
        await target.store.migrate()
    await _require_version(target)
    received = await target.store.copies.receive(begun, source.name)
    if received.state is not CopyState.COMPLETE:
        if received.state is not CopyState.INCOMPLETE:
            raise WrongState(f"the target cannot be used: {received.message}")
        received = await _copy_rows(source.store, target.store, received, tell)
        await target.store.copies.analyze()
        await _require_same(source.store, target.store)
        assert received.target_id is not None
        await source.store.copies.moved(begun, received.target_id)
        await target.store.copies.complete(received, by)
    return Copied(begun.id, CopyState.COMPLETE, source.name, target.name, await target.store.copies.totals())


async def abandon(source: Side, target: Side | str, by: Audit) -> Copied:
    """End an incomplete copy; audited in the source, which can be written again. The target can never be used: the
    source decides that, so its name is enough where it cannot be reached.
    """
    name = target if isinstance(target, str) else target.name
    begun = await source.store.copies.abandon(name)
    given_up = False
    # Without a schema nothing is there yet, and what comes there will not be completed.
    if isinstance(target, Side) and (await target.store.health()).problem != out_of_range(0):
        given_up = await target.store.copies.give_up(begun)
    await source.store.copies.reopen(begun, by)
    return Copied(begun.id, CopyState.ABANDONED if given_up else None, source.name, name, {})


async def _begun(source: Side, target: Side) -> Copy | None:
    """Return the copy to resume; None if a new one can begin. Raises if neither is possible."""
    await _require_version(source)
    known = await source.store.copies.state()
    if known is None or known.state is CopyState.COMPLETE:
        await _require_empty(source, target)
        return None
    if known.state not in (CopyState.MOVING, CopyState.MOVED) or known.other != target.name:
        raise WrongState(known.message)
    return known


async def _copy_rows(source: Store, target: Store, received: Copy, tell: Tell) -> Copy:
    theirs = {table.name: table for table in await target.copies.tables()}
    last = last_row(received)
    total = sum((await target.copies.totals()).values()) if last else 0
    for table in await source.copies.tables():
        into = _same_columns(table, theirs.get(table.name))
        if last is not None and last.table != table.name:
            continue  # the table is complete
        after, last = last.key if last is not None else None, None
        while rows := await source.copies.read(table, after, ROWS, SIZE):
            after = table.key_of(rows[-1])
            received = await target.copies.write(received, into, rows, Position(table.name, after))
            total += len(rows)
            tell(total)
    return received


def _same_columns(ours: Table, theirs: Table | None) -> Table:
    """Return the target's table, with columns in the source's order."""
    if theirs is None or theirs.columns.keys() != ours.columns.keys() or theirs.key != ours.key:
        raise SchemaMismatch(f"table {ours.name} differs between source and target: migrate both with one release")
    return theirs._replace(columns={name: theirs.columns[name] for name in ours.columns})


async def _require_version(side: Side) -> None:
    health = await side.store.health()
    if is_newer(health.schema):  # even where this release works: it would leave out the tables that it does not know
        raise SchemaMismatch(f"{side.name}: {out_of_range(health.schema)}: copy with that one")
    if health.schema < SCHEMA_RANGE[0]:
        is_old = health.problem == out_of_range(health.schema)
        raise (SchemaMismatch if is_old else Unavailable)(f"{side.name}: {health.problem}")


async def _require_empty(source: Side, target: Side) -> None:
    if source.name == target.name and UNNAMED not in source.name:
        raise WrongState("source and target are the same database: give another with --to")
    if (await target.store.health()).problem == out_of_range(0):
        return
    await _require_version(target)
    known = await target.store.copies.state()
    if known is not None:
        raise WrongState(f"the target cannot be used: {known.message}")
    for table, rows in (await target.store.copies.totals()).items():
        if rows:
            raise not_empty(table)


async def _require_same(source: Store, target: Store) -> None:
    """Raise unless both sides have equal row counts and consistency reports."""
    ours, theirs = await source.copies.totals(), await target.copies.totals()
    if ours != theirs:
        raise _differ(ours, theirs)
    ours, theirs = [_figures(await one.consistency.report(limit=LONG)) for one in (source, target)]
    if ours != theirs:
        raise _differ(ours, theirs)


def _figures(books: ConsistencyReport) -> dict[str, int]:
    entries = ("deliveries", "events", "identities", "attempts", "effects", "calls", "pruned_by_state")
    figures = {f"{name} {entry}": n for name in entries for entry, n in getattr(books, name).items()}
    return {**figures, "from quarantine": books.from_quarantine, **{one.kind: one.count for one in books.imbalances}}


def _differ(ours: Mapping[str, int], theirs: Mapping[str, int]) -> StoreError:
    names = sorted({name for name, _ in ours.items() ^ theirs.items()})
    said = "; ".join(f"{name}: {ours.get(name, 0):,} and {theirs.get(name, 0):,}" for name in names[:5])
    return StoreError(f"source and target differ ({said}): abandon this copy, and copy to another database")
