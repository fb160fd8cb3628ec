"""SQLite on a disk without space: no ack, and everything goes on when there is space again.

The disk is a small tmpfs in a mount namespace of its own, where full_disk.py is run. An ordinary user gets one
too (`unshare -Urm`), unless the system forbids user namespaces.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.processes import ROOT


def namespace() -> list[str]:
    """The command that runs another where tmpfs can be mounted."""
    problems = []
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        probe = [*command, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
        try:
            done = subprocess.run(probe, capture_output=True, text=True, check=False)
        except FileNotFoundError as missing:
            problems.append(str(missing))
            continue
        if done.returncode == 0:
            return command
        problems.append(f"{' '.join(command)}: {done.stderr.strip()}")
    reason = f"no small disk to fill, tmpfs cannot be mounted here: {'; '.join(problems)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def test_a_full_disk() -> None:
    inside = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(Path(__file__).with_name("full_disk.py"))]
    done = subprocess.run([*namespace(), *inside], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
