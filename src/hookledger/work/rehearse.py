"""Rehearsals: a worker runs a handler, answers its effects from the ledger, and rolls everything back.

Nothing is claimed and no event is touched: the same event may be processed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from uuid import UUID

import msgspec

from ..errors import HandlerCommitted, HookledgerError, Unavailable
from ..model import Claimed, History, Outcome
from ..rehearsals import DIED, Ended, Rehearsal, Result, Write
from ..store.protocol import Store
from ..store.rehearsals import RehearsalTransaction
from . import outcome as ways
from .answers import Answers
from .circuit import Breakers
from .declare import Effects
from .effects import AttemptEffects
from .handle import Defaults
from .route import Handler, Routes
from .run import Runner

log = logging.getLogger(__name__)

LIMIT = 30.0
"""Seconds that a rehearsal may take, however long its handler may."""
LOOK = 0.5
"""Seconds between two looks for something to rehearse."""
MARGIN = 5.0
"""Seconds after that, before nobody believes in it any more."""
SEALED = "nothing was written, unless it asked for that by READ WRITE or AND CHAIN, or removed the guard"
"""What is known of a handler that ended its transaction on a connection that can only read."""
ENDS = {
    "complete": Ended.PROCESSED,
    "skip": Ended.SKIPPED,
    "reschedule": Ended.WOULD_RETRY,
    "wait": Ended.WOULD_RETRY,
    "fail": Ended.WOULD_FAIL,
    "review": Ended.NEEDS_REVIEW,
}


class Rehearser:
    """One rehearsal at a time, beside a worker's own slots. A worker without rehearsable handlers never looks."""

    def __init__(
        self,
        store: Store,
        routes: Routes,
        effects: Effects,
        runner: Runner,
        breakers: Breakers,
        settings: Defaults,
        worker: str,
    ) -> None:
        self._store = store
        self._routes = routes
        self._declared = effects
        self._runner = runner
        self._breakers = breakers
        self._settings = settings
        self._worker = worker

    async def run(self) -> None:
        """Until cancelled."""
        while any(handler.rehearsable for handler in self._routes.all()):
            try:
                while await self.look():
                    pass
            except HookledgerError as error:
                log.warning("nothing rehearsed: %s", error)
            except Exception:  # whatever it is, the next one may be rehearsed
                log.exception("a defect in a rehearsal")
            await asyncio.sleep(LOOK)

    async def look(self) -> bool:
        """Take what was asked for first of what we can rehearse, and rehearse it; whether there was anything."""
        await self._store.rehearsals.lapse()
        for ident, kind in await self._store.rehearsals.asked():
            handler = self._routes.find(kind)
            if handler is None or not handler.rehearsable:
                continue
            limit = self._limit(handler)
            taken = await self._store.rehearsals.take(ident, self._worker, limit + 2 * MARGIN)
            if taken is not None:
                await self._one(handler, taken, limit)
                return True
        return False

    def _limit(self, handler: Handler) -> float:
        return min(LIMIT, self._settings.timeout if handler.timeout is None else handler.timeout)

    async def _one(self, handler: Handler, rehearsal: Rehearsal, limit: float) -> None:
        try:
            result = await self._rehearse(handler, rehearsal, limit)
        except BaseException as error:
            told = DIED
            if isinstance(error, Exception):
                told = Result(Ended.REFUSED, f"it could not be rehearsed: {error}"[:500], writes=None)
            await asyncio.shield(self._finish(rehearsal.id, told, failed=True))
            raise
        await self._finish(rehearsal.id, result, failed=result.ended is Ended.REFUSED)

    async def _finish(self, ident: UUID, result: Result, *, failed: bool) -> None:
        if not await self._store.rehearsals.finish(ident, self._worker, result, failed=failed):
            log.warning("rehearsal %s took too long: nobody waits for it any more", ident)

    async def _rehearse(self, handler: Handler, rehearsal: Rehearsal, limit: float) -> Result:
        history = await self._store.history(rehearsal.event_id)
        if history is None or history.request is None:
            return Result(Ended.REFUSED, "the bytes of the event are not kept any more: there is nothing to process")
        claimed = next_run(history)
        repeat = {bytes.fromhex(identity) for identity in rehearsal.repeat}
        library = self._runner.library(handler)
        tx = self._store.rehearsals.transaction(library.adapter() if library else None, limit, repeat)
        answers = Answers(self._store.ledger, self._breakers, tx, repeat)
        log.info("rehearsal of event %s for %s", claimed.id, rehearsal.actor)
        result = await self._run(handler, claimed, tx, answers, limit, begin=library is not None)
        if result.alert:
            log.error("ALERT rehearsal of event %s: %s", claimed.id, result.alert)
        return msgspec.structs.replace(result, run=claimed.run, steps=tuple(answers.steps))

    async def _run(
        self,
        handler: Handler,
        claimed: Claimed,
        tx: RehearsalTransaction,
        answers: Answers,
        limit: float,
        *,
        begin: bool,
    ) -> Result:
        effects = AttemptEffects(claimed, answers, answers, self._declared.find, lambda: True, transaction=True)
        time_out, abandoned, begun, committing = asyncio.timeout(limit), True, False, False
        try:
            async with time_out:
                if begin:
                    await tx.begin()
                begun = True
                outcome = await self._runner.run(handler, claimed, tx, effects, _nothing_to_renew, rehearsal=True)
                committing = tx.begun and answers.stop is None
                if committing:
                    await tx.conclude()
            abandoned = False
            return await self._ended(tx, answers, outcome)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            abandoned = handler.plain and time_out.expired()  # its thread cannot be stopped
            if time_out.expired() and answers.stop is None:
                words = f"it took longer than {limit:g} s"
                return Result(Ended.TIMED_OUT, words, writes=None if abandoned else await _written(tx))
            if not begun:
                return Result(Ended.REFUSED, f"its transaction cannot be begun: {error}"[: ways.MAX_REASON])
            result = await self._raised(handler, claimed, tx, answers, error)
            return msgspec.structs.replace(result, words=f"at the commit: {result.words}") if committing else result
        finally:
            await asyncio.shield(tx.rollback(abandoned=abandoned))

    async def _ended(self, tx: RehearsalTransaction, answers: Answers, outcome: Outcome) -> Result:
        """The handler returned."""
        if answers.stop is not None:  # and caught what ended it
            return _stopped(answers)
        words = "it would be processed" if outcome.result is None else f"it would be processed: {outcome.result}"
        return Result(ENDS[outcome.transition], words[: ways.MAX_REASON], writes=await _written(tx))

    async def _raised(
        self, handler: Handler, claimed: Claimed, tx: RehearsalTransaction, answers: Answers, error: BaseException
    ) -> Result:
        if answers.stop is not None:
            return _stopped(answers)
        links = list(_chain(error))
        if outage := next((link for link in links if isinstance(link, Unavailable)), None):
            return Result(Ended.REFUSED, str(outage)[: ways.MAX_REASON], writes=None)
        if any(tx.refused_commit(link) for link in links):
            refused = "it commits by itself. The database refused that, and nothing was written"
            return Result(Ended.NEEDS_REVIEW, refused, writes=None, alert=f"{handler.name}: {refused}")
        alert = None
        if isinstance(error, HandlerCommitted) or await tx.ended():
            after = SEALED if tx.sealed else "what it wrote after that HAS BEEN WRITTEN, unless undone"
            alert = f"{handler.name} ended its transaction by itself: {after}"
        if limited := next(filter(None, map(tx.limited, links)), None):
            words = f"{limited}: a real run may wait longer"
            return Result(Ended.TIMED_OUT, words, writes=await _written(tx), alert=alert)
        way = ways.failed(claimed, handler, self._settings, error)
        return Result(ENDS[way.transition], way.reason or "", writes=await _written(tx), alert=alert)


def next_run(history: History) -> Claimed:
    """The event as the first attempt of a replay would see it."""
    event, request = history.event, history.request
    assert request is not None
    return Claimed(
        event.id,
        event.claim,
        event.source,
        event.type,
        event.key,
        event.key_origin,
        event.provider_id,
        event.object_id,
        event.occurred_at,
        event.received_at,
        event.run + 1,
        attempts=1,
        snoozes=0,
        crashes=min(event.crashes, 2),
        run_age=0.0,
        item=event.item,
        headers=request.headers,
        query=request.query,
        body=request.body,
    )


def _stopped(answers: Answers) -> Result:
    assert answers.stop is not None
    return Result(Ended.STOPPED, f"{answers.stop.label} {answers.stop.why}", writes=answers.until_there)


async def _written(tx: RehearsalTransaction) -> tuple[Write, ...] | None:
    """Not known from a connection that does not answer."""
    try:
        async with asyncio.timeout(MARGIN):
            return await tx.writes()
    except TimeoutError:
        return None


async def _nothing_to_renew() -> None:
    """There is no claim."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it came from."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
