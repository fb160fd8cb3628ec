"""What an effect is: its function, its arguments, and what to do when its outcome is unknown."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from inspect import Parameter, iscoroutinefunction
from types import SimpleNamespace
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_type_hints
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Struct

from ..errors import BadArguments, BadResult, ConfigError
from ..ids import effect_identity, operation, operation_key
from ..ledger import Effect as Entry
from ..ledger import Intent, Started
from ..observe.metrics.counts import EffectCounts
from ..observe.spans import current
from .example import example
from .policy import Policy
from .signatures import check_runs, name_of, named

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

MAX_ARGUMENTS = 65_536
MAX_RESULT = 65_536
MAX_KEY = 1_024
_VISIBLE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
"""What a header holds as it is."""


class Performance(Struct, frozen=True):
    """One effect about to be performed, or checked."""

    identity: bytes
    source: str
    name: str
    key: str
    event_id: UUID
    arguments: bytes
    generation: int
    number: int
    traceparent: str | None = None
    """The span of the attempt that asked for it, if the application has tracing."""
    correlation_id: str | None = None
    """The delivery's; None: the event's id."""
    event_key: str | None = None

    @classmethod
    def of(cls, entry: Entry) -> Performance:
        return cls(**{field: getattr(entry, field) for field in cls.__struct_fields__})

    @classmethod
    def first(cls, intent: Intent, started: Started) -> Performance:
        facts: dict[str, Any] = {"generation": started.generation, "number": started.number}
        return cls(**facts, **{f: getattr(intent, f) for f in cls.__struct_fields__ if f not in facts})


class Op:
    """One performance of an effect, as its function sees it.

    `key` is the same for every call of this effect, and no other effect has it: give it to the remote as its
    idempotency key. Only a repetition that an operator asks for has a new one.
    """

    def __init__(self, performance: Performance) -> None:
        self._effect = performance

    def __repr__(self) -> str:
        return f"<op {self.name} {self.effect_key!r} {self.key}>"

    @property
    def name(self) -> str:
        return self._effect.name

    @property
    def effect_key(self) -> str:
        """The key that the handler gave."""
        return self._effect.key

    @property
    def source(self) -> str:
        return self._effect.source

    @property
    def event_id(self) -> UUID:
        """Of the event that asked for it first."""
        return self._effect.event_id

    @property
    def event_key(self) -> str | None:
        """The key of that event; None if the event is gone."""
        return self._effect.event_key

    @property
    def call(self) -> int:
        """1 for the first physical call."""
        return self._effect.number

    @property
    def key(self) -> str:
        """The idempotency key: 43 characters of a-z, 0-9 and _."""
        return operation_key(self._effect.identity, self._effect.generation)

    @property
    def correlation_id(self) -> str:
        """What log lines of this event have too: `X-Request-Id` of its first delivery, else the trace id of that
        delivery's `traceparent`, else the event's id. Not an idempotency key: all effects of an event share it."""
        return self._effect.correlation_id or str(self.event_id)

    @property
    def headers(self) -> dict[str, str]:
        """Headers for the outgoing call: `X-Correlation-Id`, `X-Event-Id`, `X-Event-Key` (percent-encoded), and
        `traceparent` if the application has tracing."""
        headers = {"X-Correlation-Id": self.correlation_id, "X-Event-Id": str(self.event_id)}
        if self.event_key is not None:
            headers["X-Event-Key"] = quote(self.event_key, safe=_VISIBLE)
        if span := current():
            headers["traceparent"] = str(span)
        return headers

    @property
    def uuid(self) -> UUID:
        """The same for APIs that demand a UUID: it looks like a random one, and never changes."""
        return UUID(bytes=operation(self._effect.identity, self._effect.generation)[:16], version=4)


class Happened(Struct, frozen=True):
    """What a check returns when it found that the effect happened, with the result that the call would have had."""

    result: Any = None


Verdict = Happened | bool | None
"""What a check found: it happened, it did not, or that cannot be told."""

Function = Callable[Concatenate[Op, P], Awaitable[R]] | Callable[Concatenate[Op, P], R]
Check = Callable[Concatenate[Op, P], Awaitable[Verdict]] | Callable[Concatenate[Op, P], Verdict]


class Effect(Generic[P, R_co]):
    """A declared effect. Handlers perform it by `event.call` or `event.later`."""

    def __init__(self, function: Function[P, R_co], name: str, policy: Policy) -> None:
        self.function = function
        self.name = name
        self.policy = policy
        self.checker: Check[P] | None = None
        self.counts: EffectCounts = EffectCounts()
        self._signature, kinds = _parameters(function, name)
        for asked in {policy.serial} - {None} | policy.volatile:
            if asked not in self._signature.parameters:
                raise ConfigError(f"effect {name!r} has no parameter {asked!r}")
        fields = [_field(parameter, kinds.get(n, Any)) for n, parameter in self._signature.parameters.items()]
        kept = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._arguments = _decoder(kept, name)
        self._returns = kinds.get("return", Any)
        self._result = _decoder(self._returns, name)

    def __repr__(self) -> str:
        return f"<effect {self.name} repeat={self.policy.repeat}>"

    def check(self, function: Check[P]) -> Check[P]:
        """Declare how to ask the remote whether the effect happened; it gets what the effect's function gets.

        It returns True or `Happened(result)`, False, or None when it cannot tell. It must not change anything.
        """
        if self.checker is not None:
            raise ConfigError(f"effect {self.name!r} has two checks")
        check_runs(function, f"effect {self.name!r}: its check")
        names, own = list(inspect.signature(function).parameters), list(self._signature.parameters)
        if not names or names[1:] != own:
            form = f"{name_of(function)}({', '.join(['op', *own])})"
            raise ConfigError(
                f"effect {self.name!r}: its check {named(function)} takes ({', '.join(names)}), not the parameters "
                f"of the effect: write {form}"
            )
        self.checker = function
        return function

    # ── what the ledger keeps of it ──

    def identity(self, source: str, key: str) -> bytes:
        return effect_identity("" if self.policy.shared else source, self.name, key)

    def keep(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, bytes, str | None]:
        """The arguments as JSON, the digest of those that identify the effect, and the entity of its lane."""
        try:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            kept = msgspec.json.encode(bound.arguments, order="deterministic")
            self.arguments(kept)
            telling = {n: value for n, value in bound.arguments.items() if self._tells(n, value)}
            digest = sha256(msgspec.json.encode(telling, order="deterministic")).digest()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadArguments(f"effect {self.name!r}: {error}") from error
        if len(kept) > MAX_ARGUMENTS:
            raise BadArguments(
                f"effect {self.name!r}: its arguments are over {MAX_ARGUMENTS} bytes; pass a reference"
            )
        lane = None if self.policy.serial is None else str(bound.arguments[self.policy.serial])
        return kept, digest, lane

    def _tells(self, name: str, value: Any) -> bool:
        """Whether it tells this effect from another. A default does not, so that parameters may be added with one."""
        default = self._signature.parameters[name].default
        return name not in self.policy.volatile and (default is Parameter.empty or value != default)

    def arguments(self, kept: bytes) -> dict[str, Any]:
        """What the ledger kept, as the function's parameters have it."""
        try:
            return msgspec.structs.asdict(self._arguments.decode(kept))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise BadArguments(f"effect {self.name!r}: {error}") from error

    def keep_result(self, result: Any) -> bytes:
        try:
            kept = msgspec.json.encode(result)
            self._result.decode(kept)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadResult(f"effect {self.name!r}: its result cannot be kept: {error}") from error
        if len(kept) > MAX_RESULT:
            raise BadResult(f"effect {self.name!r}: its result is over {MAX_RESULT} bytes; return a reference")
        return kept

    @property
    def form(self) -> str:
        """An example of its result as JSON."""
        return json.dumps(example(self._returns), default=str)

    @property
    def needs_result(self) -> bool:
        """Whether a handler cannot do without: its type does not allow None."""
        try:
            self._result.decode(b"null")
        except msgspec.ValidationError:
            return True
        return False

    def result(self, kept: bytes | None) -> R_co:
        """As the first call returned it, and every later run gets it."""
        try:
            return self._result.decode(b"null" if kept is None else kept)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise BadResult(f"effect {self.name!r}: the recorded result does not fit its type: {error}") from error


