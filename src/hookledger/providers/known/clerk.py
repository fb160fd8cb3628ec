"""Clerk: users, organizations and sessions, through Svix."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..presets import standard_webhooks

CONTRACTS = (
    Contract(
        name="clerk",
        title="Clerk",
        scheme=standard_webhooks(prefix="svix"),
        secret="the endpoint's signing secret: whsec_ and the key in base64",
        id=header("svix-id"),
        type=(body("type"),),
        object_id=(body("data.id"),),
        occurred_at=body("timestamp"),
        occurred_unit="ms",
        deadline=15,
        retries=Retries(
            automatic=True,
            hours=27.58,
            schedule="5s, 5m, 30m, 2h, 5h, 10h, 10h",
            disables="disables the endpoint after five days of failure",
            signs_each_attempt="yes",
            why="Svix documents the time as that of the attempt, and its server signs when it sends",
        ),
        lister=Lister(redeliver="dashboard"),
        confirmed=Confirmed(
            signature="run",
            event="docs",
            response="docs",
            retry="docs",
            reconcile="docs",
            sources=("clerk-docs: webhooks overview", "svix 2.9.1"),
        ),
        notes=("The body has no id of the event; svix-id, which is signed, is one.",),
    ),
)
