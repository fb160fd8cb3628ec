"""Counts what is refused, and keeps a bounded sample of it with its bytes, for whoever has to find out why.

Strangers cause no unbounded write: what they send is counted in memory, a few requests a minute of each source and
reason are sampled, and the store keeps the newest within a budget.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Protocol
from urllib.parse import urlencode

from msgspec import Struct

from ..errors import HookledgerError, Malformed, Rejected, Unauthentic
from ..identities import new_id
from ..model import Request, pack_headers
from ..providers import forms
from ..store.ops.rejections import Refusal
from .endpoint import Endpoint

log = logging.getLogger(__name__)

SAMPLED = (Malformed, Unauthentic)
"""What may have been a real delivery; who sends to no source, or too much, is only counted."""
EVERY = 2.0
"""Seconds between two writings, however many are refused."""
MAX_WAITING = 256
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""What may wait in memory for the next writing."""
SECRET_NAME = re.compile(
    r"(?<!idempotency-)token|secret|passw|passphrase|api[-_]?key|authori[sz]|cookie|credential|jwt|^code$",
    re.IGNORECASE,
)
"""Headers and parameters of a URL whose names say that they hold a secret, whoever sends them."""
SHORTEST_SECRET = 6
"""Bytes; a shorter text stands in too many values to be looked for."""


class SampleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[intake.rejections]`: how many refused requests are kept with their bytes."""

    requests: int = 500
    """Of each source, at most; the oldest go."""
    bytes: int = 8 * 1024 * 1024
    """Of each source, at most."""
    per_minute: int = 30
    """Of each source and reason, at most."""
    largest: int = 1024 * 1024
    """Bytes of a body that is kept; a larger one is only counted."""


class Keeps(Protocol):
    """What is needed of a store."""

    async def refuse(
        self, sample: Sequence[Refusal], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None: ...


class Refusals:
    def __init__(
        self, store: Keeps, settings: SampleSettings, now: Callable[[], float], secrets: Sequence[bytes] = ()
    ) -> None:
        """`secrets`: those of all sources; a sender may present the secret of another one."""
        self._store = store
        self._secrets = tuple(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        self._settings = settings
        self._now = now
        self.reasons: Counter[str] = Counter()
        """How many requests were refused for each reason; the reasons are a closed set."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sample: list[Refusal] = []
        self._writing = asyncio.Lock()
        self._noted: asyncio.Event | None = None
        self._under_way: asyncio.Future[None] | None = None
        self._waiting_bytes = 0
        self._minute_began = -inf
        self._taken: Counter[tuple[str, str]] = Counter()
        self._taken_bytes: Counter[tuple[str, str]] = Counter()

    def note(self, error: Rejected, endpoint: Endpoint | None, request: Request | None) -> None:
        """One request was refused."""
        self.reasons[error.reason] += 1
        if self._noted is not None:
            self._noted.set()
        label = (endpoint.name if endpoint else "", error.reason)
        self._counts[label] += 1
        if endpoint is None or request is None or not isinstance(error, SAMPLED):
            return
        if self._has_room(label, len(request.body)):
            self._taken[label] += 1
            self._taken_bytes[label] += len(request.body)
            self._waiting_bytes += len(request.body)
            self._sample.append(refusal(endpoint, request, error.reason, self._secrets))

    def _has_room(self, label: tuple[str, str], size: int) -> bool:
        """Whoever sends a lot must not make us write a lot: by number, by bytes, and by what waits."""
        now = self._now()
        # From the first one on, not by the clock's minutes: a burst over the full minute would be let in twice.
        if not 0 <= now - self._minute_began < 60:
            self._minute_began, self._taken, self._taken_bytes = now, Counter(), Counter()
        return (
            size <= self._settings.largest
            and self._taken[label] < self._settings.per_minute
            and self._taken_bytes[label] + size <= self._settings.bytes // 4
            and len(self._sample) < MAX_WAITING
            and self._waiting_bytes + size <= MAX_WAITING_BYTES
        )

    async def flush(self) -> None:
        """Write what came since the last time; it is kept for the next time if that fails."""
        async with self._writing:
            await self._flush()

    async def _flush(self) -> None:
        sample, counts = self._sample, self._counts
        if not counts:
            return
        self._sample, self._counts, self._waiting_bytes = [], Counter(), 0
        try:
            most, most_bytes = self._settings.requests, self._settings.bytes
            await self._store.refuse(sample, counts, most=most, most_bytes=most_bytes)
        except HookledgerError as error:
            log.debug("refusals are not written yet: %s", error)
            self._sample = (sample + self._sample)[:MAX_WAITING]
            self._waiting_bytes = sum(len(kept.body) for kept in self._sample)
            self._counts += counts

    async def run(self, every: float = EVERY) -> None:
        """The first after a while is written at once, so that whoever looks finds it; what follows within `every`
        seconds waits for the next writing."""
        self._noted = asyncio.Event()
        if self._counts:
            self._noted.set()
        while True:
            await self._noted.wait()
            self._noted.clear()
            # Shielded: what is being written when we stop is written, and the last `flush` waits for it.
            self._under_way = asyncio.ensure_future(self.flush())
            try:
                await asyncio.shield(self._under_way)
            except Exception:
                log.exception("refusals are not written: a defect")
            if self._counts:  # kept for the next time
                self._noted.set()
            await asyncio.sleep(every)


def secrets_of(endpoints: Iterable[Endpoint]) -> list[bytes]:
    """All that no sample may hold: the secrets, as they are written and as they are used, and the verify tokens."""
    endpoints = list(endpoints)
    tokens = [endpoint.rules.verify_token for endpoint in endpoints]
    known = [secret for endpoint in endpoints for secret in endpoint.secrets]
    return [
        *(form for secret in known for form in (secret.text, secret.key)),
        *(token.encode("utf-8", "surrogatepass") for token in tokens if token is not None),
    ]


def refusal(endpoint: Endpoint, request: Request, reason: str, secrets: Sequence[bytes] = ()) -> Refusal:
    """A refused request as it is kept: less the secrets presented in it, in the right place or in a wrong one."""
    contract = endpoint.contract
    proof = getattr(contract.scheme, "header", b"")  # without it the request could not be judged again

    def is_secret(name: str, value: bytes) -> bool:
        if name in contract.secret_parameters or SECRET_NAME.search(name):
            return True
        pair = b"%b=%b" % (name.encode("latin-1"), value)  # a secret may be all of it, and end with a "="
        return any(secret in pair or secret in pair.replace(b" ", b"+") for secret in secrets)

    def holds_secret(name: bytes, value: bytes) -> bool:
        if name != proof and SECRET_NAME.search(name.decode("latin-1")):
            return True
        return any(secret in value or secret.lower() in name for secret in secrets)

    headers = [(name, value) for name, value in request.headers if not holds_secret(name, value)]
    return Refusal(
        id=new_id(),
        source=endpoint.name,
        reason=reason,
        method=request.method,
        path=request.path[:1024],
        query=_query_without(request.query, is_secret),
        headers=pack_headers(headers, without=contract.secret_headers),
        body=request.body,
        remote=endpoint.client(request),
    )


def safe_query(endpoint: Endpoint, query: bytes) -> bytes:
    """The query less the secrets that the contract names."""
    secret = endpoint.contract.secret_parameters
    return _query_without(query, lambda name, value: name in secret) if secret else query


def _query_without(query: bytes, is_secret: Callable[[str, bytes], bool]) -> bytes:
    """Byte for byte the same if it holds no secret: it may be signed."""
    if not query:
        return query
    try:
        pairs = forms.pairs(query)
    except ValueError:
        return b""
    kept = [(name, value) for name, value in pairs if not is_secret(name.decode("latin-1"), value)]
    return query if len(kept) == len(pairs) else urlencode(kept).encode()
