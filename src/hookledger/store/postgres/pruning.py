"""Retention on PostgreSQL: small transactions that skip whatever anybody holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ...retention import Arrived, Candidate, Pruned, Round, Tombstone, Turn
from ..pruning import INTERRUPTED, entry_of, taken_over
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

    async def turn(self, round_: Round) -> Turn:
        async def work(connection: Any) -> Turn:
            async with transaction(connection, self._sql("begin")):
                former = await connection.fetchrow(self._sql("whose_turn"))
                if not await connection.fetch(self._sql("turn"), round_.name, round_.lease):
                    other = await connection.fetchrow(self._sql("whose_turn"))
                    return Turn(False, *(other or ()))
                if former is None or former["holder"] == round_.name:
                    return Turn(True)
                closed = await connection.fetchrow(self._sql("close"), entry_of(former["holder"]), INTERRUPTED)
                return Turn(True, interrupted=": ".join(closed) if closed else None)

        return await self._connections().insist(work)

    async def end_turn(self, round_: Round, how: str) -> None:
        async def work(connection: Any) -> None:
            async with transaction(connection, self._sql("begin")):
                await connection.execute(self._sql("end_turn"), round_.name)
                await connection.execute(self._sql("close"), round_.id, how)

        await self._connections().insist(work)

    async def _note(self, connection: Any, round_: Round, step: Pruned) -> None:
        """In the transaction that takes something away."""
        if not await connection.fetch(self._sql("hold"), round_.name, round_.lease):
            raise taken_over(round_)
        values = (round_.id, round_.actor, round_.reason, round_.words_with(step))
        await connection.execute(self._sql("note"), *values)

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

    async def prune(self, chosen: Sequence[Candidate], quiet: float, round_: Round | None) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                rows = await connection.fetch(self._sql("lock_events"), *_claims(chosen), quiet)
                over = await self._over(connection, [row["id"] for row in rows])
                going = [row for row in rows if row["id"] in over]
                if going and round_ is not None:
                    effects = [ident for idents in over.values() for ident in idents]
                    await self._take(connection, going, effects, quiet)
                    await self._note(connection, round_, Pruned(events=len(going)))
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

    async def empty(self, chosen: Sequence[Candidate], older: float, round_: Round | None) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                rows = await connection.fetch(self._sql("lock_requests_events"), [c.id for c in chosen], older)
                over = Counter(row["request_id"] for row in rows if row["over"])
                items = await connection.fetch(self._sql("count_items"), list(over))
                good = {request for request, made, odd in items if made == over[request] and not odd}
                idents = [row["id"] for row in rows if row["request_id"] in good]
                if good and round_ is not None:
                    await connection.execute(self._sql("empty_requests"), sorted(good))
                    await connection.execute(self._sql("empty_events"), idents)
                    await self._note(connection, round_, Pruned(payloads=len(idents)))
                return len(idents)

        return await self._connections().insist(work) if chosen else 0

    async def forget(self, chosen: Sequence[Candidate], round_: Round | None) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                if round_ is None:
                    return len(await connection.fetch(self._sql("remembered"), *_claims(chosen)))
                changed = {row[0] for row in await connection.fetch(self._sql("forget_attempts"), *_claims(chosen))}
                events = dict(await connection.fetch(self._sql("effects_over"), *_claims(chosen)))
                trimmed = await connection.fetch(self._sql("trim_calls"), list(events))
                changed.update(events[row[0]] for row in trimmed)
                if changed:
                    await self._note(connection, round_, Pruned(history=len(changed)))
                return len(changed)

        return await self._connections().insist(work) if chosen else 0

    async def drop(self, duplicates: Sequence[Arrived], odd: Sequence[Arrived], round_: Round | None) -> int:
        async def work(connection: Any) -> int:
            async with transaction(connection, self._sql("begin")):
                await connection.fetch(self._sql("lock_deliveries"), *_places(odd))
                orphans = [tuple(row) for row in await connection.fetch(self._sql("orphans"), *_places(odd))]
                if round_ is None:
                    return len(duplicates) + len(orphans)
                dropped = await connection.fetch(self._sql("drop_duplicates"), *_places(duplicates))
                requests = [request for request, _ in orphans]
                await connection.execute(self._sql("drop_odd"), requests, [item for _, item in orphans])
                left = {row["request_id"] for row in dropped} | set(requests)
                await connection.execute(self._sql("drop_requests"), sorted(left))
                gone = len(dropped) + len(orphans)
                if gone:
                    await self._note(connection, round_, Pruned(deliveries=gone))
                return gone

        return await self._connections().insist(work) if duplicates or odd else 0

    # ── evidence ──

    async def pruned(self, first: UUID, last: UUID) -> list[Tombstone]:
        return [self._rows.tombstone(row) for row in await self._fetch("pruned", first, last)]


def _claims(chosen: Sequence[Candidate]) -> tuple[list[UUID], list[int]]:
    return [c.id for c in chosen], [c.claim for c in chosen]


def _places(arrived: Sequence[Arrived]) -> tuple[list[UUID], list[int]]:
    return [a.request_id for a in arrived], [a.item for a in arrived]
