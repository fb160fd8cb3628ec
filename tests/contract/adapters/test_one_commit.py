"""What is written in the user's own library, the effects and the outcome are one commit, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError

from hookledger.clock import Clock
from hookledger.errors import ChangedVersion, ClaimLost, HandlerCommitted
from hookledger.model import Kind, StoredAnswer
from hookledger.states import State
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import LEASE, WORKER, Raw, claimed, event, settle, way_out
from tests.contract.adapters.libraries import Entry, Library, entries, works
from tests.contract.test_transaction_effects import KNOWN, LATER, intent, several
from tests.guards import request


# proves R20
async def test_everything_commits_together(library: Library, store: Store, raw: Raw) -> None:
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "credit")
    assert await tx.once(intent(owner, "credit"))
    assert not await tx.once(intent(owner, "credit"))
    assert await tx.plan(intent(owner, "mail", kind=LATER, lane="customer")) is None
    assert await tx.plan(intent(owner, "mail", kind=LATER, lane="customer", arguments_digest=b"other")) == KNOWN
    assert await entries(raw) == []
    assert await raw.count("effects") == 0
    await tx.commit([way_out(owner, "complete", result="done")])
    assert await entries(raw) == ["credit"]
    assert await raw.run("SELECT name, kind, state, place FROM effects ORDER BY name") == [
        ("credit", "once", "done", None),
        ("mail", "later", "planned", 1),
    ]
    row = await event(store, owner.id)
    assert (row.state, row.claim, row.result) == (State.PROCESSED, 2, "done")
    await works(library, store, raw)


async def test_guards_are_set_in_the_users_own_transaction(library: Library, store: Store, raw: Raw) -> None:
    newer, older = await several(store, 2)
    for owner, version, applied in ((newer, 1731, True), (older, 1720, False)):
        tx = await library.begun()
        await library.write(tx.tx, owner.key)
        answer = await tx.newer(request(owner, version))
        assert answer.applied is applied
        assert await raw.count("guard_answers") == int(not applied), "with the commit"
        await tx.commit([way_out(owner, "complete")])
    assert answer.words == "stale for subscription sub_1: version 1731 by evt_0 was applied, this is 1720"
    assert await raw.run("SELECT version, ties FROM guards") == [("1731", 0)]
    tied = await claimed(store, "tied")
    tx = await library.begun()
    assert (await tx.newer(request(tied, 1731, rank=2))).tie == "rank"
    assert not (await tx.newer(request(tied, "2027-01-31", "sub_2", approved=True))).tie
    with pytest.raises(ChangedVersion):
        await tx.newer(request(tied, "2027-01-31"))
    await tx.rollback()
    assert await raw.run("SELECT version, ties FROM guards") == [("1731", 0)]
    assert await settle(store, tied, "complete")
    await works(library, store, raw)


async def test_stages_begin_in_the_users_own_transaction(library: Library, store: Store, raw: Raw) -> None:
    owners = await several(store, 2)
    for owner, ends in ((owners[0], "rollback"), (owners[1], "commit")):
        tx = await library.begun()
        await library.write(tx.tx, owner.key)
        if ends == "commit":
            await tx.commit([way_out(owner, "complete", stages=("finance", "mail"))])
        else:
            await tx.rollback()
    found = await raw.run("SELECT source, state FROM events WHERE parent IS NOT NULL ORDER BY source")
    assert found == [(f"{owner.source}/finance", "pending"), (f"{owner.source}/mail", "pending")]
    kinds = [Kind(f"{owner.source}/{stage}", owner.type) for stage in ("finance", "mail")]
    finance, mail = [(await store.claim(WORKER, [kind], 1, LEASE))[0] for kind in kinds]
    tx = await library.begun()
    assert await tx.once(intent(finance, "credit"))
    await tx.commit([way_out(finance, "complete")])
    tx = await library.begun()
    same = replace(intent(mail, "credit"), identity=intent(finance, "credit").identity)
    assert not await tx.once(same)
    assert await tx.other_stage(same) == "finance"
    related = [await tx.is_same_event(mail.id, other.id) for other in (finance, owner, owners[0])]
    assert related == [True, True, False]
    await tx.commit([way_out(mail, "complete")])
    assert await settle(store, owners[0], "complete")
    assert (await store.consistency.report()).imbalances == ()
    await works(library, store, raw)


async def test_answers_commit_in_the_users_own_transaction(library: Library, store: Store, raw: Raw) -> None:
    owners = await several(store, 3)
    answers = [StoredAnswer(200 + n, b"x-a: \x00\xff", b"\x00\xff" * n) for n in range(2)]
    for ends in ("rollback", "commit"):
        tx = await library.begun()
        await library.write(tx.tx, "three")
        if ends == "commit":
            ways = [way_out(owner, "complete", answer=one) for owner, one in zip(owners, answers, strict=False)]
            await tx.commit([*ways, way_out(owners[2], "complete")])
        else:
            await tx.rollback()
    found = await store.answers.find([owner.id for owner in owners])
    kept = [found[owner.id].answer for owner in owners]
    assert kept == [StoredAnswer(one.status, one.headers, one.body) for one in answers] + [None]


async def test_several_outcomes_in_one_commit(library: Library, store: Store, raw: Raw) -> None:
    owners = await several(store, 3)
    tx = await library.begun()
    await library.write(tx.tx, "three")
    await tx.commit([way_out(owners[0], "complete"), way_out(owners[1], "skip"), way_out(owners[2], "reschedule")])
    assert await store.counts() == {State.PROCESSED: 1, State.SKIPPED: 1, State.RETRYING: 1}


async def test_a_handler_that_raises_leaves_nothing(library: Library, store: Store, raw: Raw) -> None:
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "credit")
    await tx.once(intent(owner, "credit"))
    await tx.plan(intent(owner, "mail", kind=LATER, lane="customer"))
    await tx.rollback()
    assert await entries(raw) == []
    assert await raw.count("effects") == await raw.count("effect_lanes") == 0
    assert (await event(store, owner.id)).state is State.PROCESSING
    assert await settle(store, owner, "complete")
    await works(library, store, raw)


async def test_what_an_orm_has_not_written_yet(
    theirs: Library, store: Store, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that was only added is written before the outcome; if that fails, there is no outcome."""
    if not theirs.name.startswith("sqlalchemy"):
        return  # nothing is kept back there
    owners = await several(store, 2)
    for owner in owners:
        tx, order = await theirs.begun(), list[str]()
        session = tx.tx if theirs.plain else tx.tx.sync_session
        listen(session, "after_flush", lambda *_, order=order: order.append("flush"))
        run = tx._adapter.run

        async def noted(sql: str, args: Sequence[Any], run: Any = run, order: list[str] = order) -> list[Any]:
            order.append(sql.split(maxsplit=1)[0])
            rows: list[Any] = await run(sql, args)
            return rows

        monkeypatch.setattr(tx._adapter, "run", noted)
        session.add(Entry(entry="same"))
        assert await tx.once(intent(owner, owner.key))  # a failure of theirs is not taken for ours
        if owner is owners[0]:
            await tx.commit([way_out(owner, "complete")])
            assert order == ["INSERT", "flush", "WITH"]
        else:
            with pytest.raises(DBAPIError, match="unique"):
                await tx.commit([way_out(owner, "complete")])
            assert order == ["INSERT", "SELECT"]  # no outcome: only the look at the mark
    assert await entries(raw) == ["same"]
    assert await raw.count("effects") == 1
    assert [(await event(store, owner.id)).state for owner in owners] == [State.PROCESSED, State.PROCESSING]
    await works(theirs, store, raw)


