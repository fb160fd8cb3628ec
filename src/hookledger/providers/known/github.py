"""GitHub: repository, organization and app webhooks."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="github",
        title="GitHub",
        scheme=Hmac(header=b"x-hub-signature-256", prefix=b"sha256="),
        secret="the webhook's secret, as text",
        id=header("X-GitHub-Delivery"),
        type=(header("X-GitHub-Event"), body("action")),
        delivery_id=header("X-GitHub-Delivery"),
        # Two dispatches with the same inputs are two intents, and nothing in the body tells them apart.
        repeatable=frozenset({"workflow_dispatch", "repository_dispatch"}),
        form_field="payload",
        max_body=25 * MIB,
        deadline=10,
        retries=Retries(automatic=False, hours=0, schedule="GitHub never redelivers by itself"),
        lister=Lister(
            list="GET /repos/{owner}/{repo}/hooks/{id}/deliveries, /orgs/…, /app/hook/deliveries",
            days=3,
            redeliver="POST …/deliveries/{delivery_id}/attempts",
            resend_days=3,
        ),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            handshake="docs",
            response="docs",
            retry="docs",
            reconcile="docs",
            sources=("GitHub's documentation", "@octokit/webhooks-methods 6.0.0"),
        ),
        notes=(
            "Only the body is signed. Whoever captured one request can send its body again: under another "
            "delivery id, which the body gives away, or under another X-GitHub-Event, which nothing does.",
            "There are no automatic redeliveries: what was missed must be fetched.",
            "The ping after creation is an event of type ping.",
            "Deliveries can be listed and redelivered for three days; on Enterprise Server for seven.",
            "One event has one delivery id at all webhooks that get it: give each webhook a source of its own.",
        ),
    ),
)
