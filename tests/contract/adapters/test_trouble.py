"""Handlers in each other's way, failures, and handlers that are cut short."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hookledger.clock import Clock
from hookledger.errors import BadData, ClaimLost, HandlerCommitted, WrongState
from hookledger.model import Claimed
from hookledger.retry import is_permanent
from hookledger.states import State
from hookledger.store.ops.audit import Audit
from hookledger.store.ops.workers import Reclaim
from hookledger.store.protocol import Store
from tests.builders import LEASE, Raw, claimed, event, settle, way_out
from tests.contract.adapters.libraries import DEFERRED, Library, entries, works
from tests.contract.test_transaction_effects import LATER, intent, several

# ── at once ──────────────────────────────────────────────────────────────────


async def test_two_concurrent_handlers(library: Library, store: Store, raw: Raw) -> None:
    """Both want one effect: one of them has it, and what the other wrote besides is kept."""
    owners = await several(store, 2)
    both = asyncio.Barrier(2)

    async def handle(owner: Claimed) -> bool:
        tx = await library.begun()
        await library.write(tx.tx, owner.key)
        await both.wait()
        won = await tx.once(intent(owner, "credit"))
        await tx.commit([way_out(owner, "complete")])
        return won

    assert sorted(await asyncio.gather(*map(handle, owners))) == [False, True]
    assert await entries(raw) == sorted(owner.key for owner in owners)
    assert await raw.count("effects") == 1


async def test_a_deadlock_is_transient(library: Library, store: Store, raw: Raw) -> None:
    await raw.run("INSERT INTO public.ledger VALUES ('a'), ('b')")
    owners = await several(store, 2)
    both = asyncio.Barrier(2)

    async def handle(owner: Claimed, order: str) -> Exception | None:
        tx = await library.begun()
        try:
            for step, row in enumerate(order):
                await library.run(tx.tx, f"UPDATE public.ledger SET entry = entry WHERE entry = '{row}'")
                if step == 0:
                    await both.wait()
            await tx.commit([way_out(owner, "complete")])
        except Exception as error:
            await tx.rollback()
            return error
        return None

    failures = await asyncio.gather(handle(owners[0], "ab"), handle(owners[1], "ba"))
    [failure] = [error for error in failures if error is not None]
    assert "deadlock" in str(failure)
    assert not is_permanent(failure)
    assert await store.counts() == {State.PROCESSED: 1, State.PROCESSING: 1}
    await works(library, store, raw)


async def test_a_failure_at_the_commit_itself(library: Library, store: Store, raw: Raw) -> None:
    await raw.run(DEFERRED)
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.run(tx.tx, "INSERT INTO public.deferred VALUES (1), (1)")
    await tx.once(intent(owner, "credit"))
    with pytest.raises(Exception, match="unique") as caught:
        await tx.commit([way_out(owner, "complete")])
    assert not is_permanent(caught.value)
    assert await raw.count("effects") == 0
    assert (await event(store, owner.id)).state is State.PROCESSING
    await works(library, store, raw)


async def test_a_failing_statement(library: Library, store: Store, raw: Raw) -> None:
    """Also one that the handler takes no notice of: nothing can follow it."""
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "once")
    with pytest.raises(Exception, match="unique"):
        await library.write(tx.tx, "once")
    with pytest.raises(Exception, match=r"(?i)aborted|rolled back"):
        await tx.commit([way_out(owner, "complete")])
    assert await entries(raw) == []
    await works(library, store, raw)


@pytest.mark.parametrize(("given", "kept"), [("0", "1min"), ("5s", "5s"), ("1500ms", "1500ms"), ("1h", "1min")])
async def test_stricter_time_outs_stay(theirs: Library, raw: Raw, given: str, kept: str) -> None:
    names = ("lock_timeout", "idle_in_transaction_session_timeout")
    [(database,)] = await raw.run("SELECT quote_ident(current_database())")
    for name in names:
        await raw.run(f"ALTER DATABASE {database} SET {name} = '{given}'")
    try:
        tx = await theirs.begun()
        for name in names:
            assert await tx._adapter.run("SELECT current_setting($1)", [name]) == [(kept,)]
        await tx.rollback()
    finally:
        for name in names:
            await raw.run(f"ALTER DATABASE {database} RESET {name}")


async def test_data_that_no_column_can_hold(library: Library, store: Store, raw: Raw) -> None:
    owner = await claimed(store, "evt")
    for bad in ("nul \0", "lone \ud800", "", "x" * 256):
        tx = await library.begun()
        with pytest.raises(BadData):
            await tx.once(intent(owner, "credit", bad))
        await tx.rollback()
        tx = await library.begun()
        with pytest.raises(BadData):
            await tx.plan(intent(owner, "mail", bad, LATER))
        await tx.rollback()
    await works(library, store, raw)


# ── cut short ────────────────────────────────────────────────────────────────


async def test_a_connection_that_dies(library: Library, store: Store, raw: Raw) -> None:
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "half")
    await raw.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE state = 'idle in transaction' AND pid <> pg_backend_pid() AND datname = current_database()"
    )
    with pytest.raises(Exception) as caught:
        await tx.commit([way_out(owner, "complete")])
    assert not isinstance(caught.value, HandlerCommitted | ClaimLost)
    assert await entries(raw) == []
    assert await settle(store, owner, "reschedule")


async def test_cancelled_at_every_step(library: Library, store: Store, raw: Raw) -> None:
    """Wherever the cancellation strikes, it is all or nothing, and the next transactions work."""

    async def handle(owner: Claimed) -> None:
        adapter = library.transactions.adapter() if library.transactions else None
        tx, abandoned = store.transaction(adapter), False
        try:
            await tx.begin()
            await library.write(tx.tx, owner.key)
            await tx.commit([way_out(owner, "complete")])
        except asyncio.CancelledError:
            abandoned = library.plain
            raise
        finally:
            await asyncio.shield(tx.rollback(abandoned=abandoned))

    for steps in range(0, 40, 2):
        owner = await claimed(store, f"evt_{steps:02}")
        task = asyncio.create_task(handle(owner))
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        task.cancel()
        await asyncio.wait([task])
        done = (await event(store, owner.id)).state is State.PROCESSED
        assert (owner.key in await entries(raw)) is done
        if not done:
            await asyncio.wait_for(handle(owner), 20)


async def test_a_thread_that_continues_after_its_timeout(theirs: Library, store: Store, raw: Raw) -> None:
    """A plain function cannot be stopped: what it does after its time-out reaches no later transaction."""
    if not theirs.plain:
        return  # the others end when they are told to
    owners = await several(store, 2)
    tx = await theirs.begun()
    await theirs.write(tx.tx, "early")
    failures: list[Exception] = []
    go_on, session = threading.Event(), tx.tx

    def zombie() -> None:
        assert go_on.wait(30)
        for _ in range(3):
            try:
                theirs._blocking(session, "INSERT INTO public.ledger VALUES ('late')")
                session.commit()
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    await tx.rollback(abandoned=True)
    followers = [await theirs.begun(), await theirs.begun()]  # both connections of the pool are in use again
    go_on.set()
    await asyncio.to_thread(thread.join)
    assert len(failures) == 3
    for follower, owner in zip(followers, owners, strict=True):
        await theirs.write(follower.tx, owner.key)
        await follower.commit([way_out(owner, "complete")])
    assert await entries(raw) == ["evt_0", "evt_1"]


async def test_a_thread_in_the_midst_of_a_statement(theirs: Library, store: Store, raw: Raw) -> None:
    if not theirs.plain:
        return  # the others end when they are told to
    owner = await claimed(store, "evt")
    tx = await theirs.begun()
    await theirs.write(tx.tx, "early")
    running = asyncio.create_task(theirs.run(tx.tx, "SELECT pg_sleep(150)"))
    asleep = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'"
    async with asyncio.timeout(60):
        while not await raw.run(asleep):
            await asyncio.sleep(0.02)
    await asyncio.wait_for(tx.rollback(abandoned=True), 60)
    with pytest.raises(Exception, match=r"cancel|closed"):
        await running
    assert await entries(raw) == []
    assert await settle(store, owner, "reschedule")
    await works(theirs, store, raw)


async def test_nothing_is_committed_once_the_inbox_is_being_moved(
    library: Library, store: Store, raw: Raw, clock: Clock
) -> None:
    """A handler that lost its claim and is still in its transaction when the copy begins."""
    owner = await claimed(store, "evt")
    tx = await library.begun()
    await library.write(tx.tx, "theirs")
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "the worker died")]) == 1
    await store.copies.move("elsewhere", Audit("ada", "why"))
    with pytest.raises(Exception, match="this inbox is being moved to another database: elsewhere"):
        await tx.commit([way_out(owner, "complete")])
    assert await entries(raw) == []


async def test_a_copy_does_not_begin_while_a_handler_has_written(
    library: Library, store: Store, clock: Clock
) -> None:
    owner = await claimed(store, "evt")
    tx = await library.begun()
    assert await tx.once(intent(owner, "credit"))
    clock.offset += LEASE + 1
    assert await store.reclaim([Reclaim(owner.id, owner.claim, 0.0, "the worker died")]) == 1
    with pytest.raises(WrongState, match="a transaction has written to effects and is not over"):
        await store.copies.move("elsewhere", Audit("ada", "why"))
    assert await store.copies.state() is None
    await tx.rollback()
    await store.copies.move("elsewhere", Audit("ada", "why"))
