"""GitHub: repository, organization and app webhooks."""

from __future__ import annotations

from .contract import MIB, Contract, body, header
from .schemes import Hmac

CONTRACT = Contract(
    name="github",
    title="GitHub",
    scheme=Hmac(header=b"x-hub-signature-256", prefix=b"sha256="),
    id=header("X-GitHub-Delivery"),
    type=(header("X-GitHub-Event"), body("action")),
    delivery_id=header("X-GitHub-Delivery"),
    # Two dispatches with the same inputs are two intents, and nothing in the body tells them apart.
    repeatable=frozenset({"workflow_dispatch", "repository_dispatch"}),
    form_field="payload",
    max_body=25 * MIB,
    retry_hours=0,  # GitHub never redelivers by itself
    notes=(
        "Only the body is signed. Whoever captured one request can send its body again: under another "
        "delivery id, which the body gives away, or under another X-GitHub-Event, which nothing does.",
        "There are no automatic redeliveries: what was missed must be fetched.",
    ),
)
