"""Whose code raised an exception: the user's own, a library's or ours. What "own" means is decided here alone."""

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

from ..causes import MAX_NAME

BUGS = (KeyError, TypeError, AttributeError, NameError, UnboundLocalError, AssertionError)
"""What a mistake in the code raises, exactly these: who derives a class from one of them means something by it."""
MAX_LEAVES = 100
"""Of a group of exceptions, that are looked at."""
MAX_CAUSES = 5

Frame = tuple[FrameType, int]
"""With the line that was running."""

_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_ODD = re.compile(r"[^\w./+-]")


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
    """Whether a frame is in the user's own code. `package`: the handler's, which is the user's wherever it is
    installed."""
    filename = frame.f_code.co_filename
    if is_own(filename):
        return True
    module = str(frame.f_globals.get("__name__"))
    return bool(package) and module.partition(".")[0] == package and not is_ours(filename)


def named_by(function: Callable[..., Any]) -> Any:
    """What has a name of its own: the function of a partial, the class of an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


def package_of(function: Callable[..., Any]) -> str:
    """The top-level package of a function's code."""
    return str(named_by(function).__module__).partition(".")[0]


class Blame(Struct, frozen=True):
    """What to blame for a failure."""

    error: BaseException
    """Of a group, the one that says most; else the exception itself."""
    place: str | None
    """FILE:LINE of the innermost frame of the user's code."""
    is_bug: bool
    """The user's own code raised it, and no later attempt will help."""


def blame(error: BaseException, package: str = "") -> Blame:
    """Find what to blame. A group is a bug only if everything in it is one: the rest may be an outage."""
    found = list(leaves(error))
    bugs = [leaf for leaf in found if _is_bug(leaf, package)]
    chosen = (bugs or found)[0]
    place = _place_of(chosen, package) or _place_of(error, package)
    return Blame(chosen, place, len(bugs) == len(found))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """What a group holds, in order, however deep it is; any other exception is its own leaf."""
    waiting, count = [error], 0
    while waiting and count < MAX_LEAVES:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            count += 1
            yield one


def frames(trace: TracebackType | None) -> Iterator[Frame]:
    """From the outermost to where it was raised."""
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_bug(error: BaseException, package: str) -> bool:
    innermost = deque(frames(error.__traceback__), maxlen=1)
    return type(error) in BUGS and bool(innermost) and is_users(innermost[0][0], package)


def _place_of(error: BaseException | None, package: str) -> str | None:
    """Of the exception as it was raised; of its causes where none of its own frames is the user's."""
    for _ in range(MAX_CAUSES):
        if error is None:
            return None
        own = deque((frame for frame in frames(error.__traceback__) if is_users(frame[0], package)), maxlen=1)
        if own:
            return place(*own[0])
        error = error.__cause__
    return None


def place(frame: FrameType, line: int) -> str:
    """FILE:LINE, the file as its module is called: the same wherever the application is installed."""
    parts = frame.f_code.co_filename.replace("\\", "/").split("/")
    module = str(frame.f_globals.get("__name__", ""))
    depth = 1 if module == "__main__" else module.count(".") + 1
    if parts[-1] == "__init__.py":
        depth += 1
    return f"{shortened('/'.join(parts[-depth:]))}:{line}"


def shortened(name: str) -> str:
    """As a cause holds it: the end of it, and nothing that would have to be quoted."""
    name = _ODD.sub("_", name)
    return name if len(name) <= MAX_NAME - 8 else "…" + name[-(MAX_NAME - 9) :]
