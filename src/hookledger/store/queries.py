"""What the files of queries are made of besides their own text, and the files of migrations."""

from __future__ import annotations

import re
from importlib.resources import files

from ..states import BY_NAME, TRANSITIONS, AttemptOutcome


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
