"""Calls that overrun their time-outs, told in any order, through outages and restarts; what must become of them.

One script for any ledger: the two databases, and one in memory that is nothing but `apply_outcome`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec
from hypothesis import strategies as st

from hookledger import Op, Permanent, Refused, RetryPolicy, Seconds
from hookledger.effects.model import Effect as Declared
from hookledger.effects.perform import Ending
from hookledger.effects.policy import Policy, continue_after
from hookledger.ids import effect_identity, new_id
from hookledger.ledger import Completion, Concluded, Effect, Started
from hookledger.states import CallOutcome, EffectKind, EffectState, Repeat
from hookledger.store.call_outcome import CallEnd, Standing, apply_outcome

DONE, REFUSED, DOUBT = CallOutcome.DONE, CallOutcome.REFUSED, CallOutcome.UNKNOWN
TIMED_OUT = Ending(DOUBT, error=TimeoutError())
ENDS: dict[str, tuple[Ending, ...]] = {
    "done": (Ending(DONE),),
    "late done": (TIMED_OUT, Ending(DONE)),
    "late refused": (TIMED_OUT, Ending(REFUSED, error=Refused("closed"))),
    "late and never again": (TIMED_OUT, Ending(REFUSED, error=Permanent("gone"))),
    "late reset": (TIMED_OUT, Ending(DOUBT, error=ConnectionResetError())),
    "refused": (Ending(REFUSED, error=Refused("closed")),),
    "silence": (),
}
"""What a call tells, one after the other; an outage may turn it round."""
STEPS = ("write", "write", "go on", "go on", "frozen", "killed")


def declared(repeat: Repeat, name: str) -> Declared[Any, Any]:
    def function(op: Op) -> None:
        del op

    retry = RetryPolicy(attempts=1000, initial_delay=Seconds("1ms"), max_delay=Seconds("1ms"))
    window = 86_400.0 if repeat is Repeat.KEYED else None
    return Declared(function, name, Policy(repeat, window=window, timeout=1.0, grace=1.0, retry=retry))


class Ledger(Protocol):
    """What the script needs of one; see the store's."""

    async def claim(self, worker: str, wanted: list[tuple[str, int, float]]) -> list[Effect]: ...
    async def finish(self, completions: list[Completion]) -> list[Concluded]: ...
    async def mark_unknown(self, effect: Effect, due_in: float | None) -> bool: ...
    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None: ...
    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool: ...
    async def get(self, identity: bytes) -> Effect | None: ...


class Script:
    """`effect`: planned. `wait` lets time pass; `told` reads how its calls are known to have ended."""

    def __init__(
        self,
        ledger: Any,
        effect: Declared[Any, Any],
        identity: bytes,
        wait: Callable[[float], None],
        told: Callable[[], Awaitable[list[str | None]]],
        data: st.DataObject,
    ) -> None:
        self._ledger: Ledger = ledger
        self._effect = effect
        self._identity = identity
        self._wait = wait
        self._told = told
        self._data = data
        self._untold: list[Completion] = []
        self._final = False

    async def entry(self) -> Effect:
        found = await self._ledger.get(self._identity)
        assert found is not None
        return found

    async def run(self) -> None:
        for step in self._data.draw(st.lists(st.sampled_from(STEPS), max_size=14), label="steps"):
            match step:
                case "write":
                    await self._write()
                case "go on":
                    await self._go_on(self._data.draw(st.sampled_from(sorted(ENDS)), label="the call ends"))
                case "frozen":
                    await self._expire()
                case "killed":
                    self._untold.clear()
                    await self._expire()
        while self._untold:
            await self._write()
        await self._expire()
        for _ in range(10):
            await self._go_on("done")
            while self._untold:
                await self._write()
        await self._check()

    async def _write(self) -> None:
        """Any of those that an outage kept back; perhaps twice, because the answer to the first was lost."""
        if self._untold:
            which = self._data.draw(st.integers(0, len(self._untold) - 1), label="written")
            completion = self._untold.pop(which)
            for _ in range(self._data.draw(st.integers(1, 2), label="times")):
                await self._ledger.finish([completion])

    async def _expire(self) -> None:
        self._wait(self._effect.policy.lease + 1)
        entry = await self.entry()
        if entry.leased_until is not None:
            await self._ledger.mark_unknown(entry, continue_after(self._effect, entry, Ending(DOUBT)))

    async def _go_on(self, end: str) -> None:
        """As the outbox does; see there."""
        self._wait(0.01)
        policy = self._effect.policy
        for entry in await self._ledger.claim("w", [(self._effect.name, 1, policy.lease)]):
            if entry.state is EffectState.UNKNOWN:
                if not policy.may_repeat(entry.unknown_for):
                    await self._ledger.put_off(entry, continue_after(self._effect, entry, Ending(DOUBT)), entry.error)
                    continue
                if await self._ledger.restart(entry, "w", policy.lease) is None:
                    continue
            started = await self.entry()
            for ending in ENDS[end]:
                due_in = continue_after(self._effect, started, ending)
                number, outcome = started.number, ending.outcome
                self._untold.append(Completion(self._identity, number, outcome, b"1", ending.words, due_in))

    async def _check(self) -> None:
        check_end(await self.entry(), await self._told())


