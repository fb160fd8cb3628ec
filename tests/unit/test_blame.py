"""Whose code raised it: the user's own is a bug, a library's may be an outage."""

from __future__ import annotations

import json
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hookledger.observe.blame import blame, is_own
from hookledger.observe.traces import MAX_TRACE, excerpt, for_logging
from hookledger.work.route import Handler

STDLIB = sysconfig.get_paths()["stdlib"]
SITE = sysconfig.get_paths()["purelib"]


def caught(act: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as raised:
        act()
    return raised.value


def code_in(filename: str, text: str, module: str = "shop.app", **names: Any) -> dict[str, Any]:
    """Names that a file of the user's or a library's defines."""
    made: dict[str, Any] = {"__name__": module, **names}
    exec(compile(text, filename, "exec"), made)
    return made


def raised_in(filename: str, text: str = "{}['plan']", module: str = "shop.app") -> BaseException:
    return caught(code_in(filename, f"def act():\n    {text}\n", module)["act"])


@pytest.mark.parametrize(
    "filename",
    [
        "/srv/shop/app.py",
        "app.py",
        f"{sys.prefix}/shop/app.py",
        f"{sys.prefix}/src/shop/app.py",
        "/srv/app.pyz/shop/app.py",
        r"C:\Users\ada\shop\app.py",
        "/home/ada/site-packages-of-mine/app.py",
    ],
)
def test_own_code(filename: str) -> None:
    assert is_own(filename)


@pytest.mark.parametrize(
    "filename",
    [
        f"{STDLIB}/json/decoder.py",
        f"{SITE}/httpx2/client.py",
        "/opt/other/lib/python3.12/site-packages/requests/api.py",
        "/usr/lib/python3/dist-packages/yaml/__init__.py",
        "/srv/shop/../../opt/x/site-packages/y.py",
        "/root/.shiv/app_1/site-packages/stripe/client.py",
        r"C:\Users\ada\venv\Lib\site-packages\stripe\client.py",
        "<string>",
        "<frozen importlib._bootstrap>",
        json.__file__,
        pytest.__file__,
        sys.modules[Handler.__module__].__file__,
    ],
)
def test_foreign_code(filename: str) -> None:
    assert not is_own(filename)


@pytest.mark.parametrize(
    "text",
    [
        "{}['plan']",
        "None.plan",
        "1 + ''",
        "plan",
        "plan += 1",
        "assert 1 == 2",
    ],
)
def test_a_mistake_is_a_bug(text: str) -> None:
    found = blame(raised_in("/srv/shop/app.py", text))
    assert found.is_bug
    assert found.place == "shop/app.py:2"


@pytest.mark.parametrize("text", ["1 / 0", "raise ValueError(1)", "[][0]", "raise ConnectionError()", "raise Own()"])
def test_others_are_not(text: str) -> None:
    class Own(KeyError):
        pass

    made = code_in("/srv/shop/app.py", f"def act():\n    {text}\n", Own=Own)
    found = blame(caught(made["act"]))
    assert not found.is_bug
    assert found.place == "shop/app.py:2"


def test_the_innermost_frame_decides() -> None:
    library = code_in(f"{SITE}/client/http.py", "def get(reply):\n    return reply['data']\n", "client.http")
    own = code_in("/srv/shop/app.py", "\n\ndef act():\n    get({})\n", get=library["get"])
    found = blame(caught(own["act"]))
    assert not found.is_bug
    assert found.place == "shop/app.py:4"

    calls_back = code_in(f"{SITE}/client/http.py", "def each(then):\n    then({})\n", "client.http")
    own = code_in("/srv/shop/app.py", "def act():\n    each(lambda row: row['id'])\n", each=calls_back["each"])
    assert blame(caught(own["act"])).is_bug


def test_an_installed_application_is_own() -> None:
    error = raised_in(f"{SITE}/shop/app.py")
    assert not blame(error).is_bug
    assert blame(error, "shop").is_bug
    assert not blame(raised_in(f"{SITE}/stripe/app.py", module="stripe.app"), "shop").is_bug


def test_raised_from_another() -> None:
    def act() -> None:
        try:
            code["inner"]()
        except KeyError as error:
            raise ValueError("no plan") from error

    code = code_in("/srv/shop/plans.py", "def inner():\n    {}['plan']\n", "shop.plans")
    found = blame(caught(act))
    assert isinstance(found.error, ValueError)
    assert (found.place or "").startswith("tests/unit/test_blame.py:")
    text = "def act(inner):\n  try: inner()\n  except KeyError as e: raise OSError from e\n"
    library = code_in(f"{SITE}/x.py", text, "x")
    found = blame(caught(partial(library["act"], code["inner"])).with_traceback(None))
    assert found.place == "shop/plans.py:2"


def test_groups() -> None:
    bug, outage = raised_in("/srv/shop/app.py"), raised_in(f"{SITE}/x.py", "raise ConnectionError('no')", "x")
    found = blame(BaseExceptionGroup("tasks", [BaseExceptionGroup("inner", [bug])]))
    assert (found.is_bug, found.error, found.place) == (True, bug, "shop/app.py:2")
    found = blame(BaseExceptionGroup("tasks", [outage, bug]))
    assert (found.is_bug, found.error) == (False, bug)
    text = excerpt(BaseExceptionGroup("tasks", [outage, bug]))
    assert "KeyError: 'plan'" in text
    assert text.rstrip().splitlines()[-1] == "ExceptionGroup: tasks (2 sub-exceptions)"
    wide: BaseException = ExceptionGroup("many", [ValueError(str(n)) for n in range(10_000)])
    for _ in range(200):
        wide = BaseExceptionGroup("deep", [wide])
    assert not blame(wide).is_bug
    assert len(excerpt(wide)) <= MAX_TRACE


def test_threads() -> None:
    code = code_in("/srv/shop/app.py", "def act():\n    {}['plan']\n")
    with ThreadPoolExecutor(1) as pool:
        found = blame(caught(pool.submit(code["act"]).result))
    assert (found.is_bug, found.place) == (True, "shop/app.py:2")


def test_never_raised() -> None:
    found = blame(KeyError("x"))
    assert (found.is_bug, found.place) == (False, None)
    assert excerpt(KeyError("x")) == "Traceback (most recent call last):\nKeyError: 'x'\n"


def test_zipped_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "app.pyz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("zipped_shop/__init__.py", "def act():\n    return {}['plan']\n")
    monkeypatch.syspath_prepend(str(file))
    import zipped_shop  # type: ignore[import-not-found]

    error = caught(zipped_shop.act)
    found = blame(error)
    assert (found.is_bug, found.place) == (True, "zipped_shop/__init__.py:2")
    assert "return {}['plan']" in excerpt(error)


# ── tracebacks ──


def test_the_users_frames_are_kept() -> None:
    library = code_in(f"{SITE}/deep.py", "def deep(n):\n    if not n: raise OSError('no')\n    deep(n - 1)\n", "deep")
    own = code_in("/srv/shop/app.py", "def handle():\n    deep(60)\n", deep=library["deep"])
    text = excerpt(caught(own["handle"]))
    assert 'File "/srv/shop/app.py", line 2, in handle' in text
    assert "frames left out" in text
    assert text.count('File "') <= 20
    assert text.endswith("OSError: no\n")


def test_endless_recursion() -> None:
    own = code_in("/srv/shop/app.py", "def a(n):\n    b(n)\ndef b(n):\n    a(n + 1)\ndef handle():\n    a(0)\n")
    error = caught(own["handle"])
    assert isinstance(error, RecursionError)
    text = excerpt(error)
    assert "in caught" in text  # where the user's code begins
    assert len(text) <= MAX_TRACE
    assert for_logging(error) is None


def test_ten_megabytes_of_words() -> None:
    error = raised_in("/srv/shop/app.py", "raise ValueError('x' * 10_000_000)")
    text = excerpt(error)
    assert "line 2, in act" in text
    assert "characters left out" in text
    assert len(text) <= MAX_TRACE
    assert for_logging(error) is None
    error = caught(partial(code_in("/srv/a.py", "def act(e):\n    raise KeyError('k') from e\n")["act"], error))
    assert for_logging(error) is None
    assert excerpt(error).endswith("KeyError: 'k'\n")


def test_words_that_cannot_be_said() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    text = excerpt(Mute())
    assert "Mute" in text
    assert for_logging(Mute()) is not None


def test_a_chain_in_a_circle() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert "one" in excerpt(one)
    assert not blame(one).is_bug


def test_what_a_database_cannot_hold() -> None:
    text = excerpt(ValueError("a\0b \ud800"))
    assert "\0" not in text
    text.encode()


# ── handlers' names ──


def test_labels_are_the_same_in_every_process() -> None:
    def handle(event: Any, plan: str = "") -> None: ...

    class CanBeCalled:
        def __call__(self, event: Any) -> None: ...

    name = "tests.unit.test_blame.test_labels_are_the_same_in_every_process"
    expected = f"…{f'{name}.handle'[-41:]}"
    assert Handler(handle).label == Handler(partial(handle, plan="x")).label == expected
    assert " at 0x" not in Handler(CanBeCalled()).label
    assert Handler(threading.Thread).package == "threading"  # type: ignore[arg-type]
