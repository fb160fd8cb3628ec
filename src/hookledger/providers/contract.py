"""What Hookledger must know of a provider, as data. One value of `Contract` for each of its products.

A contract has no code: what is particular to a provider is a value here, and the steps of the path read it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

from ..errors import ConfigError
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
    """What it does about an endpoint that keeps failing, and when: a clause that begins with the verb."""
    anew: Literal["yes", "no", "unknown"] = "unknown"
    """Whether each attempt is signed anew, with the time of that attempt; only `yes` allows a narrow window for the
    signed time. Of interest where a time is signed."""
    why: str = ""
    """How that is known, or what is not."""
    advice: str = ""
    """What to set at the provider so that an outage loses no events, as `what happens: what to do`; said at
    start-up."""


class Lister(Struct, frozen=True, kw_only=True):
    """Where the provider lists what it sent, or what is true now."""

    list: str = ""
    days: float | None = None
    """How far back it goes; None: not known, or for ever."""
    enable: str = ""
    """What must be switched on first, where the list is empty until then."""
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


class TypeFields(Struct, frozen=True, kw_only=True):
    """Where some types have what they are about, and when."""

    types: tuple[str, ...]
    """By their first field."""
    object_id: tuple[Field, ...] = ()
    """Joined by ":"; the contract's own where one is absent."""
    occurred_at: tuple[Field, ...] = ()
    """The first one present counts."""


def names(text: str) -> frozenset[str]:
    """Types as they are written in a contract: many, and none with a space."""
    return frozenset(text.split())


class Says(Struct, frozen=True):
    """What a body of this type says; a known body that says otherwise is quarantined as that type."""

    type: str
    field: Body
    """A body without it may be of the type: some sources ask the provider for fewer fields."""
    value: str | bool | None = None
    """None: anything but null."""

    def denied(self, content: Content) -> bool:
        given = inside(self.field, content)
        return given is not ABSENT and (given is None if self.value is None else given != self.value)


class Shared(Struct, frozen=True):
    """Types that the provider may send with one and the same body: each of them is an event of its own, once."""

    name: str
    """Kept with each body: never renamed."""
    types: frozenset[str]
    says: tuple[Says, ...] = ()
    """What tells some of them from the others."""


class Shape(Struct, frozen=True, kw_only=True):
    """How a body shows its type, where the type itself is in a header that is not signed."""

    types: frozenset[str]
    """Several where their bodies look alike."""
    has: tuple[Body, ...] = ()
    """Fields that are there, be they null."""
    lacks: tuple[Body, ...] = ()
    """Fields that tell bodies of other types apart from it."""
    exact: tuple[tuple[Body, frozenset[str]], ...] = ()
    """Objects, and all the names that each of them has; the body itself is `WHOLE`."""
    says: tuple[tuple[Body, str | bool], ...] = ()
    """Fields and their values."""

    def fits(self, content: Content) -> bool:
        return (
            all(inside(field, content) is not ABSENT for field in self.has)
            and all(inside(field, content) is ABSENT for field in self.lacks)
            and all(_has_exactly(inside(field, content), names) for field, names in self.exact)
            and all(inside(field, content) == value for field, value in self.says)
        )


def _has_exactly(found: object, names: frozenset[str]) -> bool:
    return isinstance(found, dict) and found.keys() == names


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
    occurred_else: tuple[Field, ...] = ()
    """Where it is not there: the first of these that is."""
    per_type: tuple[TypeFields, ...] = ()
    """Object and time where they depend on the type; object_id and occurred_at serve the types that are not here."""
    account: tuple[Field, ...] = ()
    """On whose behalf, where a source hears of several accounts; the first one present counts."""
    occurred_unit: Literal["s", "ms", "us"] = "s"
    """Of a number; a string is ISO 8601."""
    delivery_id: Field | None = None
    """The provider's id of this one arrival."""
    retry: tuple[Field, ...] = ()
    """What a retry says of itself: its number, then why; kept with the delivery."""
    hook_id: Field | None = None
    """The provider's id of the webhook that delivered, to tell when two feed one source."""
    volatile: tuple[Body, ...] = ()
    """What may differ between deliveries of the same event."""
    types: frozenset[str] = frozenset()
    """The documented types, by their first field, where a header that is not signed tells them."""
    shared: tuple[Shared, ...] = ()
    """Which of them may come with the same body; a known body under any other type is quarantined."""
    shown: tuple[Shape, ...] = ()
    """Which of them the body shows."""
    repeatable: frozenset[str] = frozenset()
    """Types (`team`) or types with their action (`team.created`) whose identical bodies are each an event of their
    own. It holds where the type is signed, or the body shows it; else the second is quarantined with an alert. Where
    the body may be of several types, it repeats as the one that it came as first, and is accepted once as each
    other that shares it."""
    tokens: tuple[Field, ...] = ()
    """What is signed without the body, once for each event: none of them proves a second one."""

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
        if self.tokens and (self.items is not None or not all(map(self.scheme.signs, self.tokens))):
            raise ConfigError("a token is signed, and proves a request with one event")
        named = self.repeatable.union(*(g.types for g in self.shared), *(s.types for s in self.shown))
        if self.types and not all(name in self.types or name.partition(".")[0] in self.types for name in named):
            raise ConfigError("a type that shares, shows or repeats its body is one of the documented types")

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
        """False where whoever captured a request can send it again as another type."""
        return all(map(self.scheme.signs, self.type))

    @cached_property
    def backed_by_body(self) -> bool:
        """Whether the body is a second identity: it is signed and the id is not, so that a captured body could come
        again under another id. Where nothing is signed it would be no protection."""
        return bool(self.key_fields) and self.body_authenticated and not self.id_authenticated

    @cached_property
    def groups(self) -> dict[str, bytes]:
        """The name of the group that a type shares bodies with."""
        return {name: group.name.encode() for group in self.shared for name in group.types}

    @cached_property
    def said(self) -> dict[str, tuple[Says, ...]]:
        """What bodies of a type say, by the type."""
        every = [said for group in self.shared for said in group.says]
        return {said.type: tuple(one for one in every if one.type == said.type) for said in every}

    def denies(self, kind: str, content: Content) -> bool:
        """Whether the body says that it is not of this type."""
        return any(said.denied(content) for said in self.said.get(kind, ()))

    def family(self, kind: str, first: str, content: Content) -> frozenset[str]:
        """The types that the body may be of, this one among them; empty where the body does not show this one.
        `first`: what the first field of the type gives."""
        if self.type_authenticated:
            return frozenset({kind})
        fitting = frozenset[str]().union(*(shape.types for shape in self.shown if shape.fits(content)))
        return fitting if kind in fitting or first in fitting else frozenset()

    def shows_any(self, kind: str) -> bool:
        """Whether a body can show this type at all."""
        named = {kind, kind.partition(".")[0]}  # a type with its action, where every action looks alike
        return self.type_authenticated or any(named & shape.types for shape in self.shown)

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
