"""Every order in which two callers, a renewal and the expiry of a lease can meet."""

import itertools
from collections.abc import Iterator
from typing import Literal

import pytest
from redis.asyncio import Redis

from hookledger.contrib.redis.commands import Claim, Commands, Record
from hookledger.contrib.redis.keys import fingerprint_of, make_key
from hookledger.contrib.redis.operator import started

Ending = Literal["finish", "release"]
KEY = make_key("hookledger", "acme", "orders", "k-1")
PRINT = fingerprint_of("{}")


class Caller:
    """One process: claims, and later finishes or releases. It may be frozen between any two commands."""

    def __init__(self, client: Redis, commands: Commands, name: str, never: bool, ending: Ending) -> None:
        self.client, self.commands, self.ending = client, commands, ending
        token = name.encode() * 16
        self.claim = Claim(KEY, token, PRINT, bytes(started(KEY, token, PRINT)) if never else b"")
        self.answer = Record(b"B", token, PRINT, f"the answer of {name}".encode())
        self.running = self.kept = False

    async def begin(self) -> None:
        answered, held = await self.answered(), await self.read(KEY.lease)
        marked = await self.read(KEY.record)
        self.running = await self.commands.claim(self.claim) is None
        assert self.running == (held is None and marked is None), "it runs only a key that no other caller has"
        assert await self.answered() == answered

    async def end(self) -> None:
        if not self.running:
            return
        self.running = False
        answered, lease = await self.answered(), await self.read(KEY.lease)
        others = lease is not None and not lease.startswith(self.claim.token)
        if self.ending == "finish":
            kept = await self.commands.finish(self.claim, self.answer)
            self.kept = kept
            assert kept == (await self.answered() == bytes(self.answer))
            assert not (kept and others), "another caller runs the work"
        else:
            await self.commands.release(self.claim, did_nothing=False)
        assert not answered or await self.answered() == answered, "what duplicates were told stays"
        if others:
            assert await self.read(KEY.lease) == lease, "the lease of another is not touched"

    async def renew(self) -> None:
        if not self.running:
            return
        answered, lease = await self.answered(), await self.read(KEY.lease)
        kept = await self.commands.renew(self.claim)
        if answered or (lease and not lease.startswith(self.claim.token)):
            assert not kept
        if not kept:
            assert await self.read(KEY.lease) == lease
        assert await self.answered() == answered

    async def answered(self) -> bytes | None:
        record = await self.read(KEY.record)
        return None if record is None or record.startswith(b"S") else record

    async def read(self, name: str) -> bytes | None:
        stored: bytes | None = await self.client.get(name)  # type: ignore[assignment]
        return stored


def orders(*steps: str) -> Iterator[tuple[str, ...]]:
    """Each order of the steps; a caller claims before it renews or ends."""
    for order in sorted(set(itertools.permutations(steps))):
        if order.index("a claims") < min(order.index("a renews"), order.index("a ends")) and order.index(
            "b claims"
        ) < order.index("b ends"):
            yield order


# proves R42
@pytest.mark.parametrize("endings", list(itertools.product(("finish", "release"), repeat=2)), ids="-".join)
@pytest.mark.parametrize("never", [False, True], ids=["safe", "never"])
async def test_no_order_lets_one_caller_undo_another(
    client: Redis, never: bool, endings: tuple[Ending, Ending]
) -> None:
    commands = Commands(client, lease=30, window=86_400, timeout=9, max_commands=8)
    ran_twice = 0
    for order in orders("a claims", "a renews", "a ends", "b claims", "b ends", "the lease expires"):
        await client.delete(KEY.lease, KEY.record)
        a, b = (Caller(client, commands, name, never, end) for name, end in zip("ab", endings, strict=True))
        claimed = []
        for step in order:
            match step:
                case "a claims" | "b claims":
                    caller = a if step.startswith("a") else b
                    await caller.begin()
                    claimed += [caller] if caller.running else []
                case "a renews":
                    await a.renew()
                case "a ends":
                    await a.end()
                case "b ends":
                    await b.end()
                case "the lease expires":
                    await client.delete(KEY.lease)
        if never:
            assert len(claimed) == 1, order
        if "finish" in endings and len(claimed) == 2:
            ran_twice += 1
        record = await client.get(KEY.record)
        if a.kept or b.kept:
            assert record == bytes(a.answer if a.kept else b.answer), order
        elif any(caller.ending == "finish" for caller in claimed):
            assert len(claimed) == 2, "only another caller makes an answer come too late"
    if not never and endings == ("finish", "finish"):
        assert ran_twice, "an expired lease lets the work run twice: the page says so"


async def test_a_command_that_is_sent_again_changes_nothing(client: Redis) -> None:
    """A client sends a command again when its connection broke before the answer."""
    commands = Commands(client, lease=30, window=86_400, timeout=9, max_commands=8)
    claim = Claim(KEY, b"a" * 16, PRINT, b"")
    answer = Record(b"B", claim.token, PRINT, b"the answer")
    assert await commands.claim(claim) is None
    assert await commands.claim(claim) is None
    assert await commands.finish(claim, answer)
    assert await commands.finish(claim, answer)
    assert await commands.claim(claim) == answer
    await commands.release(claim, did_nothing=True)
    assert await client.get(KEY.record) == bytes(answer)


@pytest.mark.parametrize("never", [False, True], ids=["safe", "never"])
async def test_a_released_claim_leaves_nothing(client: Redis, never: bool) -> None:
    commands = Commands(client, lease=30, window=86_400, timeout=9, max_commands=8)
    token = b"a" * 16
    claim = Claim(KEY, token, PRINT, bytes(started(KEY, token, PRINT)) if never else b"")
    await commands.claim(claim)
    await commands.release(claim, did_nothing=True)
    assert await client.keys("*") == []
