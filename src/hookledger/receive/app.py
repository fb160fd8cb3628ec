"""The intake as a bare callable, no framework in it: request → verify → identify → record → respond."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from ..clock import Clock
from ..errors import Rejected, Unauthentic, Unavailable, UnknownSource, WrongMethod
from ..model import Arrival, Item, Proof, Recorded, Request, new_id, pack_headers
from ..observe.logs import Seldom
from . import respond
from .endpoint import Endpoint
from .identify import identify
from .record import Recorder
from .request import Limits, Receive, Scope, Send, read
from .verify import verify

log = logging.getLogger(__name__)

SKEW_LIMIT = 30.0
"""Seconds between this host's clock and the database's beyond which a stale verdict is not trusted."""


class Intake:
    """Answers one question: is this authentic event safely recorded?

    `skew` tells how far the database's clock is ahead of this host's.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        recorder: Recorder,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        skew: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._endpoints = endpoints
        self._recorder = recorder
        self._limits = limits or Limits()
        self._clock = clock or Clock()
        self._skew = skew
        self._seldom = Seldom(log)
        self._loop = asyncio.get_running_loop()  # asked once: each time costs a system call
        self.rejected: Counter[str] = Counter()
        """How many requests were refused for each reason; the reasons are a closed set."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The intake over ASGI, for any server and for mounting."""
        name = scope["path"].removeprefix(scope.get("root_path", "")).strip("/")
        try:
            endpoint = self.endpoint(scope["method"], name)
            request = await read(scope, receive, self._limits, endpoint.max_body, self._loop)
        except Exception as error:
            response = self.refuse(error)
        else:
            response = await self.answer(endpoint, request)
        await respond.send(response, send)

    async def answer(self, endpoint: Endpoint, request: Request) -> respond.Response:
        """What to say to one request, for those who can wait."""
        answered: asyncio.Future[respond.Response] = self._loop.create_future()

        def answer(response: respond.Response) -> None:
            if not answered.cancelled():
                answered.set_result(response)

        self.take(endpoint, request, answer)
        return await answered

    def endpoint(self, method: str, name: str) -> Endpoint:
        """Who takes the deliveries that are sent there; Rejected if nobody does."""
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise UnknownSource("unknown_source")
        if method != "POST":
            raise WrongMethod("method")
        return endpoint

    def take(self, endpoint: Endpoint, request: Request, answer: Callable[[respond.Response], object]) -> None:
        """One delivery, from its bytes to the durable row; `answer` is called once, whatever happens.

        It is no coroutine because a task for each delivery costs as much as verifying its signature.
        """

        def recorded(result: list[Recorded] | Exception) -> None:
            try:
                if isinstance(result, Exception):
                    response = self.refuse(result)
                else:
                    response = respond.recorded(endpoint.contract, result)
            except Exception as error:
                response = self.refuse(error)
            answer(response)

        try:
            proof = self._verify(endpoint, request)
            items = identify(endpoint, request, proof)
            if items:
                self._recorder.submit(arrival(endpoint, request, proof, items), recorded)
                return
        except Exception as error:
            recorded(error)
        else:
            recorded([])

    def refuse(self, error: Exception) -> respond.Response:
        """What to say to a request that was not recorded."""
        if isinstance(error, Rejected):
            self.rejected[error.reason] += 1
            log.debug("rejected: %s", error.reason)
            return respond.rejected(error)
        if isinstance(error, Unavailable):
            self._seldom.warning("not recorded: %s", error)
        else:
            log.error("not recorded: a defect in the intake", exc_info=error)
        return respond.unavailable()

    def _verify(self, endpoint: Endpoint, request: Request) -> Proof:
        try:
            return verify(endpoint, request, self._clock.time())
        except Unauthentic as error:
            if error.reason in ("timestamp_stale", "timestamp_future") and abs(self._skew()) > SKEW_LIMIT:
                raise Unavailable("this host's clock is far from the database's: mend it") from error
            raise


def arrival(endpoint: Endpoint, request: Request, proof: Proof, items: tuple[Item, ...]) -> Arrival:
    """What is to be recorded: the ids are made here, and the headers lose the secrets presented in them."""
    secret = endpoint.contract.secret_headers
    kept = pack_headers([pair for pair in request.headers if pair[0] not in secret])
    ids = tuple([new_id() for _ in items])
    return Arrival(new_id(), endpoint.name, request, kept, proof, items, ids)
