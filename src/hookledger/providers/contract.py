"""Facts about providers, as data: one `Contract` per product.

A contract has no code: everything specific to a provider is a value here, which the intake reads.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

from msgspec import Struct

from ..errors import ConfigError
from ..ledger import FIRST, LAST, MIDDLE
from .behaviour import Answer, LateForm, Retries
from .fetching.facts import Fetcher
from .fields import ABSENT, Body, Content, Field, Query, inside
from .handshake import Handshake
from .schemes.base import Scheme

MIB = 1024 * 1024
WHOLE = Body(())
"""The event's content itself."""
CREDENTIALS = frozenset(
    {
        b"authorization",
        b"api-key",
        b"cookie",
        b"private-token",
        b"proxy-authorization",
        b"x-access-token",
        b"x-amz-security-token",
        b"x-api-key",
        b"x-auth-token",
        b"x-csrf-token",
        b"x-gitlab-token",
        b"x-goog-channel-token",
        b"x-secret",
        b"x-telegram-bot-api-secret-token",
    }
)
"""Headers that hold secrets, from any sender, also beside a signature."""
UNKNOWN_TYPE = "unknown"
"""The type of an event without the contract's first type field; handlers can bind to it."""

Grade = Literal["run", "code", "docs", "quoted", "memory", "none"]
"""How a fact was confirmed: by running the provider's own verifier or a published test vector; in its code; in its
documentation; quoted by others; from memory, so not confirmed; or nothing to confirm."""


class Lister(Struct, frozen=True, kw_only=True):
    """Where the provider lists its events, or the current state."""

    list: str = ""
    days: float | None = None
    """How many days the list covers; None: unknown, or unlimited."""
    enable: str = ""
    """What must be turned on first, if the list is empty until then."""
    redeliver: str = ""
    """How you, or a program, make the provider redeliver an event."""
    resend_days: float | None = None
    """For how many days after the event that works; None: unknown, or not possible."""


class Confirmed(Struct, frozen=True, kw_only=True):
    """How the facts of each part were confirmed."""

    signature: Grade
    event: Grade
    handshake: Grade = "none"
    response: Grade = "none"
    retry: Grade = "none"
    reconcile: Grade = "none"
    fetch: Grade = "none"
    sources: tuple[str, ...] = ()
    """Where the facts are from."""


class TypeFields(Struct, frozen=True, kw_only=True):
    """Where events of some types have their object and time."""

    types: tuple[str, ...]
    """The values of the type's first field."""
    object_id: tuple[Field, ...] = ()
    """Joined by ":"; if one is absent, the contract's `object_id` is used."""
    occurred_at: tuple[Field, ...] = ()
    """The first one present is used."""


def names(text: str) -> frozenset[str]:
    """Return the types in a text that separates them by spaces."""
    return frozenset(text.split())


class Says(Struct, frozen=True):
    """A field's value in bodies of this type; a known body with another value is quarantined as that type."""

    type: str
    field: Body
    """A body without the field may still be of the type: some sources configure the provider to send fewer fields."""
    value: str | bool | None = None
    """None: anything but null."""

    def denied(self, content: Content) -> bool:
        given = inside(self.field, content)
        return given is not ABSENT and (given is None if self.value is None else given != self.value)


class Shared(Struct, frozen=True):
    """Types that the provider may send with the same body: each of them is a separate event, once."""

    name: str
    """Stored with each body: never rename it."""
    types: frozenset[str]
    says: tuple[Says, ...] = ()
    """Values that distinguish some of them."""


class Shape(Struct, frozen=True, kw_only=True):
    """How a body shows its type, if the type is in an unsigned header."""

    types: frozenset[str]
    """Several if their bodies have the same shape."""
    has: tuple[Body, ...] = ()
    """Fields that must be present; null is allowed."""
    lacks: tuple[Body, ...] = ()
    """Fields that must be absent: only other types have them."""
    exact: tuple[tuple[Body, frozenset[str]], ...] = ()
    """Objects with the exact set of their names; `WHOLE` is the body itself."""
    says: tuple[tuple[Body, str | bool], ...] = ()
    """Fields with their values."""

    def fits(self, content: Content) -> bool:
        return (
            all(inside(field, content) is not ABSENT for field in self.has)
            and all(inside(field, content) is ABSENT for field in self.lacks)
            and all(_has_exactly(inside(field, content), names) for field, names in self.exact)
            and all(inside(field, content) == value for field, value in self.says)
        )


def _has_exactly(found: object, names: frozenset[str]) -> bool:
    return isinstance(found, dict) and found.keys() == names


def _pattern(given: str) -> str:
    return ".*".join(map(re.escape, given.split("*")))


