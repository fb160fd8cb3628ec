"""Prints records, facts and commands on a screen of any width. Numbers, states and keys are never cut.

On a terminal too narrow for a table, each record is a block. Elsewhere each record is one line of any length. Cells
are plain text: markup in them has no meaning.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from ..states import EffectState, State
from .common import status, table_console
from .log_lines import printable

GAP = 2
INDENT = 2
WIDEST = 2**31
"""Width where columns are not limited."""
READABLE = 24
"""Minimum width of a folded column with longer text."""

COLOURS = {
    State.PROCESSED: "green",
    State.FAILED: "red",
    State.NEEDS_REVIEW: "magenta",
    State.RETRYING: "yellow",
    State.PROCESSING: "cyan",
}
EFFECT_COLOURS = {EffectState.DONE: "green", EffectState.FAILED: "red", EffectState.UNKNOWN: "magenta"}

_WORDS = re.compile(r"`[^`\n]+`\S*|\S+")
"""A command in backticks is one word, so that it can be copied from one line."""


class Column(NamedTuple):
    """One fact of each record."""

    name: str
    folds: bool = False
    """Prose, which may be broken between words."""
    right: bool = False


Fact = tuple[str | Text, str | Text | Sequence[Text]]
"""A name with prose, folded between words, or with values that stay whole."""


def number(name: str) -> Column:
    return Column(name, right=True)


def prose(name: str) -> Column:
    return Column(name, folds=True)


def unbroken(value: str | Text) -> Text:
    """Return a cell that stays on one line."""
    if isinstance(value, Text):
        return value
    return Text(printable(value).replace("\n", r"\n").replace("\t", r"\t"), no_wrap=True)


def words(value: str | Text) -> list[Text]:
    """Return the words between which a line may be broken."""
    if isinstance(value, Text):
        return list(value.split(" ")) if value.plain else []
    return [Text(word) for word in _WORDS.findall(printable(value))]


class Listing:
    """Records with the same columns. A column given by its name alone holds keys, states or times, which are never
    broken. The first `heads` columns are the first line of a block, without their names. `title` is printed above a
    table that has records."""

    def __init__(self, *columns: Column | str, heads: int = 0, title: str = "") -> None:
        self._columns = [Column(one) if isinstance(one, str) else one for one in columns]
        self._heads = heads
        self._title = title
        self._rows: list[tuple[str | Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        assert len(cells) == len(self._columns)
        self._rows.append(cells)

    def print(self, console: Console | None = None, *, empty: str = "") -> None:
        """Print the records, on stdout unless another console is given; without records, `empty` as status."""
        if not self._rows:
            if empty:
                status.print(empty)
            return
        console = console or table_console()
        width = screen(console)
        if self._title:
            _print(console, [Text(self._title, "bold")])
        if width is None:
            widths = [self._natural(place) for place in range(len(self._columns))]
            _print(console, self._table(list(range(len(self._columns))), widths, None))
            return
        shown = [place for place in range(len(self._columns)) if any(row[place] for row in self._rows)]
        fitting = self._fitting(shown, width)
        if fitting is not None:
            _print(console, self._table(shown, fitting, width))
        else:
            for row in self._rows:
                _print(console, self._block(row, width))

    def _natural(self, place: int) -> int:
        """Return the width at which every cell fits on one line."""
        name = Text(self._columns[place].name).cell_len
        return max(name, *(self._cell(row, place).cell_len for row in self._rows))

    def _cell(self, row: Sequence[str | Text], place: int) -> Text:
        value = row[place]
        if self._columns[place].folds and isinstance(value, str):
            return Text(" ".join(word.plain for word in words(value)))
        return unbroken(value)

    def _fitting(self, shown: Sequence[int], width: int) -> list[int] | None:
        """Return column widths of a table that only breaks prose between words; None if it does not fit."""
        natural = [self._natural(place) for place in shown]
        least = [
            max(self._longest(place), min(size, READABLE)) if self._columns[place].folds else size
            for place, size in zip(shown, natural, strict=True)
        ]
        spare = width - sum(least) - GAP * (len(shown) - 1)
        if spare < 0:
            return None
        for place, size in enumerate(natural):
            more = min(size - least[place], spare)
            least[place] += more
            spare -= more
        return least

    def _longest(self, place: int) -> int:
        """Return the length of a column's longest word, its name included."""
        found = [word.cell_len for row in self._rows for word in words(row[place])]
        return max([Text(self._columns[place].name).cell_len, *found])

    def _table(self, shown: Sequence[int], widths: Sequence[int], width: int | None) -> Iterator[Text]:
        columns = [self._columns[place] for place in shown]
        yield _joined([Text(column.name, "bold") for column in columns], columns, widths)
        for row in self._rows:
            cells = [
                flow(words(row[place]), size) if column.folds and width else [self._cell(row, place)]
                for place, column, size in zip(shown, columns, widths, strict=True)
            ]
            for line in zip_longest(*cells):
                yield _joined([cell or Text() for cell in line], columns, widths)

    def _block(self, row: Sequence[str | Text], width: int) -> Iterator[Text]:
        told = [place for place in range(len(self._columns)) if row[place]]
        head = [self._head(row, place) for place in told if place < self._heads]
        yield from (_bold(line) for line in flow(head, width, gap=GAP, hang=2 * INDENT))
        packed: list[Text] = []
        for place in (place for place in told if place >= self._heads):
            column, name = self._columns[place], (self._columns[place].name, "dim")
            piece = Text.assemble(name, " ", self._cell(row, place))
            if not column.folds and INDENT + piece.cell_len <= width:
                packed.append(piece)
                continue
            yield from flow(packed, width, gap=GAP, first=INDENT, hang=INDENT)
            packed = []
            value = words(row[place]) if column.folds else [self._cell(row, place)]
            yield from flow([Text.assemble(name), *value], width, first=INDENT, hang=2 * INDENT)
        yield from flow(packed, width, gap=GAP, first=INDENT, hang=INDENT)

    def _head(self, row: Sequence[str | Text], place: int) -> Text:
        """Return a cell of a block's first line; numbers carry their name."""
        cell, column = self._cell(row, place), self._columns[place]
        name = column.name.removesuffix("s") if cell.plain == "1" else column.name
        return Text.assemble(cell, f" {name}") if column.right else cell


