"""Anthropic: Claude Managed Agents."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body
from ..presets import standard_webhooks

CONTRACTS = (
    Contract(
        name="anthropic",
        title="Anthropic",
        scheme=standard_webhooks(tolerance=77 * 3600),
        secret="the endpoint's signing secret: whsec_ and the key in base64",
        id=body("id"),  # what Anthropic names for this purpose; webhook-id is signed too
        type=(body("data.type"),),
        object_id=(body("data.id"),),
        occurred_at=body("created_at"),
        retries=Retries(
            automatic=True,
            hours=76,
            schedule="not documented; these are the hours of Standard Webhooks' example",
            why="not documented; Standard Webhooks, which it follows, gives every retry the time of that attempt",
        ),
        lister=Lister(list="the objects themselves, by id"),
        confirmed=Confirmed(
            signature="run",
            event="code",
            response="quoted",
            retry="memory",
            reconcile="docs",
            sources=("anthropic 2.8.0: resources/beta/webhooks.py", "platform.claude.com: managed agents, webhooks"),
        ),
        notes=(
            "The body names the object and does not contain it: fetch it by data.id.",
            "The outer type is always event; the event's own is data.type.",
            "It is unknown how long it retries. A redirect counts as a failure.",
        ),
    ),
)
