"""One physical call: make it, and say in one of three words how it ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable, iscoroutine
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from ..errors import BadArguments, BadResult, HandlerEnded
from ..observe import lines
from ..observe.lines import Line
from ..observe.logs import about
from ..observe.second_connection import in_handler
from ..observe.spans import calling, ended
from ..observe.watchdog import Busy
from ..retry import clean, is_refused, message_of
from ..states import CallOutcome, EffectKind
from .model import Effect, Happened, Op, Performance, is_async
from .thread import in_a_thread

log: logging.Logger = logging.getLogger(__name__)


_performing: WeakKeyDictionary[asyncio.Task[Any], Performance] = WeakKeyDictionary()


def performed_by(task: asyncio.Task[Any] | None) -> Performance | None:
    """Which effect a task performs, or checks. Called in the watchdog's thread."""
    return None if task is None else _performing.get(task)


def busy_with(effect: Performance) -> Busy:
    """Return what the watchdog says of a task that performs this effect."""
    facts = {"event_id": str(effect.event_id), "effect": effect.name, "effect_key": effect.key}
    return Busy(f"in effect {effect.name} {effect.key!r} of event {effect.event_id}", facts)


@contextmanager
def _checking(what: Performance) -> Iterator[None]:
    task = asyncio.current_task()
    assert task is not None
    _performing[task] = what
    try:
        yield
    finally:
        del _performing[task]


class Ending(Struct, frozen=True):
    """How a call ended."""

    outcome: CallOutcome
    result: bytes | None = None
    error: BaseException | None = None

    @property
    def words(self) -> str | None:
        if self.error is None:
            return None
        return clean(f"{type(self.error).__name__}: {message_of(self.error)}", 2_000)


async def perform(
    effect: Effect[Any, Any], what: Performance, late: Callable[[Ending], None] = lambda ending: None
) -> Ending:
    """Make the call. Never raises: everything that can happen has a word.

    `late` is told how a function ended that overran its timeout. An async one has the grace for that, because its
    answer may be there already when a stopped process continues; a thread cannot be stopped at all.
    """
    op = Op(what)
    facts = about(effect=effect.name, effect_key=what.key, op_key=op.key, correlation_id=op.correlation_id)
    with facts, in_handler(None), calling(effect.name, what.event_id, what.number, what.traceparent) as span:
        ending = await _perform(effect, what, late)
    if span is not None:
        ended(span, ending.outcome.value, ending.error)
    return ending


async def _perform(effect: Effect[Any, Any], what: Performance, late: Callable[[Ending], None]) -> Ending:
    try:
        arguments = effect.arguments(what.arguments)
        if effect.policy.ask_first and (found := await ask(effect, what)) not in (False, None):
            return _ended(effect, found.result if isinstance(found, Happened) else None)
    except BaseException as error:
        return Ending(CallOutcome.REFUSED, error=error)  # nothing was sent yet
    began = time.perf_counter()
    ending = await _call(effect, what, arguments, late)
    effect.counts.calls[ending.outcome] += 1
    effect.counts.seconds.observe(time.perf_counter() - began)
    return ending


async def _call(
    effect: Effect[Any, Any], what: Performance, arguments: dict[str, Any], late: Callable[[Ending], None]
) -> Ending:
    try:
        running = _begin(effect, what, arguments)
        async with asyncio.timeout(effect.policy.timeout) as limit:
            try:
                return _ended(effect, await asyncio.shield(running))
            except asyncio.CancelledError:
                if running.cancelled():  # by its own code
                    raise
                if running.done():
                    return _of(effect, running)
                running.add_done_callback(lambda done: None if done.cancelled() else late(_of(effect, done)))
                if isinstance(running, asyncio.Task):
                    grace = effect.policy.grace if limit.expired() else 0.0
                    asyncio.get_running_loop().call_later(grace, running.cancel)
                raise
    except BaseException as error:
        return _failed(error)


def _begin(effect: Effect[Any, Any], what: Performance, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    function: Callable[..., Any] = effect.function
    op = Op(what)

    async def run() -> Any:
        try:
            return await function(op, **arguments)
        except SystemExit as error:  # in a task it would end the worker
            raise HandlerEnded(f"the effect called sys.exit({error.code!r})") from error

    if is_async(function):
        task = asyncio.create_task(run())
        _performing[task] = what
        return task
    return in_a_thread(lambda: _plainly(function, op, arguments), "hookledger-effect")


def _plainly(function: Callable[..., Any], op: Op, arguments: dict[str, Any]) -> Any:
    """A plain function that wraps an async one returns what was never awaited: nothing was sent."""
    result = function(op, **arguments)
    if isawaitable(result):
        if iscoroutine(result):
            result.close()
        raise BadArguments("the function is plain and returned something to await: declare it with async def")
    return result


async def ask(effect: Effect[Any, Any], what: Performance) -> Happened | bool | None:
    """What the effect's check finds; None when it cannot tell, or fails."""
    assert effect.checker is not None
    op, arguments = Op(what), effect.arguments(what.arguments)
    checker: Callable[..., Any] = effect.checker
    try:
        async with asyncio.timeout(effect.policy.timeout):
            if is_async(checker):
                with _checking(what):
                    found = await checker(op, **arguments)
            else:
                found = await in_a_thread(lambda: _plainly(checker, op, arguments), "hookledger-check")
    except (Exception, SystemExit) as error:
        log.warning("the check of effect %s failed: %s: %s", effect.name, type(error).__name__, message_of(error))
        return None
    if found is True:
        return Happened()
    if found is None or found is False or isinstance(found, Happened):
        return found
    log.error("the check of effect %s returned %r: neither True, False, None nor Happened(…)", effect.name, found)
    return None


def _of(effect: Effect[Any, Any], done: asyncio.Future[Any]) -> Ending:
    error = done.exception()
    return _failed(error) if error else _ended(effect, done.result())


def _ended(effect: Effect[Any, Any], result: Any) -> Ending:
    """The call came back; a result that cannot be kept does not undo that."""
    try:
        return Ending(CallOutcome.DONE, effect.keep_result(result))
    except BadResult as error:
        return Ending(CallOutcome.DONE, error=error)


LINES: dict[CallOutcome, Line] = {
    CallOutcome.DONE: lines.EFFECT_MADE,
    CallOutcome.REFUSED: lines.EFFECT_FAILED,
    CallOutcome.UNKNOWN: lines.EFFECT_UNKNOWN,
}


def tell_call(what: Performance, ending: Ending, kind: EffectKind) -> None:
    """Log that a call ended."""
    line = LINES[ending.outcome]
    if lines.wanted(line.level):
        lines.tell(line, **call_facts(what, ending, kind))


def call_facts(what: Performance, ending: Ending, kind: EffectKind) -> dict[str, Any]:
    """Return what the log line of a call that ended has."""
    facts = {"effect": what.name, "effect_key": what.key, "op_key": Op(what).key, "kind": kind.value}
    return {**facts, "call": what.number, "error": ending.words}


def _failed(error: BaseException) -> Ending:
    """Refused if it was certainly not done: no connection, a 4xx response other than 408 and 499, `Refused` or
    `Permanent` raised by the function. Unknown for everything else: a timeout, a reset, a 5xx response, a cancelled
    call, any other exception.
    """
    refused = isinstance(error, BadArguments) or is_refused(error)
    return Ending(CallOutcome.REFUSED if refused else CallOutcome.UNKNOWN, error=error)
