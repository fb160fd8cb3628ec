"""The intake as a bare callable, no framework in it: request → verify → identify → record → respond."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from ..clock import SKEW_LIMIT, Clock
from ..errors import Rejected, Unauthentic, Unavailable, UnknownSource, WrongMethod
from ..identities import new_id
from ..model import Arrival, Item, Proof, Recorded, Request, pack_headers
from ..observe import deliveries
from ..observe.logs import Seldom
from ..providers.schemes.base import KeyNeeded, Where
from . import respond
from .aftercare import Aftercare
from .client import rate_limited_as
from .endpoint import Endpoint
from .handshake import Shake, ask_signed, ask_unsigned, methods
from .identify import identify
from .reasons import REASONS
from .record import Recorder
from .refusals import Refusals, safe_query
from .request import AsgiUpload, Limits, Reader, Receive, Scope, Send, local_paths
from .respond import Answer
from .verify import verify

log = logging.getLogger(__name__)


class Fetches(Protocol):
    """Who gets what is published elsewhere."""

    async def fetch(self, where: Where, *, provider: str, again: bool = False, who: str = "") -> None: ...
    async def visit(self, url: str) -> None: ...


class Delivery:
    """One request on its way through the intake. Each step adds what it finds."""

    __slots__ = ("answer", "endpoint", "items", "proof", "request")
    proof: Proof
    items: tuple[Item, ...]

    def __init__(self, endpoint: Endpoint, request: Request, answer: Answer) -> None:
        """`answer` is called once, whatever happens."""
        self.endpoint = endpoint
        self.request = request
        self.answer = answer


class Intake:
    """Answers one question: is this authentic event safely recorded?

    `skew` tells how far the database's clock is ahead of this host's.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        recorder: Recorder,
        refusals: Refusals,
        *,
        aftercare: Aftercare | None = None,
        fetches: Fetches | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        skew: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`endpoints`: by their paths."""
        self._endpoints = endpoints
        self._methods = {path: methods(endpoint) for path, endpoint in endpoints.items()}
        self._recorder = recorder
        self._refusals = refusals
        self._aftercare = aftercare
        self._fetches = fetches
        self._clock = clock or Clock()
        self._skew = skew
        self._seldom = Seldom(log)
        self._loop = asyncio.get_running_loop()  # asked once: each time costs a system call
        self._reader = Reader(limits or Limits(), self._loop)
        self._errands: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The intake over ASGI, for any server and for mounting."""
        path = self._local(scope)
        upload = AsgiUpload(self._loop)
        try:
            endpoint = self.endpoint(scope["method"], path)
            request = await self._reader.read(scope, path, receive, endpoint.max_body, upload)
        except Exception as error:
            response = self.refuse(error)
        else:
            response = await self.answer(endpoint, request)
            del request
        finally:
            self._reader.budget.release(upload)
        await respond.send(response, send)

    async def answer(self, endpoint: Endpoint, request: Request) -> respond.Response:
        """What to say to one request, for those who can wait."""
        answered: asyncio.Future[respond.Response] = self._loop.create_future()

        def answer(response: respond.Response) -> None:
            if not answered.cancelled():
                answered.set_result(response)

        self.take([Delivery(endpoint, request, answer)])
        return await answered

    def _local(self, scope: Scope) -> str:
        """The path below where we are mounted: of what it may be, the one that somebody answers to."""
        paths = list(local_paths(scope))
        return next(filter(self._find, paths), paths[0])

    def _find(self, path: str) -> Endpoint | None:
        return self._endpoints.get(path) or self._endpoints.get(path.rstrip("/"))

    def endpoint(self, method: str, path: str) -> Endpoint:
        """Who takes what is sent there; Rejected if nobody does."""
        endpoint = self._find(path)
        if endpoint is None:
            raise UnknownSource("unknown_source", path)
        if method not in self._methods[endpoint.path]:
            raise WrongMethod("method")
        return endpoint

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """All that came at once, from its bytes to the durable rows.

        One step for all of them, then the next: code that has just run runs faster (decision 0029). It is no
        coroutine because a task for each delivery costs as much as verifying its signature.
        """
        authentic = self._each(self._verify, deliveries)
        identified = self._each(self._identify, authentic)
        self._each(self._record, identified)

    def _each(self, step: Callable[[Delivery], bool], deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Those that go on to the next step; the others have their answer, or will."""
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
            delivery.answer(shake.response)
            return False
        delivery.proof = self._prove(endpoint, request)
        if handshakes and (shake := ask_signed(endpoint, request)):
            self._shake(delivery, shake)
            return False
        return True

    def _identify(self, delivery: Delivery) -> bool:
        delivery.items = identify(delivery.endpoint, delivery.request, delivery.proof, self._clock.time())
        if not delivery.items:
            self._respond(delivery, [])
        return bool(delivery.items)

    def _record(self, delivery: Delivery) -> bool:
        made = arrival(delivery.endpoint, delivery.request, delivery.proof, delivery.items)
        self._recorder.submit(made, partial(self._respond, delivery))
        return False

    def _respond(self, delivery: Delivery, result: list[Recorded] | Exception) -> None:
        try:
            if isinstance(result, Exception):
                response = self.refuse(result, delivery.endpoint, delivery.request)
            else:
                response = respond.recorded(delivery.endpoint.contract, result)
                if deliveries.wanted():
                    _tell(delivery, result, response.status)
                if self._aftercare is not None:
                    self._aftercare.look(delivery.endpoint, result, delivery.items)
        except Exception as error:
            response = self.refuse(error)
        delivery.answer(response)

    def refuse(
        self, error: Exception, endpoint: Endpoint | None = None, request: Request | None = None
    ) -> respond.Response:
        """What to say to a request that was not recorded."""
        if isinstance(error, Rejected):
            self._refusals.note(error, endpoint, request)
            response = respond.rejected(error, endpoint.contract if endpoint else None)
            if deliveries.wanted():
                said = REASONS.get(error.reason) or str(error)
                name = endpoint.name if endpoint else "no source"
                deliveries.tell("%s: rejected with %d: %s%s", name, response.status, said, _place(error))
            return response
        if isinstance(error, Unavailable):
            self._seldom.warning("not recorded: %s", error)
        else:
            log.error("not recorded: a defect in the intake", exc_info=error)
        return respond.unavailable()

    def _prove(self, endpoint: Endpoint, request: Request) -> Proof:
        try:
            return verify(endpoint, request, self._clock.time())
        except Unauthentic as error:
            limit = min(SKEW_LIMIT, (endpoint.tolerance or SKEW_LIMIT) / 2)
            if error.reason in ("timestamp_stale", "timestamp_future") and abs(self._skew()) > limit:
                raise Unavailable("this host's clock is far from the database's: mend it") from error
            raise

    # ── what takes longer than one step ──

    def _fetch_and_take(self, delivery: Delivery, needed: KeyNeeded) -> None:
        """Once: who needs another key after that is refused."""

        async def errand() -> respond.Response | None:
            if self._fetches is None:
                raise Unavailable("nobody fetches keys here")
            endpoint = delivery.endpoint
            who = rate_limited_as(endpoint.client(delivery.request))
            await self._fetches.fetch(needed.where, provider=endpoint.contract.name, again=needed.again, who=who)
            try:
                self._prove(delivery.endpoint, delivery.request)
            except KeyNeeded:
                raise Unauthentic("key_unknown") from None
            self.take([delivery])
            return None

        self._run(errand(), delivery)

    def _shake(self, delivery: Delivery, shake: Shake) -> None:
        async def errand() -> respond.Response:
            if shake.fetch is not None:
                if self._fetches is None:
                    raise Unavailable("nobody confirms subscriptions here")
                await self._fetches.visit(shake.fetch)
            if shake.keep:
                endpoint, request, proof = delivery.endpoint, delivery.request, delivery.proof
                items = identify(endpoint, request, proof, self._clock.time())
                await self._recorder.record(arrival(endpoint, request, proof, items))
            return shake.response

        if shake.fetch is None and not shake.keep:
            delivery.answer(shake.response)
        else:
            self._run(errand(), delivery)

    def _run(self, errand: Coroutine[Any, Any, respond.Response | None], delivery: Delivery) -> None:
        async def run(work: Awaitable[respond.Response | None]) -> None:
            try:
                response = await work
            except Exception as error:
                response = self.refuse(error, delivery.endpoint, delivery.request)
            if response is not None:
                delivery.answer(response)

        task = self._loop.create_task(run(errand))
        self._errands.add(task)  # the loop itself would let it be collected
        task.add_done_callback(self._errands.discard)


def _tell(delivery: Delivery, result: Sequence[Recorded], status: int) -> None:
    for item, kept in zip(delivery.items, result, strict=False):
        name = delivery.endpoint.name
        deliveries.tell("%s: %s, answered %d: %s %s", name, kept.outcome, status, item.type, item.key)


def _place(error: Rejected) -> str:
    return f": {error}" if isinstance(error, UnknownSource) else ""


def _handshake(endpoint: Endpoint, request: Request) -> Shake | None:
    """What is no delivery must be an unsigned question."""
    shake = ask_unsigned(endpoint, request)
    if shake is None and request.method != "POST":
        raise WrongMethod("method")
    return shake


def arrival(endpoint: Endpoint, request: Request, proof: Proof, items: tuple[Item, ...]) -> Arrival:
    """What is to be recorded. The ids are made here, the request's is its first event's; headers and query lose the
    secrets presented in them."""
    headers = pack_headers(request.headers, without=endpoint.contract.secret_headers)
    query = request.query and safe_query(endpoint, request.query)
    ids = tuple([new_id() for _ in items])
    own = ids[0] if ids else new_id()
    client = endpoint.client(request)
    return Arrival(own, endpoint.name, query, headers, request.body, client, proof, items, ids)
