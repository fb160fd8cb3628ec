"""What Hookledger must know of a provider, as data. One value of `Contract` for each of its products.

A contract has no code: what is particular to a provider is a value here, and the steps of the path read it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

from ..errors import ConfigError
from .fields import Body, Field, Query
from .handshake import Handshake
from .schemes.base import Scheme

MIB = 1024 * 1024
CREDENTIALS = frozenset(
    {
        b"authorization",
        b"cookie",
        b"proxy-authorization",
        b"x-api-key",
        b"x-auth-token",
        b"x-gitlab-token",
        b"x-goog-channel-token",
        b"x-telegram-bot-api-secret-token",
    }
)
"""Headers that hold secrets wherever they come from, also beside a signature."""
UNKNOWN_TYPE = "unknown"
"""The type of an event that lacks its contract's first type field; handlers bind to it like to any other."""

Grade = Literal["run", "code", "docs", "quoted", "memory", "none"]
"""How a fact was confirmed: by running the provider's own verifier or a published vector; read in its code; in its
documentation; quoted by others; from memory, so not confirmed; or there is nothing to confirm."""


class Answer(Struct, frozen=True):
    """What the provider takes for success."""

    status: int = 202
    body: bytes | None = None
    """None: a word about what was recorded, for whoever looks at the provider's log."""
    content_type: str | None = None


class Retries(Struct, frozen=True, kw_only=True):
    """What the provider does when it is not answered with success."""

    automatic: bool | None = None
    """None: not known."""
    hours: float | None = None
    """From the first delivery to the last one that it makes by itself; None: not known."""
    schedule: str = ""
    disables: str = ""
    """When it gives the endpoint up."""


class Lister(Struct, frozen=True, kw_only=True):
    """Where the provider lists what it sent, or what is true now."""

    list: str = ""
    days: float | None = None
    """How far back it goes; None: not known, or for ever."""
    redeliver: str = ""
    """How a person, or a program, has it sent again."""
    resend_days: float | None = None
    """How long after the event; None: not known, or there is no such thing."""


class Confirmed(Struct, frozen=True, kw_only=True):
    """How the facts of each part were confirmed."""

    signature: Grade
    event: Grade
    handshake: Grade = "none"
    response: Grade = "none"
    retry: Grade = "none"
    reconcile: Grade = "none"
    sources: tuple[str, ...] = ()
    """Where they were read."""


class Contract(Struct, frozen=True, kw_only=True, dict=True):
    """One product of a provider: how its requests are proved, what makes two one event, how it is answered."""

    name: str
    title: str
    scheme: Scheme

    # What an event is
    id: Field | None = None
    """The provider's own id of the event, the same on every redelivery."""
    stable: Literal["yes", "no", "unknown"] = "yes"
    """Whether a redelivery has the same id."""
    key: tuple[Field, ...] = ()
    """What makes two deliveries one event; the id alone if empty. All of them must be present."""
    immutable: tuple[Field, ...] = ()
    """Where there is no key: the fields whose digest stands for the event. Those after the first may be absent; the
    whole content if the first is, or if none is named."""
    hint: bool = False
    """It only says that something changed, in the same words each time: each arrival is an event of its own, and
    its handler asks the provider what is true now."""
    type: tuple[Field, ...] = ()
    """Joined by "."; those after the first may be absent."""
    object_id: tuple[Field, ...] = ()
    """The first one present counts."""
    occurred_at: Field | None = None
    occurred_unit: Literal["s", "ms", "us"] = "s"
    """Of a number; a string is ISO 8601."""
    delivery_id: Field | None = None
    """The provider's id of this one arrival."""
    volatile: tuple[Body, ...] = ()
    """What may differ between deliveries of the same event."""
    repeatable: frozenset[str] = frozenset()
    """Types (by their first field) whose identical bodies are each an intent of their own, so that the body
    is no second identity."""

    # What the body looks like
    content: Literal["json", "form", "braintree"] = "json"
    items: tuple[tuple[str, ...], ...] | None = None
    """The ways to the events where a request holds several: names, and through every array on the way. ((),) where
    the body is the array itself, or one event alone; None where the body is one event."""
    inherit: tuple[str, ...] = ()
    """Fields of what surrounds an item that belong to the item, such as the account it is about."""
    around: tuple[tuple[str, str], ...] = ()
    """The same, each under another name, for what is no item and kept whole: what would else tell it apart."""
    form_field: str | None = None
    """The form field that holds the JSON where the provider can be set to send a form."""
    max_body: int = MIB

    # How it behaves
    answer: Answer = Answer()
    refusal: int | None = None
    """The status that it wants for every failed proof, where it probes for that; 400 or 401 otherwise."""
    deadline: float | None = None
    """Seconds that it waits for an answer; None: not known."""
    handshakes: tuple[Handshake, ...] = ()
    retries: Retries = Retries()
    lister: Lister = Lister()
    secret: str = ""
    """What `secrets` hold, in a few words."""
    options: tuple[str, ...] = ()
    """Fields of the scheme that the source must set."""
    confirmed: Confirmed = Confirmed(signature="none", event="none")
    notes: tuple[str, ...] = ()
    """What the user should know."""

    def __post_init__(self) -> None:
        if self.items is not None and self.key_fields and not any(isinstance(f, Body) for f in self.key_fields):
            raise ConfigError("a request with several events has one set of headers: a key needs a body field")
        if self.hint and self.key_fields:
            raise ConfigError("a hint has no key: each arrival is an event of its own")

    @cached_property
    def body_fields(self) -> tuple[Field, ...]:
        """What is read of an event's content to identify it."""
        fields = (
            *self.key_fields,
            *self.immutable,
            *self.type,
            *self.object_id,
            self.id,
            self.occurred_at,
            self.delivery_id,
        )
        return tuple(field for field in fields if field is not None)

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return self.key or (() if self.id is None else (self.id,))

    @cached_property
    def body_authenticated(self) -> bool:
        return self.scheme.coverage == "body"

    @cached_property
    def id_authenticated(self) -> bool:
        """Whether the signature covers the whole key."""
        return bool(self.key_fields) and all(map(self.scheme.signs, self.key_fields))

    @cached_property
    def type_authenticated(self) -> bool:
        """False where whoever captured a request can send it again as another type."""
        return all(map(self.scheme.signs, self.type))

    @cached_property
    def backed_by_body(self) -> bool:
        """Whether the body is a second identity: it is signed and the id is not, so that a captured body could come
        again under another id. Where nothing is signed it would be no protection."""
        return bool(self.key_fields) and self.body_authenticated and not self.id_authenticated

    @cached_property
    def needs_public_url(self) -> bool:
        """Whether the URL is signed; behind a proxy only the configuration knows what the provider called."""
        return self.scheme.signs_url

    @cached_property
    def horizon(self) -> float | None:
        """Days within which the provider, or a person there, may deliver an event again; None where that is not
        bounded, or not known."""
        hours, days, resend = self.retries.hours, self.lister.days, self.lister.resend_days
        if hours is None or (self.lister.list and days is None) or (self.lister.redeliver and resend is None):
            return None
        return max(hours / 24, days or 0.0, resend or 0.0)

    @cached_property
    def secret_headers(self) -> frozenset[bytes]:
        """Never stored."""
        return self.scheme.secret_headers | CREDENTIALS

    @cached_property
    def secret_parameters(self) -> frozenset[str]:
        """Of the URL, never stored."""
        tokens = {shake.token.name for shake in self.handshakes if isinstance(shake.token, Query)}
        return self.scheme.secret_parameters | tokens
