"""Wait for the answer that another caller is making; one poll per key and process."""

from __future__ import annotations

import asyncio
import random

from .commands import Commands, Record
from .errors import InFlight
from .keys import Key

FIRST_DELAY = 0.02
LONGEST_DELAY = 0.25


class _Poll:
    def __init__(self, task: asyncio.Task[Record | None]) -> None:
        self.task = task
        self.waiting = 0


class Waiting:
    """Those of this process that wait for a key of another caller, at most `at_most`."""

    def __init__(self, commands: Commands, at_most: int) -> None:
        self._commands = commands
        self._at_most = at_most
        self._waiting = 0
        self._polls: dict[str, _Poll] = {}

    async def wait(self, key: Key, seconds: float) -> Record | None:
        """Return the record, or None if no caller has the lease any longer; raises InFlight after `seconds`."""
        if seconds <= 0:
            raise InFlight(f"another caller is running the work of {key}: try again later")
        if self._waiting >= self._at_most:
            raise InFlight(f"another caller is running the work of {key}, and {self._at_most} others wait here")
        poll = self._polls.get(key.name)
        if poll is None or poll.task.done():
            poll = self._polls[key.name] = _Poll(asyncio.create_task(self._poll(key), name="hookledger-redis-poll"))
        self._waiting += 1
        poll.waiting += 1
        try:
            done, _ = await asyncio.wait([poll.task], timeout=seconds)
        finally:
            self._waiting -= 1
            poll.waiting -= 1
            if not poll.waiting:
                poll.task.cancel()
                if self._polls.get(key.name) is poll:
                    del self._polls[key.name]
        if not done:
            raise InFlight(f"another caller is still running the work of {key}: try again later")
        return poll.task.result()

    async def _poll(self, key: Key) -> Record | None:
        delay = FIRST_DELAY
        while True:
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311
            held, record = await self._commands.read(key)
            if record is not None and not record.started:
                return record
            if held is None:
                return None
            delay = min(delay * 1.5, LONGEST_DELAY)
