"""Count rejected requests, and store a bounded sample with its bytes, so that operators can find the reason.

Unverified requests cause no unbounded writes: they are counted in memory, a few per minute, source and reason are
sampled, and the store keeps the newest within a budget.
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

from ..errors import ContentRefused, HookledgerError, Malformed, Rejected, Unauthentic
from ..ids import new_id
from ..model import Request, pack_headers
from ..observe.metrics.counts import IntakeCounts
from ..providers import forms
from ..store.ops.rejections import RejectedRequest
from .endpoint import Endpoint

log: logging.Logger = logging.getLogger(__name__)

SAMPLED = (Malformed, Unauthentic, ContentRefused)
"""May be real deliveries; requests to unknown sources and oversized ones are only counted."""
EVERY = 2.0
"""Seconds between two writes."""
MAX_WAITING = 256
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""Limit of the sample in memory until the next write."""
SECRET_NAME = re.compile(
    r"(?<!idempotency-)token|secret|passw|passphrase|api[-_]?key|authori[sz]|cookie|credential|jwt|^code$",
    re.IGNORECASE,
)
"""Names of headers and URL parameters that usually hold a secret."""
SHORTEST_SECRET = 6
"""Bytes; a shorter text occurs in too many values to be searched for."""


class SampleSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[intake.rejections]`: how many rejected requests are stored with their bytes."""

    requests: int = 500
    """Stored requests per source, at most; the oldest are deleted."""
    bytes: int = 8 * 1024 * 1024
    """Stored bytes per source, at most."""
    per_minute: int = 30
    """Requests stored per minute, source and reason, at most."""
    largest: int = 1024 * 1024
    """Largest body that is stored, in bytes; a request with a larger one is only counted."""


class RejectionStore(Protocol):
    """The store, as far as the sampler uses it."""

    async def add(
        self, sample: Sequence[RejectedRequest], counts: Mapping[tuple[str, str], int], *, most: int, most_bytes: int
    ) -> None: ...


class RejectionSampler:
    def __init__(
        self,
        store: RejectionStore,
        settings: SampleSettings,
        now: Callable[[], float],
        secrets: Sequence[bytes] = (),
        counts: IntakeCounts | None = None,
    ) -> None:
        """`secrets`: those of all sources, because a sender may present another source's secret."""
        self._store = store
        self._secrets = tuple(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        self._settings = settings
        self._now = now
        self._total = (counts or IntakeCounts()).rejections
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sample: list[RejectedRequest] = []
        self._writing = asyncio.Lock()
        self._noted: asyncio.Event | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._waiting_bytes = 0
        self._minute_began = -inf
        self._taken: Counter[tuple[str, str]] = Counter()
        self._taken_bytes: Counter[tuple[str, str]] = Counter()

    @property
    def reasons(self) -> Counter[str]:
        """Requests that were rejected since the start, by reason."""
        found: Counter[str] = Counter()
        for (_, reason), count in list(self._total.items()):
            found[reason] += count
        return found

    def note(self, error: Rejected, endpoint: Endpoint | None, request: Request | None) -> None:
        """Count a rejected request, and sample it if there is room."""
        if self._noted is not None:
            self._noted.set()
        label = (endpoint.name if endpoint else "", error.reason)
        self._total[label] += 1
        self._counts[label] += 1
        if endpoint is None or request is None or not isinstance(error, SAMPLED):
            return
        if self._has_room(label, len(request.body)):
            self._taken[label] += 1
            self._taken_bytes[label] += len(request.body)
            self._waiting_bytes += len(request.body)
            self._sample.append(rejected_request(endpoint, request, error.reason, self._secrets))

    def _has_room(self, label: tuple[str, str], size: int) -> bool:
        """Whether the request may be sampled: limited by number, by bytes and by what waits."""
        now = self._now()
        # A minute from the first one, not of the clock: otherwise a burst across a full minute would count twice.
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
        """Write what came since the last flush; if that fails, keep it for the next one."""
        async with self._writing:
            await self._flush()

    async def _flush(self) -> None:
        sample, counts = self._sample, self._counts
        if not counts:
            return
        self._sample, self._counts, self._waiting_bytes = [], Counter(), 0
        try:
            most, most_bytes = self._settings.requests, self._settings.bytes
            await self._store.add(sample, counts, most=most, most_bytes=most_bytes)
        except HookledgerError as error:
            log.debug("rejected requests are not stored yet: %s", error)
            self._sample = (sample + self._sample)[:MAX_WAITING]
            self._waiting_bytes = sum(len(kept.body) for kept in self._sample)
            self._counts += counts

    async def run(self, every: float = EVERY) -> None:
        """Flush the first rejection immediately, so that operators see it; those within `every` seconds wait for the
        next flush."""
        self._noted = asyncio.Event()
        if self._counts:
            self._noted.set()
        while True:
            await self._noted.wait()
            self._noted.clear()
            # Shielded, so that shutdown does not interrupt a write; the last `flush` waits for it.
            self._flushing = asyncio.ensure_future(self.flush())
            try:
                await asyncio.shield(self._flushing)
            except Exception:
                log.exception("rejected requests are not stored: internal error")
            if self._counts:  # not written yet
                self._noted.set()
            await asyncio.sleep(every)


def secrets_of(endpoints: Iterable[Endpoint]) -> list[bytes]:
    """Return what no sample may contain: the secrets, as configured and as used, and the verify tokens."""
    endpoints = list(endpoints)
    tokens = [endpoint.verify_token for endpoint in endpoints]
    known = [secret for endpoint in endpoints for secret in endpoint.secrets]
    return [
        *(form for secret in known for form in (secret.text, secret.key)),
        *(token.encode("utf-8", "surrogatepass") for token in tokens if token is not None),
    ]


def rejected_request(
    endpoint: Endpoint, request: Request, reason: str, secrets: Sequence[bytes] = ()
) -> RejectedRequest:
    """Return a rejected request for storage, without the secrets in it, wherever the sender put them."""
    contract = endpoint.contract
    proof = getattr(contract.scheme, "header", b"")  # needed to verify the request again

    def is_secret(name: str, value: bytes) -> bool:
        if name in contract.secret_parameters or SECRET_NAME.search(name):
            return True
        pair = b"%b=%b" % (name.encode("latin-1"), value)  # a secret may be the whole pair, and end with a "="
        return any(secret in pair or secret in pair.replace(b" ", b"+") for secret in secrets)

    def holds_secret(name: bytes, value: bytes) -> bool:
        if name != proof and SECRET_NAME.search(name.decode("latin-1")):
            return True
        return any(secret in value or secret.lower() in name for secret in secrets)

    headers = [(name, value) for name, value in request.headers if not holds_secret(name, value)]
    return RejectedRequest(
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
    """Return the query without the secrets that the contract names."""
    secret = endpoint.contract.secret_parameters
    return _query_without(query, lambda name, value: name in secret) if secret else query


def _query_without(query: bytes, is_secret: Callable[[str, bytes], bool]) -> bytes:
    """Return the query without secrets; unchanged byte for byte if it has none, because it may be signed."""
    if not query:
        return query
    try:
        pairs = forms.pairs(query)
    except ValueError:
        return b""
    kept = [(name, value) for name, value in pairs if not is_secret(name.decode("latin-1"), value)]
    return query if len(kept) == len(pairs) else urlencode(kept).encode()
