"""The values that the steps of the pipeline pass on. All are frozen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from .errors import ConfigError
from .states import DeliveryOutcome, KeyOrigin, State

Headers = tuple[tuple[bytes, bytes], ...]


def pack_headers(headers: Iterable[tuple[bytes, bytes]], *, without: frozenset[bytes] = frozenset()) -> bytes:
    """Return headers in wire form, one per line: no value can contain a line break."""
    return b"\r\n".join([b": ".join(pair) for pair in headers if pair[0] not in without])


def unpack_headers(packed: bytes) -> list[tuple[str, str]]:
    """Return names and values, decoded as Latin-1 as HTTP requires."""
    lines = packed.decode("latin-1").split("\r\n") if packed else []
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


# ── receive ──────────────────────────────────────────────────────────────────
# Arrivals may be sent to the writer process: array_like leaves out the field names.


class Request(Struct, frozen=True):
    """One HTTP request, its body exactly as received; header names are lower-case."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    remote: str | None = None

    def values(self, name: bytes) -> list[bytes]:
        """Return every value of one header, in order."""
        return [value for key, value in self.headers if key == name]

    def value(self, name: bytes) -> bytes | None:
        """Return the first value of one header."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


LISTED = "api"
"""The scheme of an event without a signature: the provider's API listed it, called with our credentials."""
GUARDED = "idempotency-key"
"""The scheme of a request to a guarded route: the application authenticated its caller (decision 0065)."""
REPAIR = "hookledger.repair"
"""The type of an event that an operator created to run the source's repair handler."""
REPAIR_KEY = "repair:"
"""The prefix of its key."""


class Proof(Struct, frozen=True, array_like=True):
    """How a request was authenticated."""

    scheme: str
    secret: str
    """A short fingerprint of the secret that matched; never the secret."""
    signed_at: float | None = None


class Item(Struct, frozen=True, array_like=True):
    """One event in a request, before the store has classified it."""

    key: str
    """The event key for display: cleaned, at most 255 characters."""
    key_origin: KeyOrigin
    identity: bytes
    """Digest of source and exact key, for the unique constraint."""
    fingerprint: bytes
    """Digest of the content without the provider's volatile fields."""
    type: str
    body_identity: bytes | None = None
    """Digest of source and body, for any type, if the signature does not cover key or type."""
    provider_id: str | None = None
    object_id: str | None = None
    occurred_at: float | None = None
    delivery_id: str | None = None
    invalid: str | None = None
    """Why the content is unusable; the event is recorded as a dead letter."""
    skip: str | None = None
    """Why the event is recorded as skipped."""
    review: str | None = None
    """Why an operator must decide about it first."""
    type_identity: bytes | None = None
    """Digest of source, body and type, for a type that may share its body with others."""
    body_group: bytes = b""
    """The types that it may share its body with; stored with the body's identity."""
    token_identities: tuple[bytes, ...] = ()
    """Digests of the tokens that are signed without the body: each proves one event."""
    repeats: bool = False
    """Whether each identical body is an event: the provider repeats them on purpose, and the body shows the type."""
    whole: bool = True
    """Whether it is the only event in its request."""
    alert: str | None = None
    """The alert for operators if it is quarantined."""
    account: str | None = None
    """The account that it belongs to, if the source serves several accounts."""
    retry: str | None = None
    """The provider's retry number and reason, if the delivery says that it is a retry."""
    entity: str | None = None
    """What it is about, if the source has entities."""
    ordered: bool = False
    """Whether events of its entity run one at a time."""
    order_at: float | None = None
    """Its place among them: when it happened, if that is signed; None: when it arrives."""
    hold: bool = False
    """Whether what follows it in its entity waits while it is failed or in review."""
    version: str = ""
    """The version by which its handler is selected; empty: it has none."""

    @property
    def by_key_alone(self) -> bool:
        """Whether only its key decides whether it is new."""
        return self.body_identity is None and not self.token_identities


class Arrival(Struct, frozen=True, array_like=True):
    """One authentic request and the events in it, ready to be recorded in one commit."""

    id: UUID
    source: str
    query: bytes
    """Without the secrets that the contract names."""
    headers: bytes
    """In wire form, without the secrets that the contract names."""
    body: bytes
    remote: str | None
    proof: Proof
    items: tuple[Item, ...]
    event_ids: tuple[UUID, ...]
    """The id that each item's event gets if it is new."""
    reconciled: bool = False
    """Whether no delivery brought it: reconciliation found it in the provider's log, or an operator created it."""

    @property
    def unsigned(self) -> bool:
        """Whether its bytes are from the provider's API, which may serialize the same content differently."""
        return self.proof.scheme == LISTED


class Recorded(Struct, frozen=True):
    """How the store classified one item."""

    outcome: DeliveryOutcome
    event_id: UUID
    state: State | None = None
    """The known event's state at the time; None for a new event."""


# ── work ─────────────────────────────────────────────────────────────────────


class Kind(Struct, frozen=True):
    """What decides about an event's handler: its source, type and version."""

    source: str
    type: str
    version: str = ""
    """Empty for events without a version."""

    @property
    def label(self) -> str:
        """The type, quoted, and the version of events that have one."""
        return f"{self.type!r} in version {self.version!r}" if self.version else repr(self.type)

    def __str__(self) -> str:
        """The same without quotation marks."""
        return f"{self.type} in version {self.version}" if self.version else self.type


