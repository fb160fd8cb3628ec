"""What the operator's listener serves: health checks and the API, on a store of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from .declared import Declarations
from .errors import ConfigError, HookledgerError, Unavailable
from .examine import Examiner
from .operate import proof
from .operate.actions import Actions
from .operate.api.auth import Role, Token, Tokens, token
from .operate.health import ALIVE, Readiness, Receiver, WorkersWatch
from .operate.insight import Insight
from .providers.schemes.base import Where
from .receive import respond
from .receive.client import rate_limited_as
from .receive.request import Receive, Scope, Send
from .receive.secrets import text_of
from .store.opening import Opener, PerLoop
from .store.ops.pruning import Pruned
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

    async def fetch(self, where: Where, *, provider: str, again: bool = False, who: str = "") -> None:
        home = self._inbox.asgi.loop
        fetching = self._inbox.keyring.fetch(where, provider=provider, again=again, who=who)
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


class Operator:
    """An ASGI application. It shares no connection with the intake, so that no ack waits for a reading to end; the
    store is opened when the server starts, or at the first request.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.tokens = load_tokens(inbox)
        self._api: Api | None = None
        self._opener = Opener(inbox.store)
        self._opened: PerLoop[tuple[Services, Readiness, WorkersWatch]] = PerLoop()
        self._answering: set[asyncio.Task[object]] = set()
        self.receiver: Receiver | None = None
        """Whose health the checks tell; without one they tell of the store that the API uses."""

    async def start(self) -> tuple[Services, Readiness, WorkersWatch]:
        """Raises Unavailable while there is no database."""
        return self._opened.here() or await self._opened.open(self._open)

    async def _open(self, stack: contextlib.AsyncExitStack) -> tuple[Services, Readiness, WorkersWatch]:
        self._inbox.read_secrets(required=False)
        store = await self._opener.open(stack)
        readiness = Readiness(store.health, rejected=lambda: self._inbox.asgi.rejected)
        services = Services(self._inbox, store)
        return services, readiness, WorkersWatch(lambda: proof.workers(services.insight, services.lease))

    async def stop(self) -> None:
        await self._opened.close()

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
                await self._answer({**scope, "client": self._client(scope)}, receive, send)
            finally:
                self._answering.discard(task)

    def _client(self, scope: Scope) -> tuple[str, int]:
        """What limits count: behind a trusted proxy, whom it speaks for."""
        peer = scope["client"][0] if scope.get("client") else None
        client = self._inbox.settings.intake.proxies.client(peer, tuple(scope["headers"]))
        return rate_limited_as(client), 0

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == API or path.startswith(f"{API}/"):
            await self._served()(scope, receive, send)
        else:
            await respond.send(await self._health(path), send)

    async def _health(self, path: str) -> respond.Response:
        answered = await self._receivers(path)
        if isinstance(answered, tuple) and answered[0] == 200 and path == "/readyz":
            # What goes wrong here is no reason to call a receiver that is ready anything else.
            with contextlib.suppress(HookledgerError, TimeoutError, msgspec.DecodeError):
                _, _, workers = await self.start()
                answered = await workers.add(*answered)
        return answered if isinstance(answered, respond.Response) else respond.found(answered)

    async def _receivers(self, path: str) -> respond.Response | tuple[int, bytes] | None:
        """How the receiver is; without one, how we are."""
        if self.receiver is not None:
            return await self.receiver.answer(path)
        if path == "/healthz":
            return respond.Response(200, ALIVE)  # the process is, whatever the database is
        try:
            _, readiness, _ = await self.start()
        except Unavailable as error:
            log.warning("the store cannot be opened: %s", error)
            return respond.unavailable()
        return await readiness.answer(path, why=True)

    def _served(self) -> Api:
        if self._api is None:
            try:
                from .operate.api.app import Api
            except ImportError as error:
                raise ConfigError("the API needs starlette: pip install 'hookledger[server]'") from error
            self._api = Api(self.tokens, self._services)
        return self._api

    async def _services(self) -> Services:
        services, _, _ = await self.start()
        return services

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
