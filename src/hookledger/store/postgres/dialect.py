"""Named queries, rendered for one schema and one clock."""

from __future__ import annotations

from ...clock import Clock


class Dialect:
    """`dialect(name)` is a query with {schema} and {clock} filled in."""

    def __init__(self, queries: dict[str, str], schema: str, clock: Clock) -> None:
        self._queries = queries
        self._schema = '"' + schema.replace('"', '""') + '"'
        self._clock = clock
        self._rendered: tuple[float, dict[str, str]] = (float("nan"), {})

    def __call__(self, name: str) -> str:
        offset, rendered = self._rendered
        if offset != self._clock.offset:
            offset, rendered = self._clock.offset, {}
            self._rendered = (offset, rendered)
        if name not in rendered:
            clock = "clock_timestamp()" if not offset else f"clock_timestamp() + interval '{offset} seconds'"
            rendered[name] = self.render(self._queries[name]).replace("{clock}", f"(SELECT {clock})")
        return rendered[name]

    def render(self, sql: str) -> str:
        """SQL with the schema's quoted name in it."""
        return sql.replace("{schema}", self._schema)
