"""Looks for what people are to be told, and sends it: one task for each target, in every `work` and `api` process.

The processes share the work through the database: one at a time looks for a target, and a message has a lease while
it is sent. A crash between sending and recording that is the one gap in which a message can be sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import UTC, datetime

from ...errors import HookledgerError
from ...observe.logs import RateLimitedLogger
from ...receive.reasons import UNPROVED
from ...receive.secrets import MISSING
from ...store.ops.alert_looks import AlertKind, digest
from ...store.ops.alert_messages import Message, Sight, Watch
from ...work.settings import worker_name
from ..context import Context
from .messages import targets
from .targets import PATIENCE, NotSent, Target
from .words import alert

log: logging.Logger = logging.getLogger(__name__)

SOON = 14 * 86400.0
FIRST_DELAY, MAX_DELAY = 2.0, 600.0
"""Seconds before the second attempt, doubled for each further one, up to ten minutes."""
LEASE = 10.0
"""Seconds beyond the time that one attempt may take."""
LAST = 30.0
"""Seconds for the last round of a process that ends."""
MAX_ROUND = 50
"""Messages that a target gets in one round, at most."""
PRUNE = 3600.0
"""Seconds between two deletions of old messages,"""
BATCH = 500
"""and how many go in one transaction."""


class AlertSender:
    """Sends to every target that this process knows, until cancelled."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.store
        self._settings = context.alerts
        self._worker = worker_name()
        self._seldom = RateLimitedLogger(log, every=60.0)

    async def run(self) -> None:
        found, problems = targets(self._context)
        for words in problems:
            log.error("alerts: %s", words)
        # Without a target, too, or what was made for one that was removed would stay.
        await asyncio.gather(*(self._serve(target) for target in found), self._prune())

    async def last_round(self) -> None:
        """Look and send once more, for a process that ends when nothing is due. It never fails."""
        try:
            async with asyncio.timeout(LAST):
                await asyncio.gather(*(self.round(target) for target in targets(self._context)[0]))
        except HookledgerError as error:
            log.warning("alerts: %s", error)
        except TimeoutError:
            log.warning("alerts: a target took too long; the next process sends what is left")
        except Exception:
            log.exception("alerts: internal error")

    async def _serve(self, target: Target) -> None:
        """Look and send. A target that fails delays no other."""
        interval = float(self._settings.interval)
        while True:
            try:
                await self.round(target)
            except HookledgerError as error:
                self._seldom.warning("alerts to %s: %s", target.name, error)
            except Exception:
                log.exception("alerts to %s: internal error", target.name)
            await asyncio.sleep(interval * random.uniform(0.8, 1.2))  # noqa: S311 - spreads the looks of processes

    async def round(self, target: Target) -> None:
        """Look once, and send what is due."""
        watch = self.watch(target)
        if await self._store.alert_looks.anything(watch):
            await self._store.alert_looks.look(watch)
        for _ in range(MAX_ROUND):
            if not await self._store.alert_messages.any_due(target.name):
                return
            lease = PATIENCE * float(self._settings.timeout) + LEASE
            for message in await self._store.alert_messages.take(target.name, self._worker, lease, 1):
                await self._send(target, message)

    def watch(self, target: Target) -> Watch:
        settings = self._settings
        return Watch(
            target.name,
            target.kinds,
            float(settings.window),
            settings.topics,
            max(float(settings.no_worker_after), self._context.lease),
            settings.signature_failures,
            tuple(UNPROVED),
            expiring(self._context),
        )

    async def _send(self, target: Target, message: Message) -> None:
        if message.attempts > self._settings.attempts:  # by a process that died each time
            await self._store.alert_messages.not_sent(message, "the sending process ended before the answer", None)
            return
        try:
            await target.send(alert(message, self._settings.name))
        except (NotSent, HookledgerError) as error:
            await self._not_sent(target, message, error)
            return
        await self._store.alert_messages.sent(message)
        log.info("alert sent to %s: %s", target.name, message.kind)

    async def _not_sent(self, target: Target, message: Message, error: Exception) -> None:
        delay: float | None = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(message.attempts - 1, 20))
        asked = error.retry_in if isinstance(error, NotSent) else None
        if delay is not None and asked is not None:
            delay = min(MAX_DELAY, max(delay, asked))
        if message.attempts >= self._settings.attempts:
            delay = None
        await self._store.alert_messages.not_sent(message, str(error), delay)
        then = "it has failed for good" if delay is None else f"next attempt in {delay:.0f} s"
        self._seldom.warning("alert not sent to %s, %s: %s", target.name, then, error)

    async def _prune(self) -> None:
        while True:
            try:
                await self.prune()
            except HookledgerError as error:
                self._seldom.warning("alerts: old messages not deleted: %s", error)
            except Exception:  # alerts are sent even so
                log.exception("alerts: old messages not deleted: internal error")
            await asyncio.sleep(PRUNE)

    async def prune(self) -> None:
        """Delete messages older than `keep`."""
        keep = float(self._settings.keep)
        before = self._context.clock.time() - keep
        deleted = False
        while old := await self._store.alert_messages.old(before, BATCH):
            await self._store.alert_messages.prune(old)
            deleted = True
            await asyncio.sleep(0.05)
        if deleted:
            await self._store.alert_looks.prune(keep)


def expiring(context: Context) -> tuple[Sight, ...]:
    """Return the sources whose last secret expires soon, or has. A process without a secret cannot tell."""
    now = context.clock.time()
    found = []
    for name in context.sources.names:
        expiries = [secret.expires_at for secret in context.sources.endpoint(name).secrets]
        ends = [moment for moment in expiries if moment is not None]
        if not ends or len(ends) < len(expiries) or MISSING in ends or max(ends) > now + SOON:
            continue
        last, over = max(ends), max(ends) <= now
        moment = datetime.fromtimestamp(last, UTC)
        words = f"the last secret expires on {moment:%Y-%m-%d %H:%M} UTC"
        if over:
            words = f"the last secret expired on {moment:%Y-%m-%d %H:%M} UTC: all deliveries are rejected"
        ident, at = digest(name, last, over), datetime.fromtimestamp(now, UTC)
        found.append(Sight(AlertKind.SECRET_EXPIRY, name, ident, at, name, None, words))
    return tuple(found)
