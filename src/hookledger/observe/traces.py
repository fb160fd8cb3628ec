"""Format tracebacks for storage and logs: bounded, always with the user's frames."""

from __future__ import annotations

import importlib
import linecache
import traceback
from collections import deque
from collections.abc import Iterator
from types import FrameType, TracebackType

from ..retry import clean, message_of
from .blame import Frame, frames, is_ours, is_users, leaves

MAX_TRACE = 8_192
MAX_MESSAGE = 2_000
"""Characters of one exception's message, which may quote a large payload."""
MAX_LINE = 300
FIRST_OWN, LAST_OWN = 3, 9
"""Frames of the user's code."""
INNERMOST = 3
"""Innermost frames, kept even if they are not the user's: they show what the user's code called."""
LINKS = 4
"""Exceptions of one chain or group."""
MAX_DEPTH = 100

IMPORT = importlib.import_module.__code__

CAUSED = "\n… which caused:\n\n"
DURING = "\n… and while handling it:\n\n"
GROUPED = "\n… which is one of a group:\n\n"


def excerpt(error: BaseException, package: str = "") -> str:
    """Return the traceback, causes first, without the frames between library calls."""
    parts: list[str] = []
    for link, joint in _links(error):
        parts += ["Traceback (most recent call last):\n", *_shown(link, package), _said(link), joint]
    text = "".join(parts)
    if len(text) > MAX_TRACE:
        text = "…" + text[-(MAX_TRACE - 1) :]
    return clean(text, MAX_TRACE)


def for_logging(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """Return `exc_info` without Hookledger's frames at its beginning; None if it is too long or not printable."""
    links = _links(error)
    if len(links) == LINKS:  # there may be more
        return None
    for link, _ in links:
        if isinstance(link, BaseExceptionGroup) or getattr(link, "__notes__", None):
            return None
        depth, said = sum(1 for _ in frames(link.__traceback__)), message_of(link)
        if depth > MAX_DEPTH or clean(said, MAX_MESSAGE) != said:
            return None
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return type(error), error, trace or error.__traceback__


def _links(error: BaseException) -> list[tuple[BaseException, str]]:
    """Return the chain of exceptions, first cause first, each with the text that links it to the next."""
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
    """Yield the first and last frames of the user's code, and those where the exception was raised."""
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
    """Whether the frame is no step of an import, which Python leaves out as well."""
    return not frame[0].f_code.co_filename.startswith("<frozen importlib") and frame[0].f_code is not IMPORT


def _frame(frame: FrameType, line: int) -> str:
    code = frame.f_code
    where = f'  File "{code.co_filename}", line {line}, in {code.co_name}'
    source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return f"{where[:MAX_LINE]}\n" + (f"    {source[:MAX_LINE]}\n" if source else "")


def _said(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception_only(type(error), error))
    except Exception:  # its class may raise anything
        text = f"{type(error).__name__}: its message cannot be shown\n"
    if len(text) > MAX_MESSAGE:
        text = f"{text[:MAX_MESSAGE]}… ({len(text) - MAX_MESSAGE:,} characters left out)\n"
    return text
