"""A terminal of some width, and a command on it: a real process on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services import forked

STYLES = re.compile(r"\x1b\[[0-9;]*m")


def show(
    module: str, arguments: Sequence[str], *, columns: int, cwd: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Exit code and what is on the screen, stdout and stderr, as it was written: styles and all."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    written: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(master, 65536):
                written.append(data)
        except OSError:  # how Linux says that nobody has the other end any more
            return

    reader = threading.Thread(target=read)
    reader.start()
    name = os.ttyname(slave)
    try:
        process = forked.Forked(module, arguments, cwd=cwd, env=env, stdout=name, stderr=name)
        code = process.wait()
    finally:
        os.close(slave)
        reader.join()
        os.close(master)
    return code, b"".join(written).decode().replace("\r\n", "\n")


def plain(screen: str) -> list[str]:
    """Its lines without styles."""
    return STYLES.sub("", screen).splitlines()


def copied(lines: Sequence[str]) -> str:
    """What a shell would read: continued lines joined, and each run of blanks one."""
    return " ".join(" ".join(lines).replace(" \\ ", " ").split())
