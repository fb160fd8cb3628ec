"""The queries that both databases share, and how a dialect writes them.

`store/sql/*.sql` has each query once: `-- name: pause`, a line of intent unless the name says it, the statement.
Parameters are `:names`. `-- name: freeze (sqlite)` replaces a query in one dialect, with a line that says why.

Macros, which may stand in one another:

    {schema}.events          the table, in its schema
    {now}                    the database's clock
    {seconds :lease}         a number of seconds as a span of time
    {elapsed a.at - b.at}    a span of time as a number of seconds
    {greatest} {least}       of several values; no NULL among them, on which the databases differ
    {lock}                   FOR NO KEY UPDATE, where several may write
    {lock_free e}            the same for the table e, without locked rows
    {indexed events_marked}  along this index, for SQLite, which collects no statistics
    {ordered} JOIN           with what stands before it read first, for SQLite
    {offset_0}               PostgreSQL's planner leaves a subquery with OFFSET 0 as it is
    IN {list :ids uuid}      among a list
    {rows :given id uuid, claim bigint}    a table of these columns, with a row for each tuple of a list

And `{name}`: what an earlier query of the same file, or of `columns.sql`, with that name says, for columns that
several queries have; or one of FRAGMENTS. Any other `{name}` is left for the operation, which composes the
query (`Session.piece`).
Casts (`:seen::bigint`), which PostgreSQL needs where nothing else tells a type, are dropped on SQLite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal

from ..states import BY_NAME, TRANSITIONS, AttemptOutcome

Name = Literal["postgres", "sqlite"]
Macro = Callable[[str], str]
_HEADING = re.compile(r"^-- name: (\w+)(?: \((postgres|sqlite)\))?\n", re.MULTILINE)
PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


@cache
def shared(dialect: Name) -> dict[str, str]:
    """Every shared query as this dialect has it, macros not yet written out."""
    folder = files(f"{__package__}.sql")
    columns = parse(folder.joinpath("columns.sql").read_text(), dialect)
    found = dict(columns)
    for entry in folder.iterdir():
        if entry.name.endswith(".sql") and entry.name != "columns.sql":
            queries = parse(entry.read_text(), dialect, columns)
            if twice := sorted(found.keys() & queries.keys()):
                raise ValueError(f"store/sql/{entry.name}: another file has queries of these names: {twice}")
            found |= queries
    return found


def parse(text: str, dialect: Name, columns: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The queries of one file; `columns` can stand in them."""
    found: dict[str, str] = {}
    own: set[str] = set()
    parts = _HEADING.split(text)[1:]
    for name, only, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        if only not in (None, dialect) or (only is None and name in own):
            continue
        if name in found and only is None:
            raise ValueError(f"the query {name} stands twice")
        own |= {name} if only else set()
        found[name] = filled(statement(body), {**columns, **found})
    return found


def load(package: str, name: str = "queries.sql", **given: str) -> dict[str, str]:
    """The queries of a dialect's own file, for its hot path; what is `given` can stand in them."""
    dialect: Name = "sqlite" if package.endswith(".sqlite") else "postgres"
    return given | parse(files(package).joinpath(name).read_text(), dialect, given)


def written_out(text: str, macros: dict[str, Macro]) -> str:
    """The text with its macros in the dialect's own words, the innermost first."""

    def replaced(match: re.Match[str]) -> str:
        return macros[match[1]](match[2].strip()) if match[1] in macros else match[0]

    while (done := re.sub(r"\{(\w+)([^{}]*)\}", replaced, text)) != text:
        text = done
    return text


def columns(given: str) -> tuple[str, list[tuple[str, str]]]:
    """`:given id uuid, claim bigint` as the parameter's name, and columns with their types."""
    name, _, rest = given.partition(" ")
    pairs = [column.split() for column in rest.split(",")]
    return name.removeprefix(":"), [(column, kind) for column, kind in pairs]


def filled(query: str, known: dict[str, str]) -> str:
    """The query with each `{name}` that is known, or a fragment, replaced."""
    return re.sub(r"{(\w+)}", lambda m: known.get(m[1]) or FRAGMENTS.get(m[1], m[0]), query)


def statement(body: str) -> str:
    """The query without the lines of intent above it."""
    lines = body.strip().splitlines()
    while lines and lines[0].startswith("--"):
        del lines[0]
    return "\n".join(lines).strip()


def migrations(package: str) -> list[tuple[int, str, str]]:
    """(version, name, SQL) of every migration of one store, in order."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name)
        if match:
            found.append((int(match[1]), match[2], entry.read_text()))
    return sorted(found)


# ── made from the transitions ──


def _attempt_outcome() -> str:
    """The outcome of the attempt that `transition` ends; NULL where it ends none."""
    cases = [f"WHEN '{t.name}' THEN '{t.attempt}'" for t in TRANSITIONS if t.attempt]
    return f"CASE transition {' '.join(cases)} END"


def _attempt_explains_state() -> str:
    """Whether the outcome of attempt `a` is one that brings event `e` into its state; true for states without any."""
    outcomes: dict[str, list[AttemptOutcome]] = {}
    for transition in TRANSITIONS:
        if transition.attempt:
            outcomes.setdefault(transition.target, []).append(transition.attempt)
    cases = [
        f"WHEN '{state}' THEN coalesce(a.outcome, '') IN ({_listed(expected)})"
        for state, expected in outcomes.items()
    ]
    return f"CASE e.state {' '.join(cases)} ELSE true END"


def _listed(values: list[AttemptOutcome]) -> str:
    return ", ".join(f"'{value}'" for value in values)


FRAGMENTS = {
    "attempt_outcome": _attempt_outcome(),
    "attempt_explains_state": _attempt_explains_state(),
    "crashed": f"'{BY_NAME['reclaim'].attempt}'",
}
"""SQL made from `states.TRANSITIONS`, for every file of queries."""
