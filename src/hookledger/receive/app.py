"""The intake as a bare callable, no framework in it: request → verify → identify → record → respond."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..clock import Clock
from ..errors import Rejected, Unauthentic, Unavailable, UnknownSource, WrongMethod
from ..model import Arrival, Item, Proof, Request, new_id, pack_headers
from ..observe.logs import Seldom
from . import respond
from .endpoint import Endpoint
from .identify import identify
from .record import Recorder
from .request import Limits, Receive, RsgiScope, Scope, Send, read, read_rsgi
from .verify import verify

log = logging.getLogger(__name__)

ReadRequest = Callable[[int], Awaitable[Request]]
"""Reads the request whole, if its body has at most so many bytes."""

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
        response = await self.answer(
            scope["method"], name, lambda most: read(scope, receive, self._limits, most, self._loop)
        )
        await respond.send(response, send)

    async def __rsgi__(self, scope: RsgiScope, protocol: Any) -> None:
        """The same over RSGI, for `hookledger receive`."""
        response = await self.answer(
            scope.method,
            scope.path.strip("/"),
            lambda most: read_rsgi(scope, protocol, self._limits, most, self._loop),
        )
        protocol.response_bytes(response.status, list(response.headers), response.body)

    async def answer(self, method: str, name: str, read_request: ReadRequest) -> respond.Response:
        """What to say to one request, whatever happens to it."""
        try:
            return await self.take(method, name, read_request)
        except Rejected as error:
            self.rejected[error.reason] += 1
            log.debug("rejected: %s", error.reason)
            return respond.rejected(error)
        except Unavailable as error:
            self._seldom.warning("not recorded: %s", error)
        except Exception:
            log.exception("not recorded: a defect in the intake")
        return respond.unavailable()

    async def take(self, method: str, name: str, read_request: ReadRequest) -> respond.Response:
        """One delivery, from the socket to the durable row."""
        endpoint = self._endpoint(method, name)
        request = await read_request(endpoint.max_body)
        proof = self._verify(endpoint, request)
        items = identify(endpoint, request, proof)
        recorded = await self._recorder.record(arrival(endpoint, request, proof, items)) if items else []
        return respond.recorded(endpoint.contract, recorded)

    def _endpoint(self, method: str, name: str) -> Endpoint:
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise UnknownSource("unknown_source")
        if method != "POST":
            raise WrongMethod("method")
        return endpoint

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