# ── not ours ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", [["COMMIT"], ["ROLLBACK"], ["COMMIT", "BEGIN"]], ids="-".join)
async def test_a_handler_that_ends_it_by_a_statement(
    library: Library, store: Store, raw: Raw, ending: list[str]
) -> None:
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "credit")
    for statement in ending:
        await library.run(tx.tx, statement)
    with pytest.raises(HandlerCommitted):
        await tx.once(intent(owner, "credit"))
    with pytest.raises(HandlerCommitted):
        await tx.newer(request(owner, 1))
    with pytest.raises(HandlerCommitted):
        await tx.commit([way_out(owner, "complete")])
    assert await entries(raw) == (["credit"] if "COMMIT" in ending else [])
    assert await raw.count("effects") == await raw.count("guards") == await raw.count("guard_answers") == 0
    assert (await event(store, owner.id)).state is State.PROCESSING
    assert await settle(store, owner, "review", reason="it committed by itself")
    await works(library, store, raw)


@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
async def test_a_handler_that_ends_it_by_a_method(theirs: Library, store: Store, raw: Raw, ending: str) -> None:
    owner = await claimed(store, "evt")
    tx = await theirs.begun()
    await theirs.write(tx.tx, "credit")
    if theirs.name.startswith("psycopg") and ending != "close":
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
            await theirs.call(getattr(tx.tx, ending))
        await tx.commit([way_out(owner, "complete")])  # it was refused, so nothing happened
        assert await entries(raw) == ["credit"]
        return
    await theirs.call(getattr(tx.tx, ending))
    with pytest.raises(HandlerCommitted):
        await tx.commit([way_out(owner, "complete")])
    assert await entries(raw) == (["credit"] if ending == "commit" else [])
    assert (await event(store, owner.id)).state is State.PROCESSING
    assert await settle(store, owner, "review", reason="it committed by itself")
    await works(theirs, store, raw)


async def test_a_handler_that_commits_and_closes(theirs: Library, store: Store, raw: Raw) -> None:
    """It leaves nothing that could be asked; a retry would do its writes twice."""
    owner = await claimed(store, "evt")
    tx = await theirs.begun()
    await theirs.write(tx.tx, "credit")
    if theirs.name.startswith("psycopg"):
        await theirs.run(tx.tx, "COMMIT")
    else:
        await theirs.call(tx.tx.commit)
    await theirs.call(tx.tx.close)
    with pytest.raises(HandlerCommitted):
        await tx.once(intent(owner, "credit"))
    with pytest.raises(HandlerCommitted):
        await tx.commit([way_out(owner, "complete")])
    assert await entries(raw) == ["credit"]
    await works(theirs, store, raw)


async def test_a_lost_claim(library: Library, store: Store, raw: Raw, clock: Clock) -> None:
    zombie = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "zombie")
    await tx.once(intent(zombie, "credit"))
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(zombie.id, zombie.claim, 60.0, "died")]) == 1
    with pytest.raises(ClaimLost):
        await tx.commit([way_out(zombie, "complete")])
    assert await entries(raw) == []
    assert await raw.count("effects") == 0
    assert (await event(store, zombie.id)).state is State.RETRYING
    await works(library, store, raw)
