"""Alert messages: what was sent and what was not, a test of each target, and alerts that code raises."""

from __future__ import annotations

import asyncio
from uuid import UUID

from msgspec import Struct

from ...errors import ConfigError
from ...ids import new_id
from ...store.ops.alert_looks import AlertKind
from ...store.ops.alert_messages import MAX_WORDS, Message, MessageState
from ..context import Context
from .targets import Calls, NotSent, Target, configured
from .words import alert, plain, test_alert


class AlertRow(Struct, frozen=True):
    """A message, and what it says."""

    message: Message
    title: str
    command: str


class TestResult(Struct, frozen=True):
    """Whether one target took a test message."""

    __test__ = False  # no test of pytest's

    target: str
    problem: str | None
    """None: it took it."""


async def messages(
    context: Context,
    *,
    state: MessageState | None = None,
    target: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[AlertRow]:
    """Return messages, the newest first."""
    found = await context.store.alert_messages.page(state=state, target=target, before=before, limit=limit)
    said = [(one, alert(one, context.alerts.name)) for one in found]
    return [AlertRow(one, words.title, words.command) for one, words in said]


async def alert_totals(context: Context) -> dict[MessageState, int]:
    """Return how many messages are in each state, each counted up to 10,000: cheap, for a gauge."""
    return await context.store.alert_messages.totals()


async def raise_(context: Context, kind: AlertKind | str, subject: str, words: str) -> None:
    """Tell everyone who wants alerts of this kind: `subject: words`. It is durable when this returns; the next look
    of each target makes a message of it. Raised again within a window, the two are one message.

    Neither text may quote a payload or a secret.
    """
    try:
        kind = AlertKind(kind)
    except ValueError:
        raise ConfigError(f"unknown kind of alert {kind!r}: it is one of {', '.join(AlertKind)}") from None
    if not words.strip():
        raise ConfigError("an alert needs words")
    await context.store.alert_looks.raise_(kind, plain(subject), plain(words)[:MAX_WORDS])


def targets(context: Context) -> tuple[list[Target], list[str]]:
    """Return the targets that this process can send to, and why it cannot send to others."""
    found: list[Target] = []
    problems: list[str] = []
    for make in configured(context.alerts):
        try:
            found.append(make())
        except ConfigError as error:
            problems.append(str(error))
    limit = float(context.alerts.timeout)
    for one in context.application.alerts:
        if one.name in context.alerts.targets:
            problems.append(
                f"the alert function {one.name!r} and a target in [alerts] have the same name: rename one"
            )
            continue
        found.append(Calls(one.name, one.function, one.kinds, limit))
    return found, problems


async def test(context: Context, only: str | None = None) -> list[TestResult]:
    """Send a test message to each target now, or to one, and say what came of it. Nothing is stored."""
    found, problems = targets(context)
    names = [one.name for one in found]
    if only is not None:
        if only not in {*names, *context.alerts.targets}:
            known = ", ".join(names) or "none: add [alerts.targets.NAME] to hookledger.toml, or @inbox.alert"
            raise ConfigError(f"unknown alert target {only!r}; configured: {known}")
        found = [one for one in found if one.name == only]
        problems = [words for words in problems if f".{only}]" in words or f"{only!r}" in words]
    sent = test_alert(new_id(), context.alerts.name, context.clock.now())

    async def one(target: Target) -> TestResult:
        try:
            await target.send(sent)
        except NotSent as error:
            return TestResult(target.name, str(error))
        except ConfigError as error:
            return TestResult(target.name, str(error))
        return TestResult(target.name, None)

    unusable = [TestResult(_named(words), words) for words in problems]
    return [*await asyncio.gather(*map(one, found)), *unusable]


def _named(problem: str) -> str:
    """Return the target that a problem is about."""
    begin, _, rest = problem.partition("[alerts.targets.")
    return rest.partition("]")[0] if rest else begin.partition("'")[2].partition("'")[0]
