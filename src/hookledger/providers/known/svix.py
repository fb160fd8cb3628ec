"""Svix: senders that use it with Svix's own headers."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..presets import standard_webhooks

CONTRACTS = (
    Contract(
        name="svix",
        title="Svix",
        scheme=standard_webhooks(prefix="svix"),
        secret="the endpoint's secret: whsec_ and the key in base64",
        id=header("svix-id"),
        type=(body("type"),),
        object_id=(body("data.id"),),
        occurred_at=body("timestamp"),
        deadline=15,
        retries=Retries(
            automatic=True,
            hours=27.58,
            schedule="5s, 5m, 30m, 2h, 5h, 10h, 10h",
            disables="disables the endpoint after five days of failure",
            signs_each_attempt="yes",
            why="Svix documents the time as that of the attempt, and its server signs when it sends",
        ),
        lister=Lister(
            list="the sender's portal, or its message attempts",
            days=90,
            redeliver="the sender's portal; POST /api/v1/app/{app}/msg/{msg}/endpoint/{endpoint}/resend, …/recover",
        ),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="docs",
            sources=(
                "svix 2.9.1 and the published vector",
                "svix-docs: receiving, retries, retention, why verify",
                "svix-server: worker.rs",
            ),
        ),
        notes=(
            "The sender chooses the fields of type, object and time; most use those that Hookledger reads.",
            "Senders under their own name use the headers webhook-*: that is provider standard_webhooks.",
        ),
    ),
)
