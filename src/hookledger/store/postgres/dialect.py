"""Named queries, written for one schema and one clock."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...clock import Clock
from ..text import Macro, columns, written_out

_AMONG = re.compile(r"IN \{list (:\w+) (\w+)\}")
"""As an array: a subquery is planned as a join that reads the whole table where there are no statistics yet."""


class Dialect:
    """`dialect(name)` is a query in PostgreSQL's words, its macros written out."""

    def __init__(self, queries: Mapping[str, str], schema: str, clock: Clock) -> None:
        self._queries = queries
        self._schema = '"' + schema.replace('"', '""') + '"'
        self._clock = clock
        self._texts: dict[tuple[str, float], str] = {}

    def __call__(self, name: str) -> str:
        key = name, self._clock.offset
        if key not in self._texts:
            offset = self._clock.offset
            now = "clock_timestamp()" if not offset else f"clock_timestamp() + interval '{offset} seconds'"
            text = _AMONG.sub(r"= ANY(\1::\2[])", self._queries[name])
            self._texts[key] = written_out(
                text, {**MACROS, "schema": lambda _: self._schema, "now": lambda _: f"(SELECT {now})"}
            )
        return self._texts[key]

    def render(self, sql: str) -> str:
        """SQL with the schema's quoted name in it."""
        return sql.replace("{schema}", self._schema)


def _rows(given: str) -> str:
    name, named = columns(given)
    arrays = ", ".join(f":{name}__{place}::{kind}[]" for place, (_, kind) in enumerate(named))
    titles = ", ".join(column for column, _ in named)
    return f"(SELECT * FROM unnest({arrays}) AS given ({titles}))"  # noqa: S608 - of our own SQL files


MACROS: dict[str, Macro] = {
    "seconds": lambda given: f"make_interval(secs => {given})",
    "elapsed": lambda given: f"extract(epoch FROM {given})::float8",
    "greatest": lambda _: "greatest",
    "least": lambda _: "least",
    "lock": lambda _: "FOR NO KEY UPDATE",
    "lock_free": lambda given: f"FOR NO KEY UPDATE OF {given} SKIP LOCKED",
    "indexed": lambda _: "",
    "ordered": lambda _: "",
    "offset_0": lambda _: "OFFSET 0",
    "rows": _rows,
}
