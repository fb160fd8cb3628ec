"""Checks consistency in short steps with pauses between them: what arrived, every hour, and all rows, every night.

A crash loses about a second of it: another process resumes at the stored position.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from ...clock import Clock
from ...errors import HookledgerError, WrongState
from ...store.ops.checks import SAMPLE, Check, Kind, Standing, first_position
from ...store.ops.consistency import ENTRIES, Violation
from ...store.ops.rules import Suspect
from ...store.protocol import Store
from ...work.settings import worker_name
from ..context import Context
from ..schedule import slot
from .settings import ConsistencySettings

log: logging.Logger = logging.getLogger(__name__)

LEASE = 60.0
"""Seconds after which another process may resume a check; renewed at a third of it."""
LOOK = 60.0
"""Seconds between two looks at whether a check is due."""
SAVE = 1.0
"""Seconds between two positions that are stored."""
PIECE = 0.1
"""Seconds that one step should take."""
SIZES = (50, 2000)
"""Rows of one step, at least and at most."""

Progress = Callable[[str, int, int], None]
"""Gets the part of the check, and how many rows were looked at and violations found."""


class Checker:
    """`holder`: our name on the check, so that one process at a time is at it. `pause`: rest as long as each step
    took, as workers do."""

    def __init__(
        self, store: Store, settings: ConsistencySettings, clock: Clock, holder: str, *, pause: bool = True
    ) -> None:
        self._checks = store.checks
        self._settings = settings
        self._clock = clock
        self._holder = holder
        self._pause = pause

    # ── when ──

    async def run(self) -> None:
        """Check whenever it is due, the first time after a while, so that short-lived workers do not check."""
        while self._settings.enabled:
            await asyncio.sleep(min(LOOK, self._settings.interval))
            await self.round()

    async def round(self) -> None:
        """Run each check that is due and that no other process runs; a failure of one does not stop the other."""
        for kind, due in self.slots().items():
            try:
                if await self._checks.needed(kind, due):
                    await self.check(kind, slot=due)
            except HookledgerError as error:
                log.warning("%s consistency check: %s", kind, error)
            except Exception:
                log.exception("%s consistency check: internal error", kind)

    def slots(self) -> dict[Kind, datetime]:
        """Return the latest planned time of each kind."""
        now, interval = self._clock.now(), self._settings.interval
        hour = datetime.fromtimestamp(now.timestamp() // interval * interval, UTC)
        return {"incremental": hour, "full": slot(self._settings.at, now)}

    # ── how ──

    async def check(
        self, kind: Kind, *, slot: datetime | None = None, progress: Progress = lambda *_: None
    ) -> Check | None:
        """Check, or resume an interrupted check, to its end. None if another process is at one, or has done it.

        Raises WrongState if another process took it over. After any other failure the next process resumes it.
        """
        check = await self._checks.begin(kind, self._holder, slot=slot, lease=LEASE)
        if check is None:
            return None
        try:
            async with self._renewed(check):
                ended = await self._walk(check, progress)
        except BaseException as error:
            why = str(error) if isinstance(error, HookledgerError) else None
            with contextlib.suppress(HookledgerError):
                await self._checks.give_up(check, why)
            raise
        for one in ended.violations:
            log.error("consistency: %d %s: %s", one.count, ENTRIES.get(one.kind, one.kind), ", ".join(one.sample))
        return ended

    async def _walk(self, check: Check, progress: Progress) -> Check:
        position = first_position(check)
        rows, unsaved, saved, size = check.row_count, 0, time.monotonic(), SIZES[0]
        found = Found(check)
        while True:
            begun = time.monotonic()
            piece = await self._checks.look(check, position, size)
            if piece.suspects:
                found.add(await self._checks.confirm(piece.suspects))
            rows, unsaved = rows + piece.rows, unsaved + piece.rows
            progress(position.walk, rows, found.total)
            took = time.monotonic() - begun
            if piece.then is None:
                break
            position = piece.then
            if found.new or time.monotonic() - saved > SAVE:
                if not await self._checks.advance(check, position, unsaved, found.taken(), LEASE):
                    raise _taken()
                unsaved, saved = 0, time.monotonic()
            size = max(SIZES[0], min(SIZES[1], size * 2, int(size * PIECE / max(took, 1e-4))))
            await asyncio.sleep(took if self._pause else 0)
        ended = await self._checks.end(check, unsaved, found.taken())
        if ended is None:
            raise _taken()
        return ended

    @contextlib.asynccontextmanager
    async def _renewed(self, check: Check) -> AsyncIterator[None]:
        """Renew the lease: one step may take longer than it."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(LEASE / 3)
                with contextlib.suppress(HookledgerError):  # the next step fails, too
                    await self._checks.renew(check, LEASE)

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Found:
    """What a check has found: in all, and since it was stored last."""

    def __init__(self, check: Check) -> None:
        self._samples = {one.kind: list(one.sample) for one in check.violations}
        self.total: int = sum(one.count for one in check.violations)
        self.new: dict[str, int] = {}

    def add(self, confirmed: list[Suspect]) -> None:
        for one in confirmed:
            sample = self._samples.setdefault(one.rule, [])
            if len(sample) < SAMPLE and one.id not in sample:
                sample.append(one.id)
            self.new[one.rule] = self.new.get(one.rule, 0) + 1
        self.total += len(confirmed)

    def taken(self) -> list[Violation]:
        """Return what is new, to be stored."""
        found = [Violation(rule, count, tuple(self._samples[rule])) for rule, count in self.new.items()]
        self.new = {}
        return found


def _taken() -> WrongState:
    return WrongState("another process took over the consistency check: its result is the one that counts")


# ── services ──


def checker(context: Context, *, pause: bool = True) -> Checker:
    """Return a checker that follows the settings."""
    return Checker(context.store, context.consistency, context.clock, worker_name(), pause=pause)


async def last_checks(context: Context, most: int = 1) -> list[Check]:
    """Return the last checks of each kind, the newest first."""
    return await context.store.checks.last(most)


async def standing(context: Context) -> Standing:
    """Return what the checks say of the inbox now."""
    return await context.store.checks.standing()
