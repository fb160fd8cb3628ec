"""A source's settings: one value, whether from `hookledger.toml` or from Python.

A new setting is a field of `SourceSettings` and a key of `SourceOptions`; a unit test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, Literal, Required, TypedDict

from msgspec import Struct

from ..clock import Keep, Seconds
from ..errors import ConfigError
from ..providers.contract import Contract
from ..providers.fetching.settings import CurrentSettings
from ..providers.listing.base import ReconcileSettings
from .secrets import SecretSettings

KeyFunction = Callable[[dict[str, object], Mapping[str, str]], object]
"""Returns the event key from the event's content and the request's headers (lower-case names): text, a number or a
tuple of them; None if there is none."""

MAX_WEIGHT = 1000
Names = Sequence[str] | AbstractSet[str]
Duration = float | str


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Add the source's name to ConfigErrors raised inside."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"source {source!r}: {error}") from None


class SourceRetention(Struct, frozen=True, forbid_unknown_fields=True):
    """`[sources.NAME.retention]`: retention periods of one source, counted from when an event finished. Hookledger
    always keeps the event's key and the keys of its effects."""

    payloads: Keep | None = None
    """Bytes, headers and query of finished events, which a replay needs. Default: `[retention]`."""
    history: Keep | None = None
    """Tracebacks of attempts and calls, and the rows of plain duplicates. Default: `[retention]`."""
    events: Keep | None = None
    """Events that are processed, skipped or discarded, with their history. Default: `[retention]`."""
    failed: Keep | None = None
    """Dead letters, with their history. Default: `[retention]`."""


class SourceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[sources.NAME]`: one endpoint."""

    provider: str
    """A name that `hookledger providers` lists, or `hmac` with your own options."""
    secrets: tuple[str | SecretSettings, ...] = ()
    """Each `env:NAME`, `file:/path` or the secret itself. Set several while you rotate a secret, the old one as
    `{ secret = "env:OLD", expires = 2027-01-31T00:00:00Z }`. The receiver reads them when it starts. Their form
    depends on the provider: see `hookledger providers NAME`."""
    path: str | None = None
    """Path of its deliveries, to keep a URL that is already registered; default: `/NAME`."""
    types: frozenset[str] | None = None
    """Event types to accept, exact or ending in `*`; default: all."""
    other_types: Literal["skip", "reject"] = "skip"
    """What happens to events of other types: `skip` records them as skipped, `reject` answers 422."""
    mode: Literal["run", "observe"] = "run"
    """`observe` records events as skipped and runs no handler: for the time before a cut-over."""
    key: tuple[str, ...] = ()
    """The fields that make up the event key, instead of the provider's own: each `header:NAME`,
    `body:PATH.TO.FIELD`, `query:NAME` or `text:WORDS`."""
    key_required: bool = False
    """Answer 422 to an event without a key, instead of deriving a key from its content."""
    repeatable: frozenset[str] | None = None
    """Types (`team`) or types with their action (`team.created`) of which each identical body is an event, where the
    id is not signed; default: the provider's own. Where the type is not signed either, the body must show it. A body
    that fits several types repeats only as the type that came first, as any of them if you set the types here. `[]`
    quarantines every known body."""
    ordered: frozenset[str] = frozenset()
    """Event types, exact or ending in `*`, of which one event of an entity runs at a time, the earliest first. One
    may arrive after a newer one was processed: use it with `event.newer`."""
    entity: tuple[str, ...] = ()
    """What an event is about: the first of these fields of the body that is present, such as `data.object.customer`,
    or a field as in `key`; default: the provider's object id, if `ordered` is set. `Wait(for_entity=…)` needs it."""
    version: str | None = None
    """Where an event says in which version its content is, by which `source.on(…, version=…)` selects its handler: a
    field as in `key`, or `contract` for the provider's own. None: events have no version."""
    after_failure: Literal["continue", "hold"] = "continue"
    """What happens to ordered events that follow a failed one, or one in review, of their entity: `hold` keeps them
    until an operator has decided about it."""
    on_failed: Literal["record", "retry", "alert"] = "record"
    """What Hookledger does with a duplicate of a dead letter, besides recording it."""
    redelivery_alert: int = 3
    """Alert if a failing event has more redeliveries; 0: never."""
    horizon: Seconds | None = None
    """An older event needs a review; must not be shorter than the provider's own. None: no limit."""
    tolerance: Seconds | None = None
    """How old the signed time may be; default: the provider's recommendation if it signs each attempt again,
    otherwise as long as it retries. The time may be ahead of the receiver's clock by as much, at most 5 minutes."""
    max_body: int | None = None
    """Largest body in bytes; default: the provider's own limit."""
    public_url: str | None = None
    """The URL that the provider calls; needed where the provider signs it."""
    verify_token: str | None = None
    """Token of the handshake, where the provider requires it: `env:NAME`, `file:/path` or the token itself."""
    origins: frozenset[str] = frozenset()
    """Origins that may request deliveries in a handshake, where the provider requires it."""
    weight: int = 1
    """Turns in a worker for one turn of a source with weight 1, while both have events due. A turn is one run of a
    handler."""
    max_running: int | None = None
    """Handlers of it that may run concurrently in one worker process, stages included; default: as many as the worker
    runs."""
    retention: SourceRetention = SourceRetention()
    schema_check: Literal["worker", "intake"] = "worker"
    """Who checks content against the schemas of `[schemas]`. Workers always do, before the handler. `intake`: the
    receiver does, too, before the event is recorded; each delivery then takes longer to acknowledge."""
    schema_break: Literal["keep", "refuse"] = "keep"
    """What the receiver does with content that breaks its schema or is unreadable, if `schema_check` is `intake`:
    `keep` records a dead letter and answers 2xx; `refuse` answers 400 and records nothing, so that the provider may
    give up."""
    reconciled: bool = False
    """Whether you fetch missed events by other means; turns off the warning that the provider does not redeliver."""
    reconcile: ReconcileSettings | None = None
    """How to read the provider's own log; also turns off that warning."""
    current: str | CurrentSettings | None = None
    """How `event.current()` fetches an object from the provider's API: `env:NAME` or `file:/path` of the API's token,
    or a table. Default: `@source.current` says how."""
    options: dict[str, Any] = {}
    """Options of the provider's scheme; for provider `hmac`: how its requests are signed and read."""

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= MAX_WEIGHT:
            raise ConfigError(f"weight must be from 1 to {MAX_WEIGHT}, not {self.weight}")
        if self.max_running is not None and self.max_running < 1:
            raise ConfigError(f"max_running must be at least 1, not {self.max_running}; to stop a source, pause it")
        if self.schema_break == "refuse" and self.schema_check != "intake":
            raise ConfigError('schema_break = "refuse" needs schema_check = "intake": workers see recorded events')

    def __repr__(self) -> str:
        return f"SourceSettings({self.provider!r}, {len(self.secrets)} secrets)"  # neither secrets nor tokens


class SourceOptions(TypedDict, total=False):
    """The keywords of `Inbox.source`: the fields of `SourceSettings`, of any type that converts to the field's.

    None means the default.
    """

    provider: Required[str | Contract]
    """A provider's name, or your own contract."""
    secrets: Sequence[str | SecretSettings]
    path: str | None
    types: Names | None
    other_types: Literal["skip", "reject"]
    mode: Literal["run", "observe"]
    key: Sequence[str] | KeyFunction | None
    """The fields, or a function of the event's content and the request's headers."""
    key_required: bool
    repeatable: Names | None
    ordered: Names
    entity: Sequence[str]
    version: str | None
    after_failure: Literal["continue", "hold"]
    on_failed: Literal["record", "retry", "alert"]
    redelivery_alert: int
    horizon: Duration | None
    tolerance: Duration | None
    max_body: int | None
    public_url: str | None
    verify_token: str | None
    origins: Names
    weight: int
    max_running: int | None
    retention: SourceRetention | Mapping[str, Duration] | None
    schema_check: Literal["worker", "intake"]
    schema_break: Literal["keep", "refuse"]
    reconciled: bool
    reconcile: ReconcileSettings | None
    current: str | CurrentSettings | None
    options: Mapping[str, Any] | None
