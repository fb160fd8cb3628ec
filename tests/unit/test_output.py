"""Output of processes that run for long: nobody waits for its reader, and a reader that lives gets all of it."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hookledger.cli.output import MOST

SAY = """
import logging, sys
from hookledger.cli.output import lose_everything, end_now
lose_everything()
logging.basicConfig(stream=sys.stderr, format="%(message)s")
for number in range({lines}):
    print("x" * 99)
print("said everything", file=sys.stderr)
{then}
"""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)


def say(lines: int, output: int, then: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SAY.format(lines=lines, then=then)]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def rest_of(read: int) -> bytes:
    found = b""
    while chunk := os.read(read, 65536):
        found += chunk
    return found


@pytest.mark.parametrize("then", ["", "end_now(0)", "raise SystemExit(0)"])
def test_what_is_said_before_the_end_is_written(pipe: tuple[int, int], then: str) -> None:
    read, write = pipe
    process = say(10_000, write, then)
    os.close(write)
    assert len(rest_of(read)) == 10_000 * 100
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "said everything\n")


def test_a_reader_that_stands_still(pipe: tuple[int, int]) -> None:
    """Whoever prints goes on; what is too much is lost and counted, and the process ends without its reader."""
    read, write = pipe
    process = say(3 * MOST // 100, write)
    os.close(write)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "said everything\n")
    assert len(rest_of(read)) < MOST, "what the pipe held"


def test_a_reader_that_resumes_is_told_what_is_lost(pipe: tuple[int, int]) -> None:
    read, write = pipe
    process = say(3 * MOST // 100, write, "sys.stdin.read()")
    assert process.stderr is not None
    assert process.stderr.readline() == "said everything\n"
    os.close(write)
    got = 0
    while got < MOST // 2:  # the thread has the rest in hand
        got += len(os.read(read, 65536))
    assert process.stdin is not None
    process.stdin.close()
    got += len(rest_of(read))
    said = process.stderr.read()
    assert process.wait(60) == 0
    lost = 3 * MOST // 100 - got // 100
    assert lost > 0
    assert f"{lost} lines of output were lost" in said