def check_end(entry: Effect, calls: list[str | None]) -> None:
    """Nothing goes on by itself any more: is that as its policy says?"""
    assert entry.due_at is None, "it goes on for ever"
    assert entry.leased_until is None
    if "done" in calls:
        wanted = EffectState.DONE
    elif set(calls) == {"refused"}:
        wanted = EffectState.FAILED
    else:
        wanted = EffectState.UNKNOWN
    assert entry.state is wanted, (entry.state, calls)
    gave_up = "gone" in (entry.error or "")  # trying again cannot help: no policy goes on then
    a_person_decides = entry.state is EffectState.UNKNOWN and entry.repeat is Repeat.NEVER
    assert entry.state is EffectState.DONE or gave_up or a_person_decides, (entry, calls)


class Memory:
    """A ledger of one outbox effect, as the two databases keep it."""

    def __init__(self, effect: Declared[Any, Any]) -> None:
        self._now = datetime(2025, 11, 15, tzinfo=UTC)
        self._calls: list[tuple[datetime, CallOutcome | None]] = []
        given: dict[str, Any] = dict.fromkeys(Effect.__struct_fields__)
        given |= dict.fromkeys(("generation", "claim"), 1) | dict.fromkeys(("fence", "number", "tries"), 0)
        self._row = Effect(
            **given
            | {
                "identity": effect_identity("stripe", effect.name, "k"),
                "kind": EffectKind.LATER,
                "name": effect.name,
                "key": "k",
                "event_id": new_id(),
                "arguments": b"{}",
                "repeat": effect.policy.repeat,
                "state": EffectState.PLANNED,
                "due_at": self._now,
                "age": 0.0,
            }
        )
        self.identity = self._row.identity

    def wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    async def told(self) -> list[str | None]:
        return [outcome and outcome.value for _, outcome in self._calls]

    async def get(self, identity: bytes) -> Effect:
        del identity
        sent = [started for started, outcome in self._calls if outcome is not REFUSED]
        unknown_for = (self._now - min(sent)).total_seconds() if sent else None
        return msgspec.structs.replace(self._row, unknown_for=unknown_for)

    def _set(self, **values: Any) -> None:
        self._row = msgspec.structs.replace(self._row, fence=self._row.fence + 1, **values)

    def _in(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self._now + timedelta(seconds=seconds)

    def _start(self, lease: float) -> None:
        number, tries = self._row.number + 1, self._row.tries + 1
        self._set(state=EffectState.STARTED, number=number, tries=tries, due_at=None, leased_until=self._in(lease))
        self._calls.append((self._now, None))

    async def claim(self, worker: str, wanted: list[tuple[str, int, float]]) -> list[Effect]:
        del worker
        [(_, _, lease)] = wanted
        if self._row.due_at is None or self._row.due_at > self._now:
            return []
        if self._row.state is EffectState.PLANNED:
            self._start(lease)
        else:
            self._set(due_at=None, leased_until=self._in(lease))
        return [await self.get(self.identity)]

    async def restart(self, effect: Effect, worker: str, lease: float) -> Started | None:
        del worker
        if effect.fence != self._row.fence:
            return None
        self._start(lease)
        return Started(self.identity, self._row.fence, self._row.number, 1)

    async def put_off(self, effect: Effect, due_in: float | None, error: str | None) -> bool:
        if effect.fence != self._row.fence:
            return False
        self._set(leased_until=None, due_at=self._in(due_in), error=error or self._row.error)
        return True

    async def mark_unknown(self, effect: Effect, due_in: float | None) -> bool:
        row = self._row
        if effect.fence != row.fence or row.leased_until is None or row.leased_until >= self._now:
            return False
        if row.state is EffectState.STARTED and any(outcome is DONE for _, outcome in self._calls):
            self._set(state=EffectState.DONE, leased_until=None)
        else:
            self._set(state=EffectState.UNKNOWN, leased_until=None, due_at=self._in(due_in))
        return True

    async def finish(self, completions: list[Completion]) -> list[Concluded]:
        return [self._finish(completion) for completion in completions]

    def _finish(self, completion: Completion) -> Concluded:
        row, place = self._row, completion.number - 1
        started, outcome = self._calls[place]
        if outcome not in (None, DOUBT):
            return Concluded(row.state)
        self._calls[place] = started, completion.outcome
        before = Standing(row.kind, row.repeat, row.state, row.number, result=row.result)
        calls = [CallEnd(number, known) for number, (_, known) in enumerate(self._calls, 1)]
        move = apply_outcome(before, calls, completion, self._now)
        if move is None:
            return Concluded(row.state)
        waits = move.state in (EffectState.PLANNED, EffectState.UNKNOWN)
        self._set(
            state=move.state,
            result=row.result or move.result,
            error=row.error if move.state is row.state else move.error,
            leased_until=row.leased_until if move.state is EffectState.STARTED else None,
            due_at=self._in(move.due_in) if waits else None,
        )
        return Concluded(move.state, move.alert)
