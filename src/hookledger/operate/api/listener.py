"""The operator listener's application: health checks and the API, with their own store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ...errors import ConfigError, HookledgerError, Unavailable
from ...observe.metrics.process import ProcessMetrics
from ...receive import respond
from ...receive.client import rate_limit_key
from ...receive.health import ALIVE, Readiness
from ...receive.request import Receive, Scope, Send
from ...receive.secrets import text_of
from ...store.opening import Opener, PerLoop
from ..alerts.sender import AlertSender
from ..context import Context
from ..doctor import proof
from ..gauges import DatabaseGauges
from ..health import Receiver, WorkersWatch
from ..metrics import METRICS, MetricsPage
from .auth import Role, Tokens, token
from .schema import ROOT

if TYPE_CHECKING:
    from ...inbox import Inbox
    from .app import Api

log: logging.Logger = logging.getLogger(__name__)


PAUSE = 5.0
"""Seconds between two attempts to open the store, for alerts."""


async def ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def load_tokens(inbox: Inbox) -> Tokens:
    """Return the tokens in the settings; ConfigError if one is unsafe."""
    given = inbox.settings.operator.tokens
    return Tokens([token(one.name, Role(one.role), text_of(one.token, f"token {one.name!r}")[0]) for one in given])


class Operator:
    """An ASGI application with its own connections, so that no acknowledgement waits for a query. The store opens
    when the server starts, or at the first request."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.tokens: Tokens = load_tokens(inbox)
        self._api: Api | None = None
        self._opener = Opener(inbox.store)
        self._opened: PerLoop[tuple[Context, Readiness, WorkersWatch]] = PerLoop()
        self._answering: set[asyncio.Task[object]] = set()
        self.metrics: ProcessMetrics = ProcessMetrics("api")
        """Of this process."""
        self.other_processes: Mapping[str, str] = {}
        """The Unix sockets of other processes whose metrics are joined with ours, by kind."""
        self._pages: PerLoop[tuple[MetricsPage, DatabaseGauges]] = PerLoop()
        self.receiver: Receiver | None = None
        """The receiver whose health is reported; None: that of the API's own store."""

    async def start(self) -> tuple[Context, Readiness, WorkersWatch]:
        """Open the store; Unavailable while the database is down."""
        return self._opened.here() or await self._opened.open(self._open)

    async def _open(self, stack: contextlib.AsyncExitStack) -> tuple[Context, Readiness, WorkersWatch]:
        self._inbox.read_secrets(required=False)
        store = await self._opener.open(stack)
        readiness = Readiness(store.health, rejected=lambda: self._inbox.asgi.rejected)
        context = self._inbox.context(store)
        return context, readiness, WorkersWatch(lambda: proof.workers(context))

    async def stop(self) -> None:
        await self._pages.close()
        await self._opened.close()

    async def send_alerts(self) -> None:
        """Send alerts until cancelled, beside workers that do so, too: without a worker, this is who says so."""
        while True:
            try:
                context, _, _ = await self.start()
            except HookledgerError:
                await asyncio.sleep(PAUSE)
            else:
                return await AlertSender(context).run()

    def cut_off(self) -> int:
        """Cancel running requests; returns their number."""
        for task in self._answering:
            task.cancel()
        return len(self._answering)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            task = asyncio.current_task()
            assert task is not None
            self._answering.add(task)
            try:
                await self._answer({**scope, "client": self._client(scope)}, receive, send)
            finally:
                self._answering.discard(task)

    def _client(self, scope: Scope) -> tuple[str, int]:
        """Return the client that limits count: behind a trusted proxy, the forwarded address."""
        peer = scope["client"][0] if scope.get("client") else None
        client = self._inbox.settings.intake.proxies.client(peer, tuple(scope["headers"]))
        return rate_limit_key(client), 0

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == ROOT or path.startswith(f"{ROOT}/"):
            await self._served()(scope, receive, send)
        elif path == METRICS:
            await respond.send(await self._all_metrics(), send)
        else:
            await respond.send(await self.health(path), send)

    async def _all_metrics(self) -> respond.Response:
        from ...observe.metrics.samples import CONTENT_TYPE

        page, _ = await self._pages.open(self._open_page)
        return respond.Response(200, (await page.text()).encode(), (("content-type", CONTENT_TYPE),))

    async def database_metrics(self) -> str:
        """Return the metrics that the database knows, as Prometheus reads them."""
        from ...observe.metrics.samples import in_text

        _, gauges = await self._pages.open(self._open_page)
        return in_text(await gauges.samples())

    async def _open_page(self, stack: contextlib.AsyncExitStack) -> tuple[MetricsPage, DatabaseGauges]:
        del stack
        gauges = DatabaseGauges(self._context)
        return MetricsPage(self.metrics, gauges, self.other_processes), gauges

    async def health(self, path: str) -> respond.Response:
        """Return the answer to a health check; 404 for any other path."""
        answered = await self._receivers(path)
        if isinstance(answered, tuple) and answered[0] == 200 and path == "/readyz":
            # A failure here must not make a ready receiver appear not ready.
            with contextlib.suppress(HookledgerError, TimeoutError, msgspec.DecodeError):
                _, _, workers = await self.start()
                answered = await workers.add(*answered)
        return answered if isinstance(answered, respond.Response) else respond.health(answered)

    async def _receivers(self, path: str) -> respond.Response | tuple[int, bytes] | None:
        """Return the receiver's health; without a receiver, our own."""
        if self.receiver is not None:
            return await self.receiver.answer(path)
        if path == "/healthz":
            return respond.Response(200, ALIVE)  # the process is alive, whatever the database does
        try:
            _, readiness, _ = await self.start()
        except Unavailable as error:
            log.warning("cannot open the store: %s", error)
            return respond.unavailable()
        return await readiness.answer(path, why=True)

    def _served(self) -> Api:
        if self._api is None:
            try:
                from .app import Api
            except ImportError as error:
                raise ConfigError("the API is not installed: pip install 'hookledger[server]'") from error
            self._api = Api(self.tokens, self._context)
        return self._api

    async def _context(self) -> Context:
        context, _, _ = await self.start()
        return context

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        alerting: asyncio.Task[None] | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                with contextlib.suppress(HookledgerError):  # the first request tries again, and reports why not
                    await self.start()
                alerting = asyncio.create_task(self.send_alerts())
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if alerting is not None:
                    await ended(alerting)
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
