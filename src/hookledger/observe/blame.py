"""Decide whose code raised an exception: the user's, a library's or Hookledger's."""

from __future__ import annotations

import os
import re
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from msgspec import Struct

from ..store.causes import MAX_NAME

BUGS = (KeyError, TypeError, AttributeError, NameError, UnboundLocalError, AssertionError)
"""Exceptions that a mistake in the code raises. Exactly these: a derived class usually has another meaning."""
MAX_LEAVES = 100
"""Exceptions of a group that are examined."""
MAX_CAUSES = 5

Frame = tuple[FrameType, int]
"""A frame and its current line."""

_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_UNSAFE = re.compile(r"[^\w./+-]")


def _plain(path: str) -> str:
    return os.path.normcase(os.path.normpath(path)).replace("\\", "/")


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple({_plain(form) + "/" for path in paths for form in (path, os.path.realpath(path))})


_OURS = _folders(str(Path(__file__).parents[1]))
_PATHS = sysconfig.get_paths()
_FOREIGN = _folders(*(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in _PATHS))


@lru_cache(maxsize=4096)
def is_ours(filename: str) -> bool:
    return _plain(filename).startswith(_OURS)


@lru_cache(maxsize=4096)
def is_own(filename: str) -> bool:
    """Whether a file is the user's: not generated, not the standard library, not installed, not Hookledger."""
    path = _plain(filename)
    return not filename.startswith("<") and not path.startswith(_OURS + _FOREIGN) and not _INSTALLED.search(path)


def is_users(frame: FrameType, package: str = "") -> bool:
    """Whether a frame is in the user's code. `package`: the handler's, which is the user's even if installed."""
    filename = frame.f_code.co_filename
    if is_own(filename):
        return True
    module = str(frame.f_globals.get("__name__"))
    return bool(package) and module.partition(".")[0] == package and not is_ours(filename)


def named_by(function: Callable[..., Any]) -> Any:
    """Return the named object: the function of a partial, the class of a callable object."""
    while isinstance(function, partial):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


def package_of(function: Callable[..., Any]) -> str:
    """Return the top-level package of a function's code."""
    return str(named_by(function).__module__).partition(".")[0]


class Blame(Struct, frozen=True):
    """The cause of a failure."""

    error: BaseException
    """The most telling exception of a group; otherwise the exception itself."""
    place: str | None
    """FILE:LINE of the innermost frame of the user's code."""
    is_bug: bool
    """Whether the user's code raised it by mistake, so that retrying cannot help."""


def blame(error: BaseException, package: str = "") -> Blame:
    """Return the cause of a failure. A group is a bug only if all its exceptions are: the others may be an outage."""
    found = list(leaves(error))
    bugs = [leaf for leaf in found if _is_bug(leaf, package)]
    chosen = (bugs or found)[0]
    place = _place_of(chosen, package) or _place_of(error, package)
    return Blame(chosen, place, len(bugs) == len(found))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, in order, at any depth; any other exception yields itself."""
    waiting, count = [error], 0
    while waiting and count < MAX_LEAVES:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            count += 1
            yield one


def frames(trace: TracebackType | None) -> Iterator[Frame]:
    """Yield the frames, outermost first."""
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_bug(error: BaseException, package: str) -> bool:
    innermost = deque(frames(error.__traceback__), maxlen=1)
    return type(error) in BUGS and bool(innermost) and is_users(innermost[0][0], package)


def _place_of(error: BaseException | None, package: str) -> str | None:
    """Return the place in the user's code; of a cause if the exception itself has no frame there."""
    for _ in range(MAX_CAUSES):
        if error is None:
            return None
        own = deque((frame for frame in frames(error.__traceback__) if is_users(frame[0], package)), maxlen=1)
        if own:
            return place(*own[0])
        error = error.__cause__
    return None


def place(frame: FrameType, line: int) -> str:
    """Return FILE:LINE, with the path that the module's name implies: the same in every installation."""
    parts = frame.f_code.co_filename.replace("\\", "/").split("/")
    module = str(frame.f_globals.get("__name__", ""))
    depth = 1 if module == "__main__" else module.count(".") + 1
    if parts[-1] == "__init__.py":
        depth += 1
    return f"{shortened('/'.join(parts[-depth:]))}:{line}"


def shortened(name: str) -> str:
    """Return the end of a name without special characters, as a cause stores it."""
    name = _UNSAFE.sub("_", name)
    return name if len(name) <= MAX_NAME - 8 else "…" + name[-(MAX_NAME - 9) :]
