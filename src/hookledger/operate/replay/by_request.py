"""What a new run of a guarded request comes to: no worker runs its route, only the next request with its key does.

Pure. A request that comes while the event has a stored answer gets that answer, and runs nothing.
"""

from __future__ import annotations

from ...model import GUARDED
from ...store.history import AnswerRow, Evidence, History
from ...work.route import Handler


def is_by_request(history: History | Evidence, handler: Handler | None) -> bool:
    """Whether the event is a guarded request: so says its handler, or how it was proved."""
    if handler is not None:
        return handler.by_request is not None
    return isinstance(history, History) and history.request is not None and history.request.scheme == GUARDED


def with_request(history: History | Evidence) -> str:
    """Return with which request a new run begins."""
    answer = _stored(history)
    if answer is None:
        return "with the next request that has its key"
    return f"with the first request that has its key after {answer.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def of_route(history: History | Evidence, handler: Handler | None) -> tuple[list[str], list[str]]:
    """Return what a new run does outside the ledger, and why. `handler`: None if the application is not loaded."""
    route, answer = history.event.type, _stored(history)
    keep = "the guard's keep" if handler is None else f"{handler.by_request:,.0f} s (keep)"
    reasons = [
        f"Only your application runs {route}, with a request that has its key; no worker does. If none comes within "
        f"{keep}, a worker skips the event, and requests with its key get 409."
    ]
    if answer is not None:
        reasons.insert(
            0, f"Until then requests with its key get the stored answer ({answer.status}), and nothing runs."
        )
    if history.event.first_processed_at is None:
        return [f"{route} runs {with_request(history)}: no run was processed yet"], reasons
    return [f"{route} runs again {with_request(history)}"], reasons


def kept_answer(history: History | Evidence, handler: Handler | None) -> list[str]:
    """Return what senders get whose event a worker runs again."""
    answer = None if is_by_request(history, handler) else _stored(history)
    if answer is None:
        return []
    until = f"{answer.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    return [f"Redeliveries get the stored answer ({answer.status}) until {until}, whatever this run answers."]


def _stored(history: History | Evidence) -> AnswerRow | None:
    """The answer that requests with its key get now."""
    answer = history.answer if isinstance(history, History) else None
    return None if answer is None or answer.expired else answer
