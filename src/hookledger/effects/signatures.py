"""Checks the functions that an application declares, so that a mistake is found where it is written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import ConfigError

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def needs_parentheses(
    example: str, **options: str
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """For a method that returns a decorator: says what to write when it is used as the decorator itself, or without
    one of the `options`, each with what it says."""

    def guard(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if args and callable(args[0]):
                raise without_parentheses(args[0], example)
            for option, says in options.items():
                if option not in kwargs:
                    raise ConfigError(f"{example.partition('(')[0]} needs {option}=, {says}")
            return method(self, *args, **kwargs)

        return checked

    return guard


def without_parentheses(function: Callable[..., Any], example: str) -> ConfigError:
    name = example.partition("(")[0]
    return ConfigError(f"{named(function)}: {name} has no parentheses: write {example}")


def check_takes(function: Any, what: str, *parameters: str) -> None:
    """ConfigError unless the function can be called with these by position, and calling it runs it."""
    check_runs(function, what)
    _check_parameters(function, what, parameters)


def check_lists(function: Any, what: str) -> None:
    """ConfigError unless it takes two moments and may yield what is between them."""
    if inspect.iscoroutinefunction(_function(function)):
        raise ConfigError(f"{what} {named(function)} has no yield: it is an async generator of what was sent")
    _check_parameters(function, what, ("since", "until"))


def _check_parameters(function: Any, what: str, parameters: Sequence[str]) -> None:
    try:
        # A wrapper may give what it wraps more than it takes itself.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some that are written in C do not say
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        given = ", ".join(parameters)
        keyword = "async def" if inspect.iscoroutinefunction(_function(function)) else "def"
        form = f"{keyword} {name_of(function)}({given})" if name_of(function) != "<lambda>" else f"lambda {given}: …"
        signature = signature.replace(return_annotation=inspect.Signature.empty)
        raise ConfigError(
            f"{what} {named(function)} takes {signature} and is called with ({given}): write `{form}`"
            f"{_if_method(signature)}"
        ) from None


def check_runs(function: Callable[..., Any], what: str) -> None:
    """ConfigError for what returns something else than a result when it is called."""
    if not callable(function):
        raise ConfigError(f"{what} is a function, not {type(function).__name__} {function!r:.60}")
    if inspect.isclass(function):
        raise ConfigError(f"{what} {named(function)} is a class: declare a function, or an object with __call__")
    plain = _function(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ConfigError(f"{what} {named(function)} has a yield, so calling it runs nothing: return instead")


def named(function: Callable[..., Any]) -> str:
    """A function's name, and where it is written."""
    code = getattr(_function(inspect.unwrap(function)), "__code__", None)
    if code is not None:
        return f"{name_of(function)} ({_shown(code.co_filename)}:{code.co_firstlineno})"
    try:
        return f"{name_of(function)} ({_shown(inspect.getfile(function))}:{inspect.getsourcelines(function)[1]})"
    except (OSError, TypeError):
        return name_of(function)


def name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _function(function: Any) -> Any:
    """The function behind a partial, a method or an object with __call__."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def _shown(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _if_method(signature: inspect.Signature) -> str:
    first = next(iter(signature.parameters), "")
    if first not in ("self", "cls"):
        return ""
    return "; to declare a method, call the decorator with the method of an object"
