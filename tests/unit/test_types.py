"""What type checkers tell the author of a handler: everything on the bad example, nothing on the good one."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from hookledger import ForgottenAwait
from hookledger.effects.attempt import AttemptEffects
from hookledger.effects.pending import Pending
from hookledger.retry import is_permanent

ROOT = Path(__file__).parents[2]
GOOD, BAD = ROOT / "tests/typing/good.py", ROOT / "tests/typing/bad.py"

Reported = dict[Path, dict[int, list[str]]]


def mypy() -> Reported:
    """Strict, as pyproject.toml says; with its cache, so that what scripts/check has done is not done again."""
    command = [sys.executable, "-m", "mypy", "--no-pretty", "--hide-error-context", str(GOOD), str(BAD)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Reported = {GOOD: {}, BAD: {}}
    for name, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        found.setdefault(ROOT / name, {}).setdefault(int(line), []).append(text)
    return found


def pyright() -> Reported:
    """From its wheel, by the node of a wheel: nothing is downloaded."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(GOOD), str(BAD)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Reported = {GOOD: {}, BAD: {}}
    for told in json.loads(done.stdout)["generalDiagnostics"]:
        line = told["range"]["start"]["line"] + 1
        found.setdefault(Path(told["file"]), {}).setdefault(line, []).append(told["message"])
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_type_checkers_report_every_mistake_and_nothing_else(checker: FunctionType) -> None:
    reported = checker()
    lines = enumerate(BAD.read_text().splitlines(), 1)
    marked = {number: re.search(r"# expect(?: by (\w+))?:", line) for number, line in lines}
    expected = {number for number, mark in marked.items() if mark and mark[1] in (None, checker.__name__)}
    assert len(expected) > 30
    assert reported.pop(GOOD) == {}
    bad = reported.pop(BAD)
    assert reported == {}, "told about something else than the examples"
    assert expected - bad.keys() == set(), "mistakes that pass in silence"
    assert {number: bad[number] for number in bad.keys() - expected} == {}, "told of what is no mistake"


# ── and at run time, for those who use neither ──


async def answer() -> bool:
    return True


async def test_what_is_awaited_happens_once() -> None:
    waiting: dict[int, Pending[Any]] = {}
    asked = Pending("event.once(…)", answer, waiting)
    assert list(waiting.values()) == [asked]
    assert await asked is True
    assert not waiting
    with pytest.raises(RuntimeError, match="already awaited"):
        await asked
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Pending("event.call(…)", answer, waiting))
        both = asyncio.gather(*(Pending("event.call(…)", answer, waiting) for _ in range(2)))
    assert task.result() is True
    assert await both == [True, True]
    assert not waiting


def test_the_truth_of_what_was_not_awaited_is_refused() -> None:
    waiting: dict[int, Pending[Any]] = {}
    asked = Pending("event.once(…)", answer, waiting)
    for test in (lambda: bool(asked), lambda: not asked, lambda: asked or True, lambda: 1 if asked else 2):
        with pytest.raises(ForgottenAwait, match=r"write `await event.once\(…\)`"):
            test()
    assert waiting, "it is still to be awaited"
    asked.close()


async def test_a_handler_that_forgets_to_await_is_failed_for_good() -> None:
    nobody: Any = None
    effects = AttemptEffects(nobody, nobody, nobody, lambda name: None, lambda: True, transaction=True)
    await effects.asked("event.once(…)", answer)
    await effects.finish()
    effects.asked("event.later(…)", answer)
    with pytest.raises(ForgottenAwait, match=r"did not await event.later\(…\) to the end: it would") as raised:
        await effects.finish()
    assert is_permanent(raised.value), "trying again would forget it again"
