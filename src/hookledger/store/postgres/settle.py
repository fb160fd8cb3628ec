"""The parameters of `settle` on PostgreSQL: one array per column, for outcomes and for answers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from ...model import Outcome
from ..ops.answers import answers_of
from ..rows import outcome_values
from .intake import columns

OUTCOME_COLUMNS = 11
ANSWER_COLUMNS = "event_id", "status", "headers", "body", "keep"


def settle_values(outcomes: Sequence[Outcome], mark: str | None) -> list[Any]:
    """`mark`: of the handler's transaction, if it is written there."""
    # Sorted: every transaction that writes several events locks them in one order.
    rows = sorted(map(outcome_values, outcomes), key=itemgetter(0))
    answers = answers_of(outcomes)
    return [
        *(columns(rows) or [[]] * OUTCOME_COLUMNS),
        mark,
        *([answer[name] for answer in answers] for name in ANSWER_COLUMNS),
    ]