def effect_key(key: object, what: str = "an effect key") -> str:
    """The key as text; numbers and UUIDs are what they look like."""
    if isinstance(key, bool) or not isinstance(key, str | int | UUID):
        raise BadArguments(f"{what} is text, a number or a UUID, not {type(key).__name__}")
    try:
        text = str(key)
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadArguments(f"{what} is text that UTF-8 can hold") from None
    except ValueError:  # Python writes out no number of more than 4,300 digits
        size, text = MAX_KEY + 1, "0"
    if not text.strip() or size > MAX_KEY:
        raise BadArguments(f"{what} is neither blank nor over {MAX_KEY} bytes")
    return text


def shown(key: str) -> str:
    """A key as its column can hold it; the identity has it exactly."""
    return key.replace("\0", "\ufffd")[:255]


def _parameters(function: Callable[..., Any], name: str) -> tuple[inspect.Signature, dict[str, Any]]:
    """Those after `op`, and their types where they can be known."""
    check_runs(function, f"effect {name!r}:")
    signature, kinds = inspect.signature(function), _hints(function)
    first, *rest = signature.parameters.values() or (None,)
    if first is None or not _is_operation(first, kinds.pop(first.name, None)):
        raise _no_operation(function, name, signature)
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY) for p in rest):
        raise ConfigError(f"effect {name!r} names each of its parameters: they are what the ledger keeps")
    return signature.replace(parameters=rest), kinds


def _is_operation(first: Parameter, kind: Any) -> bool:
    """By its name, or by its type, which may be there for the type checker only."""
    if first.kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        return False
    annotated = str(first.annotation).strip("'\"").rpartition(".")[2] == Op.__name__
    return kind is Op or annotated or first.name in ("op", "operation") or first.name.startswith("_")


def _no_operation(function: Callable[..., Any], name: str, signature: inspect.Signature) -> ConfigError:
    given = list(signature.parameters)
    form = f"{name}({', '.join(['op', *given])})"
    other = f"; if {given[0]!r} is the operation, annotate it: {given[0]}: Op" if given else ""
    return ConfigError(
        f"effect {name!r}: the first parameter of {named(function)} must be the operation: write {form}{other}"
    )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types that can be known here; some names may be there for the type checker only."""
    target: Any = function
    while isinstance(target, partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    names = getattr(inspect.unwrap(target), "__globals__", {})
    kinds: dict[str, Any] = {}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        with contextlib.suppress(NameError, AttributeError, TypeError):
            kinds |= get_type_hints(SimpleNamespace(__annotations__={name: annotation}), names)
    return kinds


def _field(parameter: Parameter, kind: Any) -> Any:
    if parameter.default is Parameter.empty:
        return parameter.name, kind
    return parameter.name, kind, msgspec.field(default_factory=lambda: parameter.default)


def _decoder(kind: Any, name: str) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(kind)
    except TypeError as error:
        raise ConfigError(f"effect {name!r}: its parameters and result are kept as JSON: {error}") from error


def is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may be async by its __call__
    return iscoroutinefunction(function) or iscoroutinefunction(call)