class Contract(Struct, frozen=True, kw_only=True, dict=True):
    """One product of a provider: how its requests are verified, how events are identified, how to respond."""

    name: str
    title: str
    scheme: Scheme

    # Identity of events
    id: Field | None = None
    """The provider's id of the event, the same on every redelivery."""
    stable: Literal["yes", "no", "unknown"] = "yes"
    """Whether a redelivery has the same id."""
    key: tuple[Field, ...] = ()
    """The fields that make up the event key; empty: the id. All of them must be present."""
    immutable: tuple[Field, ...] = ()
    """Without a key: the fields whose digest identifies the event. Those after the first may be absent. If the first
    is absent, or none is named, the digest of the whole content does."""
    hint: bool = False
    """Whether it only says that something changed, with the same body each time: each arrival is a separate event,
    and its handler fetches the current state from the provider."""
    type: tuple[Field, ...] = ()
    """Joined by "."; those after the first may be absent."""
    type_names: tuple[tuple[str, str], ...] = ()
    """Words for values of the type's first field, such as numbers; only for types of several fields."""
    object_id: tuple[Field, ...] = ()
    """The first one present is used."""
    occurred_at: Field | None = None
    occurred_else: tuple[Field, ...] = ()
    """If `occurred_at` is absent: the first of these that is present."""
    per_type: tuple[TypeFields, ...] = ()
    """Object and time of types that have them elsewhere; other types use object_id and occurred_at."""
    account: tuple[Field, ...] = ()
    """The account of the event, if a source serves several; the first one present is used."""
    occurred_unit: Literal["s", "ms", "us"] = "s"
    """The unit of a number; a string is ISO 8601."""
    delivery_id: Field | None = None
    """The provider's id of this arrival."""
    retry: tuple[Field, ...] = ()
    """The retry's number, then its reason; stored with the delivery."""
    version: Field | None = None
    """The version of the event's form, by which sources with `version = "contract"` select the handler."""
    hook_id: Field | None = None
    """The provider's id of the webhook, to detect that two webhooks deliver to one source."""
    volatile: tuple[Body, ...] = ()
    """Fields that may differ between deliveries of the same event."""
    first_types: tuple[str, ...] = ()
    """The types with which an object begins, as patterns in which `*` is any text: `*.created`. Of two events with
    the same version, a guard takes one of these for the older; see `rank`."""
    last_types: tuple[str, ...] = ()
    """The types with which an object ends, such as `*.deleted`: the newer of two events with the same version."""
    types: frozenset[str] = frozenset()
    """The documented types, by their first field, if an unsigned header holds the type."""
    shared: tuple[Shared, ...] = ()
    """Types that may have the same body; a known body under any other type is quarantined."""
    shown: tuple[Shape, ...] = ()
    """Types that the body shows."""
    repeatable: frozenset[str] = frozenset()
    """Types (`team`) or types with their action (`team.created`) of which each identical body is a separate event.
    Applies if the type is signed or the body shows it; otherwise the second body is quarantined with an alert. A body
    that fits several types repeats as the type that came first, and is accepted once as each other type that shares
    it."""
    tokens: tuple[Field, ...] = ()
    """Fields that are signed without the body, once per event: each proves one event only."""

    # Form of the body
    content: Literal["json", "form", "braintree"] = "json"
    items: tuple[tuple[str, ...], ...] | None = None
    """The paths to the events if a request holds several: names, through every array on the path. ((),): the body is
    the array itself, or a single event. None: the body is one event."""
    inherit: tuple[str, ...] = ()
    """Fields of the objects around an item that are added to the item, such as its account."""
    around: tuple[tuple[str, str], ...] = ()
    """The same under another name, for an object without items, which is kept whole: they distinguish it."""
    form_field: str | None = None
    """The form field that holds the JSON, if the provider can be set to send a form."""
    max_body: int = MIB

    # Behaviour of the provider
    answer: Answer = Answer()
    late: tuple[LateForm, ...] = ()
    """What is sent past the deadline of a handler that answers, unless its declaration says; the first form that
    matches the type is used."""
    rejection: int | None = None
    """The status that it requires for unauthentic requests, if it tests that; None: 400 or 401."""
    deadline: float | None = None
    """Seconds that it waits for a response; None: unknown."""
    handshakes: tuple[Handshake, ...] = ()
    retries: Retries = Retries()
    lister: Lister = Lister()
    fetcher: Fetcher | None = None
    secret: str = ""
    """What `secrets` must contain, in a few words."""
    options: tuple[str, ...] = ()
    """Fields of the scheme that the source must set."""
    confirmed: Confirmed = Confirmed(signature="none", event="none")
    notes: tuple[str, ...] = ()
    """What users should know."""

    def __post_init__(self) -> None:
        if self.items is not None and self.key_fields and not any(isinstance(f, Body) for f in self.key_fields):
            raise ConfigError("all events of a request have the same headers: add a body field to the key")
        if self.hint and self.key_fields:
            raise ConfigError("each arrival of a hint is a separate event: remove its key")
        if self.tokens and (self.items is not None or not all(map(self.scheme.signs, self.tokens))):
            raise ConfigError("tokens must be signed, and a request with tokens must hold one event")
        if self.type_names and len(self.type) < 2:
            raise ConfigError("type_names needs a type of several fields: add one, or remove type_names")
        named = self.repeatable.union(*(g.types for g in self.shared), *(s.types for s in self.shown))
        if self.types and not all(name in self.types or name.partition(".")[0] in self.types for name in named):
            raise ConfigError("types in shared, shown and repeatable must be among the documented types")

    @cached_property
    def body_fields(self) -> tuple[Field, ...]:
        """The fields of an event's content that identify it."""
        fields = (
            *self.key_fields,
            *self.immutable,
            *self.type,
            *self.object_id,
            self.id,
            self.occurred_at,
            *self.occurred_else,
            *self.account,
            *(field for known in self.per_type for field in (*known.object_id, *known.occurred_at)),
            self.delivery_id,
            *self.tokens,
            *(said.field for known in self.said.values() for said in known),
        )
        return tuple(field for field in fields if field is not None)

    @cached_property
    def fields_of(self) -> dict[str, TypeFields]:
        """`per_type`, by the first field of the type."""
        return {name: known for known in self.per_type for name in known.types}

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
        """Whether the type is signed; if not, a captured request can be sent as another type."""
        return all(map(self.scheme.signs, self.type))

    @cached_property
    def backed_by_body(self) -> bool:
        """Whether the body also identifies the event: it is signed and the id is not, so a captured body could be
        sent under another id. Without a signature it would protect nothing."""
        return bool(self.key_fields) and self.body_authenticated and not self.id_authenticated

    @cached_property
    def groups(self) -> dict[str, bytes]:
        """The name of each type's group of types that share a body."""
        return {name: group.name.encode() for group in self.shared for name in group.types}

    @cached_property
    def said(self) -> dict[str, tuple[Says, ...]]:
        """Each type's `Says`."""
        every = [said for group in self.shared for said in group.says]
        return {said.type: tuple(one for one in every if one.type == said.type) for said in every}

    @cached_property
    def named_types(self) -> dict[bytes, bytes]:
        """`type_names`, as bytes."""
        return {value.encode(): name.encode() for value, name in self.type_names}

    @cached_property
    def _ranked(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        first, last = ("|".join(map(_pattern, given)) for given in (self.first_types, self.last_types))
        return re.compile(first or r"(?!)"), re.compile(last or r"(?!)")

    def rank(self, kind: str) -> int:
        """Return where a type stands in an object's life: FIRST, LAST, or MIDDLE for all others."""
        first, last = self._ranked
        if last.fullmatch(kind):
            return LAST
        return FIRST if first.fullmatch(kind) else MIDDLE

    def denies(self, kind: str, content: Content) -> bool:
        """Whether the body shows that it is not of this type."""
        return any(said.denied(content) for said in self.said.get(kind, ()))

    def family(self, kind: str, first: str, content: Content) -> frozenset[str]:
        """Return the types that the body fits, this one among them; empty if the body does not show this one.
        `first`: the value of the type's first field."""
        if self.type_authenticated:
            return frozenset({kind})
        fitting = frozenset[str]().union(*(shape.types for shape in self.shown if shape.fits(content)))
        return fitting if kind in fitting or first in fitting else frozenset()

    def shows_any(self, kind: str) -> bool:
        """Whether a body can show this type at all."""
        named = {kind, kind.partition(".")[0]}  # a type with its action, if all actions have the same shape
        return self.type_authenticated or any(named & shape.types for shape in self.shown)

    @cached_property
    def needs_public_url(self) -> bool:
        """Whether the URL is signed; behind a proxy only the configuration knows the URL that the provider called."""
        return self.scheme.signs_url

    @cached_property
    def horizon(self) -> float | None:
        """Days within which the provider, or someone using its dashboard, may redeliver an event; None: unlimited or
        unknown."""
        hours, days, resend = self.retries.hours, self.lister.days, self.lister.resend_days
        if hours is None or (self.lister.list and days is None) or (self.lister.redeliver and resend is None):
            return None
        return max(hours / 24, days or 0.0, resend or 0.0)

    @cached_property
    def secret_headers(self) -> frozenset[bytes]:
        """Headers that are never stored."""
        return self.scheme.secret_headers | CREDENTIALS

    @cached_property
    def secret_parameters(self) -> frozenset[str]:
        """URL parameters that are never stored."""
        tokens = {shake.token.name for shake in self.handshakes if isinstance(shake.token, Query)}
        return self.scheme.secret_parameters | tokens
