"""Warns when Python's own sqlite3 opens the inbox's file in a process that has it open already.

When one of two SQLite libraries closes the file, the system drops the other's locks, and the file can be damaged.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

log: logging.Logger = logging.getLogger(__name__)

_open: Counter[str] = Counter()
_hooked: list[bool] = []


def watch(path: Path) -> None:
    """From now on, for a process that runs handlers."""
    _open[os.path.realpath(path)] += 1
    if not _hooked:
        _hooked.append(True)  # a hook cannot be removed
        sys.addaudithook(_on_audit_event)


def unwatch(path: Path) -> None:
    _open.subtract([os.path.realpath(path)])


def _on_audit_event(name: str, given: tuple[object, ...]) -> None:
    if name != "sqlite3.connect" or not _open or not given or not isinstance(given[0], str | bytes | os.PathLike):
        return
    database = os.fsdecode(given[0])
    file = unquote(urlsplit(database).path) if database.startswith("file:") else database
    if _open[os.path.realpath(file)] > 0:
        caller = sys._getframe(1)
        log.warning(
            "%s:%s opens the inbox's own file with sqlite3: two SQLite libraries on one file in one process can "
            "damage it; write with event.tx, or use another file",
            caller.f_code.co_filename,
            caller.f_lineno,
        )
