"""Where effects are declared: `@inbox.effect(repeat=…)` and `@inbox.ensure()`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from ..clock import Seconds
from ..errors import ConfigError
from ..retry import RetryPolicy
from ..states import Repeat
from .model import Effect, Op
from .policy import Policy
from .signatures import needs_parentheses

P = ParamSpec("P")
R = TypeVar("R")


class EffectOptions(TypedDict, total=False):
    """The options that `@inbox.effect` and `@inbox.ensure` share."""

    name: str | None
    """Part of the effect's identity: give it when the function is renamed. Default: the function's name."""
    timeout: float | str
    """For one call; default: 10 s."""
    grace: float | str
    """Added before a call without an answer is given up; default: 5 s."""
    retry: RetryPolicy | None
    downstream: str | None
    """Effects with the same downstream share a circuit and slots; default: the effect's name."""
    serial: str | None
    """The parameter whose equal values are performed in order, from the outbox."""
    volatile: Iterable[str]
    """Parameters that may differ under one key."""
    shared: bool
    """One key for all sources."""


class Declaring:
    """The decorator that declares an effect; its overloads tell async functions from plain ones."""

    def __init__(self, add: Callable[[Effect[Any, Any]], None], name: str | None, policy: Policy) -> None:
        self._add = add
        self._name = name
        self._policy = policy

    @overload
    def __call__(self, function: Callable[Concatenate[Op, P], Coroutine[Any, Any, R]]) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Op, P], R]) -> Effect[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Effect[Any, Any]:
        name = self._name or getattr(function, "__name__", "")
        if not name or len(name) > 255:
            raise ConfigError("an effect has a name of at most 255 characters: give name=")
        policy = msgspec.structs.replace(self._policy, downstream=self._policy.downstream or name)
        effect: Effect[Any, Any] = Effect(function, name, policy)
        self._add(effect)
        return effect


class Effects:
    """Every effect of an inbox."""

    def __init__(self) -> None:
        self._effects: dict[str, Effect[Any, Any]] = {}

    def add(self, effect: Effect[Any, Any]) -> None:
        if effect.name in self._effects:
            raise ConfigError(f"there are two effects called {effect.name!r}: give one of them name=")
        self._effects[effect.name] = effect

    def verify(self) -> None:
        """What can only be seen when everything is declared."""
        for effect in self._effects.values():
            if effect.policy.ask_first and effect.checker is None:
                raise ConfigError(f"effect {effect.name!r} ensures a state and needs @{effect.name}.check to read it")

    def find(self, name: str) -> Effect[Any, Any] | None:
        return self._effects.get(name)

    def all(self) -> list[Effect[Any, Any]]:
        return list(self._effects.values())


class EffectDecorators:
    """`effect` and `ensure`: the base of Inbox."""

    def __init__(self) -> None:
        super().__init__()
        self.effects: Effects = Effects()

    @needs_parentheses(
        '@inbox.effect(repeat="keyed", window="24h")',
        repeat="what may be done if the outcome of a call is unknown: write "
        '@inbox.effect(repeat="keyed", window="24h"), or repeat="safe", "accept" or "never"',
    )
    def effect(
        self,
        *,
        repeat: Literal["safe", "keyed", "accept", "never"],
        window: float | str | None = None,
        **options: Unpack[EffectOptions],
    ) -> Declaring:
        """Declare an effect: a call that `event.call` makes now or `event.later` after the commit.

        `repeat` says what may be done when the outcome of a call is unknown: `"safe"`, it converges, so call
        again; `"keyed"`, the remote deduplicates on `op.key` within `window`, so call again until then; `"accept"`,
        a duplicate is acceptable and is logged; `"never"`, an operator decides. `@effect.check` asks the remote
        first. The other options are those of EffectOptions.
        """
        try:
            kind = Repeat(repeat)
        except ValueError:
            raise ConfigError(f"repeat is one of {', '.join(Repeat)}, not {repeat!r}") from None
        if (kind is Repeat.KEYED) != (window is not None):
            raise ConfigError('window= is required with repeat="keyed" and only there')
        policy = _policy(kind, options, window=None if window is None else Seconds(window))
        if policy.timeout <= 0:
            raise ConfigError("timeout= must be greater than 0")
        if policy.window is not None and policy.window <= policy.timeout:
            raise ConfigError("window= must be longer than timeout=")
        return Declaring(self.effects.add, options.get("name"), policy)

    @needs_parentheses("@inbox.ensure()")
    def ensure(self, **options: Unpack[EffectOptions]) -> Declaring:
        """Declare an effect that brings about a state. Its `@effect.check` reads the state before every call, and
        nothing is called when it is so already; an unknown outcome is repeated, because the call converges.
        """
        return Declaring(self.effects.add, options.get("name"), _policy(Repeat.SAFE, options, ask_first=True))


def _policy(
    repeat: Repeat, options: EffectOptions, *, window: float | None = None, ask_first: bool = False
) -> Policy:
    """Return the policy that these options describe; TypeError for an option that does not exist."""
    given: dict[str, Any] = {name: value for name, value in options.items() if name != "name"}
    if unknown := given.keys() - EffectOptions.__annotations__.keys():
        raise TypeError(f"an effect has no option {', '.join(sorted(unknown))}")
    for name in ("retry", "downstream", "serial"):
        if given.get(name) is None:
            given.pop(name, None)
    for name, convert in (("timeout", Seconds), ("grace", Seconds), ("volatile", frozenset)):
        if name in given:
            given[name] = convert(given[name])
    return Policy(repeat, window=window, ask_first=ask_first, **given)