ANY_VERSION = "*"
MAX_VERSION = 64
"""Characters of a version."""


class Pattern(NamedTuple):
    """What a handler processes."""

    source: str
    type: str
    """Exact, or a prefix ending in `*`."""
    version: str = ANY_VERSION
    """Exact, or a prefix ending in `*`; `*` is every event, also without a version."""

    def takes(self, kind: Kind) -> bool:
        return self.takes_type(kind) and covers_version(self.version, kind.version)

    def takes_type(self, kind: Kind) -> bool:
        """Whether it is for this type, perhaps in other versions."""
        return self.source == kind.source and covers(self.type, kind.type)

    def __str__(self) -> str:
        return self.type if self.version == ANY_VERSION else f"{self.type} in version {self.version}"


Handled = Sequence[Pattern | tuple[str, str]]
"""What handlers process; (source, type pattern) is in every version."""


def covers_version(pattern: str, version: str) -> bool:
    """Whether a version, or a pattern ending in `*`, matches this version."""
    return version == pattern or (pattern.endswith("*") and version.startswith(pattern[:-1]))


def covers(pattern: str, kind: str) -> bool:
    """Whether a type, or a pattern ending in `*`, matches this type. No pattern matches Hookledger's own type."""
    if kind == pattern:
        return True
    return pattern.endswith("*") and kind.startswith(pattern[:-1]) and kind != REPAIR


def overlap(one: str, other: str) -> str | None:
    """The types, or the pattern of types, that both of two types or patterns match; None: there are none."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


STAGE: re.Pattern[str] = re.compile("[A-Za-z0-9._-]{1,64}")
"""The name of a stage, as a whole."""


def check_stage_name(name: object) -> str:
    """Return the name of a stage. Raises ConfigError for anything else."""
    if not isinstance(name, str) or STAGE.fullmatch(name) is None:
        raise ConfigError(f"{name!r} cannot name a stage: use 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return name


def base_source(name: str) -> str:
    """The source of an event or of one of its stages, whose source is NAME/STAGE; no source has a slash."""
    return name.partition("/")[0]


def stage_source(source: str, stage: str) -> str:
    """The source of the rows of a stage: its kinds, its pauses and its order are its own."""
    return f"{source}/{stage}"


class Waiting(Struct, frozen=True):
    """A kind with waiting events, and when the first is due."""

    kind: Kind
    due_in: float
    """Seconds until the first is due; negative when overdue."""
    alone: bool = False
    """Whether its events crashed their worker twice, so that each runs alone."""
    unplaced: bool = False
    """Whether it is to be decided which event of some entity is first, of this kind or any other."""


class Share(Struct, frozen=True):
    """What a claim may take of some kinds."""

    kinds: tuple[Kind, ...]
    limit: int
    """At most so many events of all of them."""


class Claimed(Struct, frozen=True):
    """An event that a worker has claimed."""

    id: UUID
    claim: int
    """The fencing token: every later write names it."""
    source: str
    type: str
    key: str
    key_origin: KeyOrigin
    provider_id: str | None
    object_id: str | None
    occurred_at: datetime | None
    received_at: datetime
    run: int
    attempts: int
    """Attempts of this run, including this one."""
    snoozes: int
    crashes: int
    run_age: float
    """Seconds since this run began."""
    item: int
    headers: bytes
    query: bytes
    body: bytes
    entity: str | None = None
    """What it is about, if its source has entities."""
    waited: float | None = None
    """Seconds since it waited first in this run, by `Wait(for_entity=…)`; None: it has not."""
    approval_id: UUID | None = None
    """The audit log entry by which an operator let this run pass a review."""
    version: str = ""
    """Empty: it has none."""

    @property
    def kind(self) -> Kind:
        return Kind(self.source, self.type, self.version)

    @property
    def stage(self) -> str | None:
        """Which stage of its event it is; None: the event itself."""
        return self.source.partition("/")[2] or None


class StoredAnswer(Struct, frozen=True):
    """What a handler answered, as it is sent and kept."""

    status: int
    headers: bytes
    """In wire form: those that the handler set, and the content type."""
    body: bytes
    keep: float = 86400.0
    """Seconds for which it is kept."""


class Outcome(Struct, frozen=True):
    """How an attempt ended, and the transition by which its event leaves `processing`."""

    id: UUID
    claim: int
    transition: Literal["complete", "skip", "reschedule", "wait", "fail", "review", "release"]
    reason: str | None = None
    due_in: float = 0.0
    result: str | None = None
    error: str | None = None
    """The traceback."""
    where: str | None = None
    """The handler, and FILE:LINE where the user's code failed: part of the cause."""
    waits_for: str | None = None
    """The entity that the event waits for."""
    stages: tuple[str, ...] = ()
    """With `complete`: the stages that the event has from now on, if it was never processed before."""
    traceparent: str | None = None
    """The attempt's span, if the application has tracing."""
    answer: StoredAnswer | None = None
    """With `complete`: what is kept, in the same commit, for deliveries that come later."""
