"""Jira Cloud: webhooks of administrators, and of OAuth apps."""

from __future__ import annotations

import msgspec

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac
from ..schemes.jwt import Jwt

JIRA = Contract(
    name="jira",
    title="Jira Cloud",
    scheme=Hmac(header=b"x-hub-signature", prefix=b"sha256="),
    secret="the webhook's secret, as text",
    id=header("X-Atlassian-Webhook-Identifier"),
    type=(body("webhookEvent"),),
    object_id=(body("issue.id"), body("comment.id"), body("project.id"), body("version.id"), body("sprint.id")),
    occurred_at=body("timestamp"),
    occurred_unit="ms",
    delivery_id=header("X-Atlassian-Webhook-Identifier"),
    retries=Retries(
        automatic=True, hours=1.25, schedule="five times, 5 to 15 minutes apart, after 408, 409, 425, 429 and 5xx"
    ),
    confirmed=Confirmed(
        signature="quoted",
        event="quoted",
        response="quoted",
        retry="quoted",
        reconcile="code",
        sources=("jira.js: webhook headers, failed webhooks", "Atlassian's documentation, quoted by others"),
    ),
    notes=(
        "The identifier is the same in every retry, but unsigned; the body, which includes the time, also identifies "
        "the event.",
        "A webhook without a secret is not signed, and Hookledger rejects it.",
    ),
)

CONTRACTS = (
    JIRA,
    msgspec.structs.replace(
        JIRA,
        name="jira_app",
        title="Jira Cloud apps",
        # The retries end after 75 minutes. It is unknown whether the token has an expiry.
        scheme=Jwt(alg="HS256", expires=False, tolerance=5400),
        secret="the OAuth app's client secret",
        retries=msgspec.structs.replace(JIRA.retries, why="Atlassian does not say whether a retry gets a new token"),
        lister=Lister(list="GET /rest/api/3/webhook/failed"),
        notes=(
            "The token proves the sender, not the body or the identifier.",
            "That the token is HS256 is assumed, not confirmed.",
            "An app's webhooks expire after 30 days unless they are renewed; from memory.",
        ),
    ),
)
