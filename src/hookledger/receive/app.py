"""The intake as a bare ASGI callable: request → verify → identify → record → respond."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from ..clock import Clock
from ..errors import Rejected, Unauthentic, Unavailable, UnknownSource, WrongMethod
from ..model import Arrival, Item, Proof, Request, new_id, pack_headers
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
        self.rejected: Counter[str] = Counter()
        """How many requests were refused for each reason; the reasons are a closed set."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self.take(scope, receive)
        except Rejected as error:
            self.rejected[error.reason] += 1
            log.debug("rejected: %s", error.reason)
            response = respond.rejected(error)
        except Unavailable as error:
            self._seldom.warning("not recorded: %s", error)
            response = respond.unavailable()
        except Exception:
            log.exception("not recorded: a defect in the intake")
            response = respond.unavailable()
        await respond.send(response, send)

    async def take(self, scope: Scope, receive: Receive) -> respond.Response:
        """One delivery, from the socket to the durable row."""
        endpoint = self._endpoint(scope)
        request = await read(scope, receive, self._limits, endpoint.max_body)
        proof = self._verify(endpoint, request)
        items = identify(endpoint, request, proof)
        recorded = await self._recorder.record(arrival(endpoint, request, proof, items)) if items else []
        return respond.recorded(endpoint.contract, recorded)

    def _endpoint(self, scope: Scope) -> Endpoint:
        path, root = scope["path"], scope.get("root_path", "")
        name = path.removeprefix(root).strip("/") if root else path[1:]
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise UnknownSource("unknown_source")
        if scope["method"] != "POST":
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
