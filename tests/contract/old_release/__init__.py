"""A process of the last release before schema 2 (commit 79a4420), as the database meets it.

`postgres.sql` and `sqlite.sql` have its statements word for word; here is how it used them: the columns that its
intake wrote, the arguments of its claim and its outcomes. What arrivals are to one another (`store/classify.py`) has
not changed since, so it is used as it is. Tests run such a process beside this release on the migrated schema. They
do not need the history that the statements are from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

from hookledger.clock import Clock
from hookledger.model import Arrival, Claimed, Kind, Outcome, Recorded
from hookledger.states import BY_NAME, FINAL, State
from hookledger.store.causes import MAX_CAUSE
from hookledger.store.classify import Classification, Owner, Verdict, classify, first_state, new_outcome, proposals
from hookledger.store.postgres.intake import columns
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.rows import NEW, keeping, outcome_values, value_of
from hookledger.store.sqlite.connection import read_rows
from hookledger.store.sqlite.intake import micros
from hookledger.store.sqlite.store import SqliteStore
from hookledger.store.text import Name, parse
from tests.builders import LEASE

SCHEMA_RANGE = (1, 1)
"""The schema versions that it works with. It knows nothing of `schema_support`."""
SINCE = {"entity": None, "waited": None, "approval_id": None, "version": ""}
"""What a worker gets of an event only since."""


def statements(dialect: Name) -> dict[str, str]:
    return parse(Path(__file__).with_name(f"{dialect}.sql").read_text(), dialect)


def old_process(store: Store, clock: Clock) -> OldProcess:
    """On a store that was opened for it, whose connections it uses."""
    if isinstance(store, SqliteStore):
        return OldOnSqlite(store, clock)
    assert isinstance(store, PostgresStore)
    return OldOnPostgres(store, clock)


def out_of_range(schema: int) -> str | None:
    """Why it does not start with this schema, and is not ready if it runs; None: it starts, and is."""
    low, high = SCHEMA_RANGE
    if low <= schema <= high:
        return None
    what = "run 'hookledger migrate'" if schema < low else "it was migrated by a newer release, which can read it"
    return f"schema version {schema}, this release needs {low} to {high}: {what}"


class OldProcess:
    """A receiver and a worker."""

    async def schema(self) -> int:
        """The version that its health check finds."""
        raise NotImplementedError

    async def record(self, *arrivals: Arrival) -> list[Recorded]:
        """One batch, in one commit."""
        raise NotImplementedError

    async def record_new(self, arrival: Arrival) -> bool:
        """Whether it was new, as far as one statement can tell."""
        raise NotImplementedError

    async def waiting(self) -> list[Kind]:
        """What a look finds."""
        raise NotImplementedError

    async def claim(self, *kinds: Kind, limit: int = 100) -> list[Claimed]:
        raise NotImplementedError

    async def settle(self, *outcomes: Outcome, writes: str | None = None) -> set[UUID]:
        """In one commit with what the handler writes. Raises BadData if the database refuses it."""
        raise NotImplementedError

    async def renew(self, owner: Claimed) -> bool:
        raise NotImplementedError


def written(classification: Classification) -> list[tuple[Verdict, bytes | None]]:
    return list(keeping(classification.verdicts))


class OldOnPostgres(OldProcess):
    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._statements = statements("postgres")

    def _sql(self, name: str) -> str:
        now = f"(SELECT clock_timestamp() + interval '{self._clock.offset} seconds')"
        return self._store.sql.render(self._statements[name].replace("{now}", now))

    async def schema(self) -> int:
        async with self._store._opened().bare() as connection:
            return int(await connection.fetchval(self._sql("applied")))

    async def record(self, *arrivals: Arrival) -> list[Recorded]:
        async with self._store._opened().bare() as connection, connection.transaction():
            wanted = proposals(arrivals)
            won = {row[0] for row in await connection.fetch(self._sql("take_identities"), wanted)}
            owners = {p.identity: Owner(p.event_id, p.fingerprint) for p in wanted if p.identity in won}
            taken = [p.identity for p in wanted if p.identity not in won]
            for identity, event_id, fingerprint, state, content in await connection.fetch(self._sql("owners"), taken):
                owners[identity] = Owner(event_id, fingerprint, State(state) if state else None, content)
            classification = classify(arrivals, owners)
            rows = [_arrival(verdict, body) for verdict, body in written(classification)]
            await connection.execute(self._sql("write"), rows)
        return [recorded for group in classification.by_arrival(arrivals) for recorded in group]

    async def record_new(self, arrival: Arrival) -> bool:
        [item], [event_id] = arrival.items, arrival.event_ids
        new = Recorded(new_outcome(item), event_id)
        async with self._store._opened().bare() as connection:
            row = _arrival(Verdict(arrival, 0, item, new), arrival.body)
            return bool(await connection.fetch(self._sql("add_new"), [row]))

    async def waiting(self) -> list[Kind]:
        async with self._store._opened().bare() as connection:
            return [Kind(row["source"], row["type"]) for row in await connection.fetch(self._sql("waiting"))]

    async def claim(self, *kinds: Kind, limit: int = 100) -> list[Claimed]:
        named = [kind.source for kind in kinds], [kind.type for kind in kinds]
        async with self._store._opened().bare() as connection:
            rows = await connection.fetch(self._sql("claim"), *named, "old worker", LEASE, limit)
        return [value_of(Claimed, row, **SINCE) for row in sorted(rows, key=lambda row: (row["due_at"], row["id"]))]

    async def settle(self, *outcomes: Outcome, writes: str | None = None) -> set[UUID]:
        values = sorted(_outcome(outcome) for outcome in outcomes)
        async with self._store._opened().bare() as connection, connection.transaction():
            if writes is not None:
                await connection.execute(writes)
            return {row["id"] for row in await connection.fetch(self._sql("settle"), *columns(values), None)}

    async def renew(self, owner: Claimed) -> bool:
        async with self._store._opened().bare() as connection:
            return bool(await connection.fetch(self._sql("beat"), [owner.id], [owner.claim], LEASE))


class OldOnSqlite(OldProcess):
    def __init__(self, store: SqliteStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._sql = statements("sqlite")

    @property
    def _now(self) -> int:
        return micros(self._clock.time())

    async def schema(self) -> int:
        return int(await self._store._write(lambda connection: connection.execute(self._sql["applied"]).get))

    async def record(self, *arrivals: Arrival) -> list[Recorded]:
        def job(connection: apsw.Connection) -> Classification:
            now = self._now
            wanted = proposals(arrivals)
            for p in wanted:
                proposed = p.identity, p.kind, p.source, p.event_id.bytes, p.fingerprint
                connection.execute(self._sql["take_identities"], proposed)
            owners = {}
            for p in wanted:
                found: Any = connection.execute(self._sql["owner"], (p.identity,)).fetchall()
                [(_, event, mark, state, content)] = found
                owners[p.identity] = Owner(UUID(bytes=event), mark, State(state) if state else None, content)
            classification = classify(arrivals, owners)
            for verdict, body in written(classification):
                if body is not None:
                    connection.execute(self._sql["keep_requests"], _request(now, verdict.arrival, body))
                if verdict.recorded.outcome in NEW:
                    connection.execute(self._sql["add_events"], _event(now, verdict))
                connection.execute(self._sql["add_deliveries"], _delivery(now, verdict))
            return classification

        classification = await self._store._write(job)
        return [recorded for group in classification.by_arrival(arrivals) for recorded in group]

    async def record_new(self, arrival: Arrival) -> bool:
        [recorded] = await self.record(arrival)  # it had no shorter way
        return recorded.outcome in NEW

    async def waiting(self) -> list[Kind]:
        def job(connection: apsw.Connection) -> list[Kind]:
            found = read_rows(connection, self._sql["waiting"], (self._now,))
            return [Kind(row["source"], row["type"]) for row in found]

        return await self._store._do(job)

    async def claim(self, *kinds: Kind, limit: int = 100) -> list[Claimed]:
        def job(connection: apsw.Connection) -> list[Claimed]:
            now = self._now
            due = [
                (row[1], row[0])
                for kind in kinds
                if connection.execute(self._sql["may_run"], (kind.source, kind.type)).get
                for row in connection.execute(self._sql["due"], (now, kind.source, kind.type, limit))
            ]
            idents = [ident for _, ident in sorted(due)[:limit]]
            for ident in idents:
                connection.execute(self._sql["claim"], (now, ident, "old worker", micros(LEASE)))
            found = (read_rows(connection, self._sql["claimed"], (ident,)) for ident in idents)
            return [value_of(Claimed, row, **SINCE) for [row] in found]

        return await self._store._write(job)

    async def settle(self, *outcomes: Outcome, writes: str | None = None) -> set[UUID]:
        def job(connection: apsw.Connection) -> set[UUID]:
            now, settled = self._now, set()
            if writes is not None:
                connection.execute(writes)
            for outcome in outcomes:
                ident, claim, transition, state, reason, due_in, *rest = _outcome(outcome)
                values = (now, ident.bytes, claim, transition, state, reason, micros(due_in), *rest)
                for row in connection.execute(self._sql["settle"], values).fetchall():
                    settled.add(outcome.id)
                    attempt = BY_NAME[transition].attempt
                    if attempt is not None:
                        connection.execute(self._sql["tried"], (*row, now, attempt.value))
            return settled

        return await self._store._write(job)

    async def renew(self, owner: Claimed) -> bool:
        values = (self._now, owner.id.bytes, owner.claim, micros(LEASE))
        return bool(await self._store._write(lambda c: c.execute(self._sql["beat"], values).fetchall()))


# ── the columns that it wrote ────────────────────────────────────────────────


def _outcome(outcome: Outcome) -> tuple[Any, ...]:
    """It knew neither entities to wait for nor stages."""
    return outcome_values(outcome)[:9]


def _arrival(verdict: Verdict, body: bytes | None) -> tuple[Any, ...]:
    """PostgreSQL: the composite type `arrival`."""
    arrival, place, item, recorded, _ = verdict
    proof = arrival.proof
    state, reason = first_state(item)
    return (
        *(arrival.id, place, arrival.source, arrival.query, arrival.headers, body, arrival.remote),
        *(proof.scheme, proof.secret, proof.signed_at),
        *(recorded.event_id, item.type, item.key, item.key_origin, item.provider_id, item.object_id),
        *(item.occurred_at, item.fingerprint, state, reason),
        *(recorded.outcome, recorded.state, item.delivery_id, item.identity, item.account, item.retry),
    )


def _request(now: int, arrival: Arrival, body: bytes) -> tuple[Any, ...]:
    proof = arrival.proof
    signed = None if proof.signed_at is None else micros(proof.signed_at)
    where = arrival.query, arrival.headers, body, arrival.remote
    return (now, arrival.id.bytes, arrival.source, *where, proof.scheme, proof.secret, signed)


def _event(now: int, verdict: Verdict) -> tuple[Any, ...]:
    arrival, place, item, recorded, _ = verdict
    state, reason = first_state(item)
    due = now if state is State.PENDING else None
    finished = now if due is None and state in FINAL else None
    cause = reason[:MAX_CAUSE] if reason and state in (State.FAILED, State.NEEDS_REVIEW) else None
    occurred = None if item.occurred_at is None else micros(item.occurred_at)
    return (
        *(now, now, due, finished, recorded.event_id.bytes, arrival.source, item.type, item.key, item.key_origin),
        *(item.provider_id, item.object_id, occurred, item.fingerprint, arrival.id.bytes, place),
        *(state, reason, cause, item.account),
    )


def _delivery(now: int, verdict: Verdict) -> tuple[Any, ...]:
    arrival, place, item, recorded, _ = verdict
    where = arrival.id.bytes, place, recorded.event_id.bytes, arrival.source
    return (now, *where, recorded.outcome, recorded.state, item.delivery_id, item.fingerprint, item.retry)
