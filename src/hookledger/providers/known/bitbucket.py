"""Bitbucket Cloud: repository and workspace webhooks."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries, Shape, names
from ..fields import body, header
from ..schemes.hmac import Hmac

TYPES = names(
    """
    repo:push repo:fork repo:updated repo:imported repo:deleted repo:transfer repo:commit_comment_created
    repo:commit_status_created repo:commit_status_updated issue:created issue:updated issue:comment_created
    pullrequest:created pullrequest:updated pullrequest:approved pullrequest:unapproved
    pullrequest:changes_request_created pullrequest:changes_request_removed pullrequest:fulfilled
    pullrequest:rejected pullrequest:comment_created pullrequest:comment_updated pullrequest:comment_deleted
    pullrequest:comment_resolved pullrequest:comment_reopened
    """
)

CONTRACTS = (
    Contract(
        name="bitbucket",
        title="Bitbucket Cloud",
        scheme=Hmac(header=b"x-hub-signature", prefix=b"sha256="),
        secret="the webhook's secret, as text",
        id=header("X-Request-UUID"),
        stable="unknown",  # if attempts have different ids, the body identifies the event
        type=(header("X-Event-Key"),),
        object_id=(body("pullrequest.id"), body("issue.id"), body("repository.uuid")),
        delivery_id=header("X-Request-UUID"),
        types=TYPES,
        shown=(Shape(types=frozenset({"repo:push"}), has=(body("push.changes"), body("repository"))),),
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
            "Only the body is signed: neither the id nor X-Event-Key. A known body under another id or type is "
            "quarantined.",
            "A branch moved forward, back and forward again pushes the same body twice: the second is quarantined "
            "as `same body`, unless the source declares repo:push repeatable.",
            "Bitbucket silently drops payloads over 256 KB.",
            "Bitbucket Data Center has other headers and bodies.",
        ),
    ),
)
