"""Tracebacks as they are kept, shown and logged: bounded, and with the user's own frames."""

from __future__ import annotations

import importlib
import linecache
import traceback
from collections import deque
from collections.abc import Iterator
from types import FrameType, TracebackType

from .blame import Frame, frames, is_ours, is_users, leaves
from .retry import clean, words

MAX_TRACE = 8_192
MAX_WORDS = 2_000
"""Of what one exception says: it may quote a payload of megabytes."""
MAX_LINE = 300
FIRST_OWN, LAST_OWN = 3, 9
"""Frames of the user's code."""
INNERMOST = 3
"""Frames that are kept whoever's they are: they say what the user's code had asked for."""
LINKS = 4
"""Exceptions of one chain, or of one group."""
MAX_DEPTH = 100

IMPORT = importlib.import_module.__code__

CAUSED = "\n… which was the cause of:\n\n"
DURING = "\n… and then, while that was handled:\n\n"
GROUPED = "\n… which is one of a group:\n\n"


def excerpt(error: BaseException, package: str = "") -> str:
    """The traceback: what led to the exception first, the frames between library calls left out."""
    parts: list[str] = []
    for link, joint in _links(error):
        parts += ["Traceback (most recent call last):\n", *_shown(link, package), _said(link), joint]
    text = "".join(parts)
    if len(text) > MAX_TRACE:
        text = "…" + text[-(MAX_TRACE - 1) :]
    return clean(text, MAX_TRACE)


def for_logging(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """What `exc_info` takes, without our own frames at its beginning; None if that is long,
    or cannot be written."""
    links = _links(error)
    if len(links) == LINKS:  # there may be more
        return None
    for link, _ in links:
        if isinstance(link, BaseExceptionGroup) or getattr(link, "__notes__", None):
            return None
        depth, said = sum(1 for _ in frames(link.__traceback__)), words(link)
        if depth > MAX_DEPTH or clean(said, MAX_WORDS) != said:
            return None
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return type(error), error, trace or error.__traceback__


def _links(error: BaseException) -> list[tuple[BaseException, str]]:
    """What led to an exception, the first first, each with what joins it to the next."""
    found = [(error, "")]
    seen = {id(error)}
    while len(found) < LINKS:
        last = found[-1][0]
        if isinstance(last, BaseExceptionGroup):
            found += [(leaf, GROUPED) for leaf in list(leaves(last))[: LINKS - 1]]
            break
        before = last.__cause__
        if before is None and not last.__suppress_context__:
            before = last.__context__
        if before is None or id(before) in seen:
            break
        seen.add(id(before))
        found.append((before, CAUSED if last.__cause__ is not None else DURING))
    return found[::-1]


def _shown(error: BaseException, package: str) -> Iterator[str]:
    """The first frames of the user's code, the last ones, and where it was raised."""
    first: list[tuple[int, Frame]] = []
    own: deque[tuple[int, Frame]] = deque(maxlen=LAST_OWN)
    last: deque[tuple[int, Frame]] = deque(maxlen=INNERMOST)
    begin = 0
    for number, frame in enumerate(filter(_is_no_import, frames(error.__traceback__))):
        last.append((number, frame))
        if is_users(frame[0], package):
            (first if len(first) < FIRST_OWN else own).append((number, frame))
        elif begin == number and is_ours(frame[0].f_code.co_filename):
            begin = number + 1
    chosen = dict([*first, *own, *last])
    shown = -1 if begin > max(chosen, default=0) else begin - 1
    for number in sorted(chosen):
        if number <= shown:
            continue
        if number > shown + 1:
            yield f"  … {number - shown - 1:,} frames left out\n"
        yield _frame(*chosen[number])
        shown = number


def _is_no_import(frame: Frame) -> bool:
    """The steps of an import say nothing; Python leaves them out as well."""
    return not frame[0].f_code.co_filename.startswith("<frozen importlib") and frame[0].f_code is not IMPORT


def _frame(frame: FrameType, line: int) -> str:
    code = frame.f_code
    where = f'  File "{code.co_filename}", line {line}, in {code.co_name}'
    source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{where[:MAX_LINE]}\n" + (f"    {source[:MAX_LINE]}\n" if source else "")


def _said(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception_only(type(error), error))
    except Exception:  # whatever its class does when it is looked at
        text = f"{type(error).__name__}: it cannot be shown\n"
    if len(text) > MAX_WORDS:
        text = f"{text[:MAX_WORDS]}… ({len(text) - MAX_WORDS:,} characters left out)\n"
    return text