def flow(pieces: Iterable[Text], width: int, *, gap: int = 1, first: int = 0, hang: int = 0) -> list[Text]:
    """Return lines of whole pieces. A piece wider than the rest of its line starts further left; only one wider than
    the screen exceeds it. `first`, `hang`: indents of the first and the other lines."""
    lines: list[Text] = []
    for piece in (part for whole_piece in pieces for part in _breakable(whole_piece, width - hang)):
        if lines and lines[-1].cell_len + gap + piece.cell_len <= width:
            lines[-1].append(" " * gap).append_text(piece)
        else:
            indent = min(hang if lines else first, max(0, width - piece.cell_len))
            lines.append(Text(" " * indent).append_text(piece))
    return lines


def _breakable(piece: Text, width: int) -> list[Text]:
    """Return the parts of a piece that fits no line: a command's words, or lines of text without spaces, such as
    Japanese."""
    if piece.no_wrap or piece.cell_len <= width:
        return [piece]
    if piece.plain.startswith("`"):
        return list(piece.split(" "))
    if piece.cell_len > len(piece.plain) and width > 1:
        return [Text(part, piece.style) for part in chop_cells(piece.plain, width)]
    return [piece]


def print_facts(console: Console, facts: Iterable[Fact]) -> None:
    """Print names and values; facts without a value are left out."""
    told = [(_bold(Text.assemble(name)), _pieces(value)) for name, value in facts if value]
    margin = max((name.cell_len for name, _ in told), default=0) + GAP
    width = screen(console) or WIDEST
    for name, paragraphs in told:
        first, *rest = [line for pieces in paragraphs for line in flow(pieces, width, first=margin, hang=margin)]
        if first.plain[:margin].strip():  # too long to stand beside its name
            rest = [first, *rest]
            first = name
        else:
            first = Text.assemble(name, " " * (margin - name.cell_len), first[margin:])
        _print(console, [first, *rest])


def _pieces(value: str | Text | Sequence[Text]) -> list[list[Text]]:
    if isinstance(value, str):
        return [words(line) for line in value.split("\n")]
    return [[value]] if isinstance(value, Text) else [list(value)]


def say(text: str, console: Console = status) -> None:
    """Print sentences, folded between words, with their own indent."""
    width = screen(console)
    for paragraph in printable(text).split("\n"):
        indent = len(paragraph) - len(paragraph.lstrip(" "))
        lines = flow(words(paragraph), width, first=indent, hang=indent) if width else [Text(paragraph)]
        _print(console, lines)


def print_command(label: str, command: Sequence[str], console: Console = status) -> None:
    """Print a command to paste, on several lines if the screen is narrow."""
    pieces = [unbroken(shlex.quote(word)) for word in command]
    width = screen(console)
    line = Text(" ").join([*words(f"{label}:"), *pieces])
    if width is None or line.cell_len <= width:
        _print(console, [line])
        return
    say(f"{label}:", console)
    *lines, last = flow(_paired(pieces, width - GAP - 2 * INDENT), width - GAP, first=INDENT, hang=2 * INDENT)
    _print(console, [*(line.append(" \\") for line in lines), last])


def option_pairs(options: Sequence[str]) -> list[Text]:
    """Return shell-quoted options, each with its value."""
    return _paired([unbroken(shlex.quote(word)) for word in options], WIDEST)


def _paired(pieces: Sequence[Text], width: int) -> list[Text]:
    """Pair each option with its value where both fit on a line."""
    paired: list[Text] = []
    for piece in pieces:
        before = paired[-1] if paired else Text()
        if before.plain.startswith("--") and " " not in before.plain and not piece.plain.startswith("--"):
            both = Text(" ").join((before, piece))
            if both.cell_len <= width:
                paired[-1] = both
                continue
        paired.append(piece)
    return paired


def screen(console: Console) -> int | None:
    """Return the terminal's width; None if there is no terminal."""
    return console.width if console.file.isatty() else None


def _joined(cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    line = Text()
    for cell, column, width in zip(cells, columns, widths, strict=True):
        blank = Text(" " * max(0, width - cell.cell_len))
        line.append_text(blank + cell if column.right else cell + blank).append(" " * GAP)
    line.rstrip()
    return line


def _bold(line: Text) -> Text:
    line.stylize_before("bold")
    return line


def _print(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def coloured(state: State | EffectState) -> Text:
    colour = COLOURS.get(state) if isinstance(state, State) else EFFECT_COLOURS.get(state)
    return Text(state, colour or "")


def moment(value: datetime | None) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if value else ""
