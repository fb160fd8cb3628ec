"""Guards in a handler's transaction on PostgreSQL: one statement where the event is the newest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import ChangedVersion, HandlerCommitted
from ...ledger import GuardAnswer, GuardRequest, answered, changed_kind

Run = Callable[..., Awaitable[list[Any]]]
"""Runs a named statement in the transaction."""


async def ask(run: Run, request: GuardRequest, mark: str) -> GuardAnswer:
    """Return the answer, recorded. `mark`: the transaction's."""
    version = request.kind, request.version, request.position, request.rank, request.received_at
    event = request.event_id, request.event_key, request.claim
    named = request.source, request.name, request.key
    while True:
        if rows := await run("newer", request.identity, *named, *version, *event, mark, request.approved):
            [(tie, other_version, other_id)] = rows
            return answered(request, True, tie, other_version, other_id, None)
        stale = request.identity, request.name, request.key, *version, request.event_id, request.claim, mark
        [(found, kind, other_version, other_id, other_key, tie)] = await run("stale", *stale)
        if found != mark:
            raise HandlerCommitted()
        if kind == request.kind:
            return answered(request, False, tie, other_version, other_id, other_key)
        if kind is not None:
            raise ChangedVersion(changed_kind(request, kind, other_version, other_id))


async def note_stale(run: Run, answer: GuardAnswer) -> None:
    """Record an answer that was rolled back."""
    about = answer.event_id, answer.claim, answer.identity, answer.name, answer.key
    version = answer.kind, answer.version, answer.position, answer.rank
    await run("note_stale", *about, *version, answer.tie, answer.other_version, answer.other_event_id)
