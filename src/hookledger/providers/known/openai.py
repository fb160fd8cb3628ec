"""OpenAI: responses, batches, fine-tuning and evaluations that have ended."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Retries
from ..fields import body, header
from ..presets import standard_webhooks

CONTRACTS = (
    Contract(
        name="openai",
        title="OpenAI",
        scheme=standard_webhooks(tolerance=73 * 3600),
        secret="the endpoint's signing secret: whsec_ and the key in base64",
        id=header("webhook-id"),
        type=(body("type"),),
        object_id=(body("data.id"),),
        occurred_at=body("created_at"),
        retries=Retries(
            automatic=True,
            hours=72,
            schedule="exponential",
            why="not documented; Standard Webhooks, which it follows, gives every retry the time of that attempt",
        ),
        confirmed=Confirmed(
            signature="run",
            event="code",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=("openai 3.49.0: lib/_webhooks.py", "OpenAI's webhooks guide, quoted by others"),
        ),
        notes=(
            "The body names the object and does not contain it: fetch it by data.id.",
            "It waits only for a few seconds and follows no redirect.",
            "Hookledger rejects a secret without whsec_; OpenAI's own library would use its text as the key.",
        ),
    ),
)
