"""Listings, facts and commands at any width: nothing that is copied or counted is cut."""

import io
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from hookledger.cli.common import SafeConsole
from hookledger.cli.table import Listing, number, print_command, print_facts, prose, say, unbroken


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(columns: int, file: io.StringIO | None = None) -> SafeConsole:
    return SafeConsole(file=file or Terminal(), width=columns, highlight=False, no_color=True, color_system=None)


def lines(screen: SafeConsole) -> list[str]:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def failures(*rows: tuple[str, str, str]) -> Listing:
    listing = Listing(number("events"), "type", prose("cause"), heads=2)
    for row in rows:
        listing.add(*row)
    return listing


WORD = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=50)
KEY = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), min_size=1, max_size=150).filter(str.strip)
ROW = st.tuples(st.integers(0, 10**7), KEY, st.lists(WORD, max_size=30).map(" ".join))


@given(
    st.lists(ROW, min_size=1, max_size=5),
    st.integers(30, 200),
)
@example([(0, "0" * 23 + "\u2e80" * 2, "")], 30)
def test_nothing_is_cut(rows: list[tuple[int, str, str]], columns: int) -> None:
    screen = console(columns)
    listing = Listing(number("events"), "state", "key", prose("why"), heads=2)
    for count, key, why in rows:
        listing.add(f"{count:,}", Text("needs_review", "magenta"), key, why)
    listing.print(screen)
    shown = lines(screen)
    for count, key, _ in rows:
        assert any(key.rstrip() in line for line in shown), "a key is in one line"
        assert any(f"{count:,}" in line for line in shown)
    keys = [key for _, key, _ in rows] + [word for _, _, why in rows for word in why.split()]
    for line in shown:
        long = any(cell_len(key) > columns and line.strip() == key.strip() for key in keys)
        assert cell_len(line.rstrip()) <= columns or long, (columns, line)
    # Every word of the prose, in its order; writing without spaces may be broken where a line ends.
    said = "".join("".join(shown).split())
    for _, _, why in rows:
        assert len(rows) > 1 or "".join(why.split()) in said


def test_a_table_where_there_is_room() -> None:
    wide, narrow = console(80), console(45)
    listing = failures(
        ("301", "invoice.paid", "KeyError: 'plan'"), ("123,456", "invoice.sent", "no answer in time from the bank")
    )
    listing.print(wide)
    assert lines(wide) == [
        " events  type          cause",
        "    301  invoice.paid  KeyError: 'plan'",
        "123,456  invoice.sent  no answer in time from the bank",
    ]
    listing.print(narrow)
    assert lines(narrow) == [
        "301 events  invoice.paid",
        "  cause KeyError: 'plan'",
        "123,456 events  invoice.sent",
        "  cause no answer in time from the bank",
    ]


def test_one_event_is_no_events() -> None:
    narrow = console(30)
    failures(("1", "invoice.paid", "KeyError: 'plan'"), ("0", "invoice.sent", "none of them")).print(narrow)
    heads = [line for line in lines(narrow) if "invoice" in line]
    assert heads == ["1 event  invoice.paid", "0 events  invoice.sent"]


def test_prose_is_folded_between_words() -> None:
    screen = console(50)
    failures(("301", "invoice.paid", "no answer in time from the bank, nor from its twin")).print(screen)
    assert lines(screen) == [
        "events  type          cause",
        "   301  invoice.paid  no answer in time from the",
        "                      bank, nor from its twin",
    ]


def test_without_a_terminal_a_record_is_a_line() -> None:
    screen = console(80, io.StringIO())
    failures(("301", "k" * 200, "two\nlines " * 30)).print(screen)
    [head, row] = lines(screen)
    assert head.split() == ["events", "type", "cause"]
    assert row == f"   301  {'k' * 200}  {' '.join(['two lines'] * 30)}"


def test_no_record_is_no_table() -> None:
    screen = console(80)
    failures().print(screen)
    assert lines(screen) == []


def test_wide_and_combining_characters() -> None:
    screen = console(40)
    listing = Listing("key", "state")
    listing.add("漢字", "failed")
    listing.add("e\u0301tat", "done")
    listing.print(screen)
    assert lines(screen) == ["key   state", "漢字  failed", "e\u0301tat  done"]
    screen = console(30)
    failures(("1", "invoice.paid", "日本語のとても長い理由です" * 3)).print(screen)
    assert all(cell_len(line) <= 30 for line in lines(screen)), "it has no spaces to be folded at"


def test_cells_are_no_markup() -> None:
    screen = console(100)
    failures(("1", "[bold]x[/] a\nb\tc", "[red]why[/red] [/]")).print(screen)
    print_facts(screen, [("key", unbroken("[dim]k")), ("why", "[/] w")])
    say("[red]said[/]", screen)
    shown = "\n".join(lines(screen))
    for text in (r"[bold]x[/] a\nb\tc", "[red]why[/red] [/]", "[dim]k", "[/] w", "[red]said[/]"):
        assert text in shown


def test_facts() -> None:
    screen = console(30)
    print_facts(screen, [("key", "k" * 25), ("why", "some words that are too many"), ("none", ""), ("n", "1\n2")])
    assert lines(screen) == [
        "key  " + "k" * 25,
        "why  some words that are too",
        "     many",
        "n    1",
        "     2",
    ]
    screen = console(30)
    print_facts(screen, [("key", [unbroken("k" * 29), Text("(signed)")])])
    assert lines(screen) == ["key", " " + "k" * 29, "     (signed)"]


@pytest.mark.parametrize("columns", [20, 40, 80, 400])
def test_a_command_can_be_pasted(columns: int) -> None:
    screen = console(columns)
    command = ["hookledger", "resolve", "0190f3a2-1c2d", "charge:it's one", "--reason", "looked: it did not happen"]
    print_command("To decide", command, screen)
    shown = "\n".join(lines(screen))
    label, _, pasted = shown.partition(":")
    assert label == "To decide"
    assert shlex.split(pasted.replace("\\\n", "")) == command
    longest = max(cell_len(shlex.quote(word)) for word in command)
    assert all(cell_len(line) <= max(columns, longest + 2) for line in lines(screen))
