"""Retention on PostgreSQL: small transactions that skip whatever anybody holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...identities import new_id
from ...retention import Arrived, Candidate, Tombstone
from ..queries import load
from ..rows import Rows
from .connection import Connections, transaction
from .dialect import Dialect

QUERIES = load(__package__, "pruning.sql")
START = UUID(int=0)


class PostgresPruning:
    def __init__(self, sql: Dialect, connections: Callable[[], Connections]) -> None:
        self._sql = sql
        self._connections = connections
        self._rows = Rows()

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        async with self._connections().use() as connection:
            return await connection.fetch(self._sql(name), *args)

    @property
    def stops_others(self) -> bool:
        return False

    # ── turns and walks ──

    async def turn(self, holder: str, lease: float) -> str | None:
        if await self._fetch("turn", holder, lease):
            return None
        found = await self._fetch("whose_turn")
        return str(found[0]["holder"]) if found else "somebody else"

    async def end_turn(self, holder: str) -> None:
        await self._fetch("end_turn", holder)

    async def position(self, walk: str, again: float) -> UUID:
        found: UUID = (await self._fetch("position", walk, again, START))[0]["position"]
        return found

    async def remember(self, walk: str, position: UUID) -> None:
        await self._fetch("remember", walk, position)

    async def events(self, after: UUID, before: UUID, limit: int) -> list[Candidate]:
        return [self._rows.candidate(row) for row in await self._fetch("window", after, before, limit)]

    async def deliveries(self, after: UUID, before: UUID, limit: int) -> list[Arrived]:
        return [self._rows.arrived(row) for row in await self._fetch("deliveries_window", after, before, limit)]

    # ── taking away ──

    async def prune(self, chosen: Sequence[Candidate], quiet: float, *, dry: bool = False) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                rows = await connection.fetch(self._sql("lock_events"), *_claims(chosen), quiet)
                over = await self._over(connection, [row["id"] for row in rows])
                going = [row for row in rows if row["id"] in over]
                if going and not dry:
                    effects = [ident for idents in over.values() for ident in idents]
                    await self._take(connection, going, effects, quiet)
                return len(going)

        return await self._connections().insist(work) if chosen else 0

    async def _over(self, connection: Any, idents: list[UUID]) -> dict[UUID, list[bytes]]:
        """The events whose effects are all over and held by nobody else, with those effects."""
        over: dict[UUID, list[bytes]] = {ident: [] for ident in idents}
        for row in await connection.fetch(self._sql("lock_effects"), idents):
            if row["over"]:
                over[row["event_id"]].append(row["identity"])
        for event_id, n in await connection.fetch(self._sql("count_effects"), idents):
            if len(over[event_id]) != n:
                del over[event_id]
        return over

    async def _take(self, connection: Any, going: list[Any], effects: list[bytes], quiet: float) -> None:
        idents = [row["id"] for row in going]
        named = ([row["request_id"] for row in going], [row["item"] for row in going])
        await connection.fetch(self._sql("lock_odd"), idents)
        for name in ("bury", "drop_attempts", "drop_events"):
            await connection.execute(self._sql(name), idents)
        left = await connection.fetch(self._sql("drop_again"), idents, quiet)
        left += await connection.fetch(self._sql("drop_first"), *named)
        await connection.execute(self._sql("drop_requests"), sorted({row["request_id"] for row in left}))
        if effects:
            await connection.execute(self._sql("trim_effects"), effects)
            await connection.execute(self._sql("trim_calls"), effects)

    async def empty(self, chosen: Sequence[Candidate], older: float, *, dry: bool = False) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                rows = await connection.fetch(self._sql("lock_requests_events"), [c.id for c in chosen], older)
                over = Counter(row["request_id"] for row in rows if row["over"])
                items = await connection.fetch(self._sql("count_items"), list(over))
                good = {request for request, made, odd in items if made == over[request] and not odd}
                idents = [row["id"] for row in rows if row["request_id"] in good]
                if good and not dry:
                    await connection.execute(self._sql("empty_requests"), sorted(good))
                    await connection.execute(self._sql("empty_events"), idents)
                return len(idents)

        return await self._connections().insist(work) if chosen else 0

    async def forget(self, chosen: Sequence[Candidate], *, dry: bool = False) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                if dry:
                    return len(await connection.fetch(self._sql("remembered"), *_claims(chosen)))
                changed = {row[0] for row in await connection.fetch(self._sql("forget_attempts"), *_claims(chosen))}
                effects = await connection.fetch(self._sql("effects_over"), [c.id for c in chosen])
                await connection.execute(self._sql("trim_calls"), [row["identity"] for row in effects])
                return len(changed)

        return await self._connections().insist(work) if chosen else 0

    async def drop(self, duplicates: Sequence[Arrived], odd: Sequence[Arrived], *, dry: bool = False) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                await connection.fetch(self._sql("lock_deliveries"), *_places(odd))
                orphans = [tuple(row) for row in await connection.fetch(self._sql("orphans"), *_places(odd))]
                if dry:
                    return len(duplicates) + len(orphans)
                dropped = await connection.fetch(self._sql("drop_duplicates"), *_places(duplicates))
                requests = [request for request, _ in orphans]
                await connection.execute(self._sql("drop_odd"), requests, [item for _, item in orphans])
                left = {row["request_id"] for row in dropped} | set(requests)
                await connection.execute(self._sql("drop_requests"), sorted(left))
                return len(dropped) + len(orphans)

        return await self._connections().insist(work) if duplicates or odd else 0

    # ── evidence ──

    async def pruned(self, first: UUID, last: UUID) -> list[Tombstone]:
        return [self._rows.tombstone(row) for row in await self._fetch("pruned", first, last)]

    async def note(self, actor: str, reason: str, what: str) -> None:
        await self._fetch("note", new_id(), actor, reason, what)


def _claims(chosen: Sequence[Candidate]) -> tuple[list[UUID], list[int]]:
    return [c.id for c in chosen], [c.claim for c in chosen]


def _places(arrived: Sequence[Arrived]) -> tuple[list[UUID], list[int]]:
    return [a.request_id for a in arrived], [a.item for a in arrived]
