"""Bitbucket Cloud: repository and workspace webhooks."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="bitbucket",
        title="Bitbucket Cloud",
        scheme=Hmac(header=b"x-hub-signature", prefix=b"sha256="),
        secret="the webhook's secret, as text",
        id=header("X-Request-UUID"),
        stable="unknown",  # if an attempt gets an id of its own, the body gives it away
        type=(header("X-Event-Key"),),
        object_id=(body("pullrequest.id"), body("issue.id"), body("repository.uuid")),
        delivery_id=header("X-Request-UUID"),
        deadline=10,
        retries=Retries(automatic=True, hours=0.1, schedule="up to two more attempts"),
        lister=Lister(list="the request log in the repository's settings, once history is enabled"),
        confirmed=Confirmed(
            signature="quoted",
            event="memory",
            response="memory",
            retry="memory",
            reconcile="docs",
            sources=("Atlassian's articles on event payloads and troubleshooting", "adnanh/webhook#662"),
        ),
        notes=(
            "Only the body is signed: neither the id nor X-Event-Key. Whoever captured a request can send its body "
            "as another type.",
            "A branch moved forth, back and forth again pushes the same body twice: the second is kept as `same "
            "body`, to be admitted by a person, unless the source declares repo:push repeatable.",
            "A payload over 256 KB is never sent, and nothing says so.",
            "Bitbucket Data Center has other headers and bodies.",
        ),
    ),
)
