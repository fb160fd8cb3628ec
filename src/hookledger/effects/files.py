"""Files as effects: written whole or not at all, under a name that belongs to one effect."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Protocol


class Keyed(Protocol):
    @property
    def key(self) -> str: ...


def write_file(op: Keyed, folder: str | os.PathLike[str], content: bytes | str, *, suffix: str = "") -> Path:
    """Write `content` to a file of `folder` that is named after `op.key`, and give its path.

    A reader finds all of it or no file; after a return it is on the
    disk. Done again, it is replaced by the same name, so an effect that does
    only this is `repeat="safe"`. What a crash leaves of an unfinished one is
    removed by the next try.
    """
    if "/" in suffix or os.sep in suffix or "\0" in suffix:
        raise ValueError("a suffix is the end of a file's name, such as .pdf")
    data = content.encode() if isinstance(content, str) else content
    target = Path(folder) / f"{op.key}{suffix}"
    for left in target.parent.glob(f".{op.key}.*.part"):
        left.unlink(missing_ok=True)
    part = target.with_name(f".{op.key}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return target


def _sync_folder(folder: Path) -> None:
    """So that the name, too, is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
