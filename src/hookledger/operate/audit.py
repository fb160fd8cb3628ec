"""The audit log: who acts and why, checked once for every action; and what was done, page by page."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from ..errors import ConfigError
from ..store.ops.audit import EVERY_ACTION, ActionFilter, Audit, AuditPage
from . import search
from .context import Context

LONGEST = 2000
"""Characters of a reason, and of every name that an operator gives."""


def by(actor: str, reason: str) -> Audit:
    """The audit log entry's actor and reason. ConfigError where one is missing or cannot be stored."""
    if not actor.strip():
        raise ConfigError("actor is required")
    if not reason.strip():
        raise ConfigError("reason is required")
    return Audit(check_text(actor, "actor"), check_text(reason, "reason"))


def check_text(text: str, name: str) -> str:
    """The text, which is kept with every event of a job: short, and text that every database takes."""
    if len(text) > LONGEST:
        raise ConfigError(f"{name} is longer than {LONGEST:,} characters")
    if "\0" in text:
        raise ConfigError(f"{name} contains a NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} contains a lone surrogate, which is not text") from error
    return text


async def page(
    context: Context,
    where: ActionFilter = EVERY_ACTION,
    *,
    event: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> AuditPage:
    """What operators did, newest first; the page says where to continue. `event`: only what was done to it, by id, id
    prefix or key; what was done to a pruned event is found by its whole id."""
    if event is not None:
        where = replace(where, event_id=await _event_id(context, event))
    return await context.store.audit.page(where, before=before, limit=limit)


async def _event_id(context: Context, reference: str) -> UUID:
    try:
        return UUID(reference)
    except ValueError:
        return (await search.find(context, reference)).event.id
