"""The intake, an ASGI application without a framework: request → verify → identify → record → respond."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from ..answer import AnswerRule
from ..clock import SKEW_LIMIT, Clock
from ..errors import Rejected, Unauthentic, Unavailable, UnknownSource, WrongMethod
from ..ids import new_id
from ..model import Arrival, Item, Kind, Proof, Recorded, Request, pack_headers
from ..observe.logs import RateLimitedLogger
from ..observe.metrics.counts import IntakeCounts
from ..providers.schemes.base import KeyNeeded, Where
from . import respond
from .answering import Answerer, Answering
from .client import rate_limit_key
from .duplicates import DuplicateRules
from .endpoint import Endpoint
from .handshake import HandshakeReply, answer_signed, answer_unsigned, methods
from .identify import identify
from .record import Recorder
from .rejections import RejectionSampler, safe_query
from .request import AsgiUpload, Limits, Reader, Receive, Scope, Send, local_paths
from .respond import Answer
from .told import Told
from .verify import verify

log: logging.Logger = logging.getLogger(__name__)


class Fetcher(Protocol):
    """Fetches published keys and confirms subscriptions."""

    async def fetch(self, where: Where, *, provider: str, again: bool = False, who: str = "") -> None: ...
    async def visit(self, url: str) -> None: ...


class Delivery:
    """One request in the intake. Each step adds its result."""

    __slots__ = ("answer", "endpoint", "items", "proof", "received", "request")
    proof: Proof
    items: tuple[Item, ...]

    def __init__(self, endpoint: Endpoint, request: Request, answer: Answer, received: float) -> None:
        """`answer` is called exactly once. `received`: when the whole request was there, by `perf_counter`."""
        self.endpoint: Endpoint = endpoint
        self.request: Request = request
        self.answer: Answer = answer
        self.received: float = received


class Intake:
    """Verify, record and answer requests: a 2xx means that the authentic event is recorded.

    `skew` returns the seconds by which the database's clock is ahead of this host's.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        recorder: Recorder,
        rejections: RejectionSampler,
        *,
        duplicates: DuplicateRules | None = None,
        fetcher: Fetcher | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        skew: Callable[[], float] = lambda: 0.0,
        answerer: Answerer | None = None,
    ) -> None:
        """`endpoints`: by path. `answerer`: runs the handlers that answer."""
        self._endpoints = endpoints
        self._methods = {path: methods(endpoint) for path, endpoint in endpoints.items()}
        self._recorder = recorder
        self.counts: IntakeCounts = recorder.counts
        self._rejections = rejections
        self._duplicates = duplicates
        self._fetcher = fetcher
        self._clock = clock or Clock()
        self._skew = skew
        self._limited_log = RateLimitedLogger(log)
        self._told = Told()
        self._answering: Answering | None = None
        if answerer is not None:
            self._answering = Answering(answerer, self._told, duplicates, self.error_response)
        self._loop = asyncio.get_running_loop()  # kept, because each call costs a system call
        self._reader = Reader(limits or Limits(), self._loop)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request over ASGI, under any server or mounted in another application."""
        path = self._local(scope)
        upload = AsgiUpload(self._loop)
        try:
            endpoint = self.endpoint(scope["method"], path)
            request = await self._reader.read(scope, path, receive, endpoint.max_body, upload)
        except Exception as error:
            response = self.error_response(error)
        else:
            response = await self.answer(endpoint, request)
            del request
        finally:
            self._reader.budget.release(upload)
        await respond.send(response, send)

    async def answer(self, endpoint: Endpoint, request: Request) -> respond.Response:
        """Process one request and return its response."""
        answered: asyncio.Future[respond.Response] = self._loop.create_future()

        def answer(response: respond.Response) -> None:
            if not answered.cancelled():
                answered.set_result(response)

        self.take([Delivery(endpoint, request, answer, perf_counter())])
        return await answered

    def _local(self, scope: Scope) -> str:
        """Return the path below the mount point: the first candidate that a source has."""
        paths = list(local_paths(scope))
        return next(filter(self._find, paths), paths[0])

    def _find(self, path: str) -> Endpoint | None:
        return self._endpoints.get(path) or self._endpoints.get(path.rstrip("/"))

    def endpoint(self, method: str, path: str) -> Endpoint:
        """Return the endpoint for a request; raise Rejected if there is none."""
        endpoint = self._find(path)
        if endpoint is None:
            raise UnknownSource("unknown_source", path)
        if method not in self._methods[endpoint.path]:
            raise WrongMethod("method")
        return endpoint

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Process deliveries that arrived together, from their bytes to durable rows and their responses.

        `_respond` answers each: the recorder calls it after the commit, `_each` for an error.
        Each step runs for all of them before the next: code that has just run runs faster (decision 0029). Not a
        coroutine, because a task per delivery costs as much as verifying its signature.
        """
        self._told.begin()
        authentic = self._each(self._verify, deliveries)
        identified = self._each(self._identify, authentic)
        self._each(self._record, identified)

    def _each(self, step: Callable[[Delivery], bool], deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return the deliveries that continue with the next step; the others are or will be answered."""
        left = []
        for delivery in deliveries:
            try:
                if step(delivery):
                    left.append(delivery)
            except KeyNeeded as needed:
                self._fetch_and_take(delivery, needed)
            except Exception as error:
                self._respond(delivery, error)
        return left

    def _verify(self, delivery: Delivery) -> bool:
        endpoint, request = delivery.endpoint, delivery.request
        handshakes = endpoint.contract.handshakes
        if handshakes and (shake := _handshake(endpoint, request)):
            endpoint.counts.unrecorded += 1
            delivery.answer(shake.response)
            return False
        delivery.proof = self._prove(endpoint, request)
        if handshakes and (shake := answer_signed(endpoint, request)):
            self._finish_handshake(delivery, shake)
            return False
        return True

    def _identify(self, delivery: Delivery) -> bool:
        delivery.items = identify(delivery.endpoint, delivery.request, delivery.proof, self._clock.time())
        if not delivery.items:
            self._respond(delivery, [])
        return bool(delivery.items)

    def _record(self, delivery: Delivery) -> bool:
        made = arrival(delivery.endpoint, delivery.request, delivery.proof, delivery.items)
        if delivery.endpoint.answers is not None and self._answering is not None:
            rule = _answer_rule(delivery.endpoint, delivery.items)
            if rule is not None:
                self._answering.take(delivery, made, rule)
                return False
        self._recorder.submit(made, partial(self._respond, delivery))
        return False

    def _respond(self, delivery: Delivery, result: list[Recorded] | Exception) -> None:
        try:
            if isinstance(result, Exception):
                response = self.error_response(result, delivery.endpoint, delivery.request)
            else:
                endpoint = delivery.endpoint
                response = respond.recorded(endpoint.contract, result)
                counts, waited = endpoint.counts, self._recorder.committed - delivery.received
                for item in result:
                    counts.outcomes[item.outcome] += 1
                if result:
                    ack = counts.ack  # not `observe`: a call costs as much as the rest
                    ack.counts[bisect_left(ack.bounds, waited)] += 1
                    ack.sum += waited
                else:
                    counts.unrecorded += 1
                if self._told.wants(result):
                    self._told.recorded(endpoint, delivery.request.headers, delivery.items, result, response.status)
                if self._duplicates is not None:
                    self._duplicates.look(endpoint, result, delivery.items)
        except Exception as error:
            response = self.error_response(error)
        delivery.answer(response)

    def error_response(
        self, error: Exception, endpoint: Endpoint | None = None, request: Request | None = None
    ) -> respond.Response:
        """Return the response to a request that was not recorded."""
        if isinstance(error, Rejected):
            self._rejections.note(error, endpoint, request)
            response = respond.rejected(error, endpoint.contract if endpoint else None)
            self._told.rejected(error, endpoint, response.status)
            return response
        (endpoint.counts if endpoint else self.counts.strangers).unavailable += 1
        self.counts.unavailable[error.cause if isinstance(error, Unavailable) else "internal"] += 1
        if isinstance(error, Unavailable):
            self._limited_log.warning("not recorded: %s", error)
        else:
            log.error("not recorded: internal error in the intake", exc_info=error)
        return respond.unavailable()

    def _prove(self, endpoint: Endpoint, request: Request) -> Proof:
        try:
            return verify(endpoint, request, self._clock.time())
        except Unauthentic as error:
            limit = min(SKEW_LIMIT, (endpoint.tolerance or SKEW_LIMIT) / 2)
            if error.reason in ("timestamp_stale", "timestamp_future") and abs(self._skew()) > limit:
                skewed = Unavailable("clock skew between this host and the database: fix the clock")
                raise skewed.because("clock_skew") from error
            raise

    # ── deliveries that need a network request ──

    def _fetch_and_take(self, delivery: Delivery, needed: KeyNeeded) -> None:
        """Fetch the key and process the delivery again; reject one that then needs another key."""

        async def fetch() -> respond.Response | None:
            if self._fetcher is None:
                raise Unavailable("this intake fetches no published keys").because("keys")
            endpoint = delivery.endpoint
            who = rate_limit_key(endpoint.client(delivery.request))
            await self._fetcher.fetch(needed.where, provider=endpoint.contract.name, again=needed.again, who=who)
            try:
                self._prove(delivery.endpoint, delivery.request)
            except KeyNeeded:
                raise Unauthentic("key_unknown") from None
            self.take([delivery])
            return None

        self._run(fetch(), delivery)

    def _finish_handshake(self, delivery: Delivery, shake: HandshakeReply) -> None:
        async def finish() -> respond.Response:
            if shake.fetch is not None:
                if self._fetcher is None:
                    raise Unavailable("this intake confirms no subscriptions").because("keys")
                await self._fetcher.visit(shake.fetch)
            if shake.keep:
                endpoint, request, proof = delivery.endpoint, delivery.request, delivery.proof
                items = identify(endpoint, request, proof, self._clock.time())
                await self._recorder.record(arrival(endpoint, request, proof, items))
            delivery.endpoint.counts.unrecorded += 1  # a failure is counted by its answer
            return shake.response

        if shake.fetch is None and not shake.keep:
            delivery.endpoint.counts.unrecorded += 1
            delivery.answer(shake.response)
        else:
            self._run(finish(), delivery)

    def _run(self, coroutine: Coroutine[Any, Any, respond.Response | None], delivery: Delivery) -> None:
        async def run(work: Awaitable[respond.Response | None]) -> None:
            try:
                response = await work
            except Exception as error:
                response = self.error_response(error, delivery.endpoint, delivery.request)
            if response is not None:
                delivery.answer(response)

        task = self._loop.create_task(run(coroutine))
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)


def _answer_rule(endpoint: Endpoint, items: tuple[Item, ...]) -> AnswerRule | None:
    """Return how a delivery is answered by its handler; None: as any other, because none runs for it now."""
    if endpoint.answers is None or len(items) != 1:
        return None
    [item] = items
    if not item.whole or item.invalid or item.skip or item.review or item.ordered:
        return None
    return endpoint.answers(Kind(endpoint.name, item.type, item.version))


def _handshake(endpoint: Endpoint, request: Request) -> HandshakeReply | None:
    """Return the reply to an unsigned handshake, or None for a POST that is none; raise WrongMethod otherwise."""
    shake = answer_unsigned(endpoint, request)
    if shake is None and request.method != "POST":
        raise WrongMethod("method")
    return shake


def arrival(endpoint: Endpoint, request: Request, proof: Proof, items: tuple[Item, ...]) -> Arrival:
    """Return what to record: ids are created here, the request's id is its first event's; secrets are removed from
    headers and query."""
    headers = pack_headers(request.headers, without=endpoint.contract.secret_headers)
    query = request.query and safe_query(endpoint, request.query)
    ids = tuple([new_id() for _ in items])
    own = ids[0] if ids else new_id()
    client = endpoint.client(request)
    return Arrival(own, endpoint.name, query, headers, request.body, client, proof, items, ids)
