"""Text of strangers is shown without what it could do to a terminal, or to the order of the words around it."""

import io
import json
import logging
import sys

import pytest
from rich.markup import escape

from hookledger.cli import common
from hookledger.cli.table import Listing, print_facts, prose, say, unbroken
from hookledger.ids import show

TURNED = "\u202egpj.exe\u202c \u2066x\u2069 \u200e\u200f\u061c"
DRAWS = "\x1b[2J\x9b31m\x07\x08"
HOSTILE = f"evt_1 {TURNED} {DRAWS} end"


def harmless(text: str) -> bool:
    return not any(mark in text for mark in TURNED + DRAWS if not mark.isascii() or not mark.isprintable())


def test_tables_and_lines() -> None:
    screen = io.StringIO()
    console = common.SafeConsole(file=screen, width=200, highlight=False)
    listing = Listing("key", prose("why"))
    listing.add(HOSTILE, HOSTILE)
    listing.print(console)
    print_facts(console, [("key", unbroken(HOSTILE)), ("why", HOSTILE)])
    say(HOSTILE, console)
    console.print(f"Event {escape(HOSTILE)}", soft_wrap=True)
    shown = screen.getvalue()
    assert harmless(shown)
    assert shown.count("\\u202egpj.exe") == 6
    assert shown.count("\\u001b[2J") == 6


def test_json_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_json({"key": HOSTILE})
    printed = capsys.readouterr().out
    assert harmless(printed)
    assert json.loads(printed) == {"key": HOSTILE}


@pytest.mark.parametrize("as_json", [False, True])
def test_logs(as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    common.set_up_logging(as_json=as_json)
    logging.getLogger("shop").warning("no customer %s", HOSTILE)
    logging.getLogger("shop").error("failed", exc_info=ValueError(HOSTILE))
    assert harmless(screen.getvalue())
    assert "ValueError" in screen.getvalue()


def test_keys_are_kept_without_them() -> None:
    assert harmless(show(HOSTILE.encode()))
