"""What the operator's listener serves: health checks and the API, on a store of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from .declared import Declarations
from .errors import ConfigError, HookledgerError, Unavailable
from .examine import Examiner
from .operate.actions import Actions
from .operate.api.auth import Role, Token, Tokens, token
from .operate.health import ALIVE, Readiness, Receiver
from .operate.insight import Insight
from .providers.schemes.base import Where
from .receive import respond
from .receive.endpoint import text_of
from .receive.request import Receive, Scope, Send
from .retention import Pruned
from .store.opening import Opener
from .store.protocol import Store

if TYPE_CHECKING:
    from .inbox import Inbox
    from .operate.api.app import Api

log = logging.getLogger(__name__)

API = "/api"


def load_tokens(inbox: Inbox) -> Tokens:
    """Of the settings; ConfigError where one cannot be relied on."""
    return Tokens([_token(one.name, one.role, one.token) for one in inbox.settings.operator.tokens])


def _token(name: str, role: str, source: str) -> Token:
    return token(name, Role(role), text_of(source, f"token {name!r}")[0])


class Fetches:
    """Fetches published keys on the intake's loop while that runs: what many ask for at once is fetched once."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def fetch(self, where: Where, *, again: bool = False, who: str = "") -> None:
        home = self._inbox.asgi.loop
        fetching = self._inbox.keyring.fetch(where, again=again, who=who)
        if home is None or home is asyncio.get_running_loop():
            await fetching
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fetching, home))

    async def visit(self, url: str) -> None:
        await self._inbox.keyring.visit(url)


class Services:
    """What the API's calls are made of."""

    def __init__(self, inbox: Inbox, store: Store) -> None:
        self._inbox = inbox
        self._store = store
        examiner = Examiner(inbox.sources, Fetches(inbox))
        self.insight = Insight(store, examiner, Declarations(inbox.routes, inbox.effects))
        self.lease: float = inbox.settings.work.lease

    def actions(self, actor: str) -> Actions:
        return Actions(self._store, actor, self.insight)

    async def prune(
        self, actor: str, reason: str, *, source: str | None, anew: bool, dry: bool, told: Callable[[Pruned], None]
    ) -> None:
        pruner = self._inbox.pruner(self._store)
        await pruner.round(source=source, anew=anew, dry=dry, actor=actor, reason=reason, progress=told)

    def check_result(self, effect: str, value: object) -> None:
        declared = self._inbox.effects.find(effect)
        if declared is not None:
            declared.keep_result(value)


class Operator:
    """An ASGI application. It shares no connection with the intake, so that no ack waits for a reading to end; the
    store is opened when the server starts, or at the first request.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.tokens = load_tokens(inbox)
        self._api: Api | None = None
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._opener = Opener(inbox.store)
        self._services: Services | None = None
        self._readiness: Readiness | None = None
        self._answering: set[asyncio.Task[object]] = set()
        self.receiver: Receiver | None = None
        """Whose health the checks tell; without one they tell of the store that the API uses."""

    async def start(self) -> None:
        """Raises Unavailable while there is no database."""
        async with self._opening:
            if self._services is not None:
                return
            store = await self._opener.open(self._stack)
            self._readiness = Readiness(store.health, rejected=lambda: self._inbox.asgi.rejected)
            self._services = Services(self._inbox, store)

    async def stop(self) -> None:
        await self._stack.aclose()
        self._services = self._readiness = None

    def cut_off(self) -> int:
        """Cancel what is being answered; returns how much it was."""
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
                await self._answer(scope, receive, send)
            finally:
                self._answering.discard(task)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == API or path.startswith(f"{API}/"):
            await self._served()(scope, receive, send)
        else:
            await respond.send(await self._health(path), send)

    async def _health(self, path: str) -> respond.Response:
        if self.receiver is not None:
            return respond.found(await self.receiver.answer(path))
        if path == "/healthz":
            return respond.Response(200, ALIVE)  # the process is, whatever the database is
        try:
            await self.start()
        except Unavailable as error:
            log.warning("the store cannot be opened: %s", error)
            return respond.unavailable()
        assert self._readiness is not None
        return respond.found(await self._readiness.answer(path))

    def _served(self) -> Api:
        if self._api is None:
            try:
                from .operate.api.app import Api
            except ImportError as error:
                raise ConfigError("the API needs starlette: pip install 'hookledger[server]'") from error
            self._api = Api(self.tokens, self._opened)
        return self._api

    async def _opened(self) -> Services:
        await self.start()
        assert self._services is not None
        return self._services

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                with contextlib.suppress(HookledgerError):  # the first request opens it, or says why not
                    await self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return
