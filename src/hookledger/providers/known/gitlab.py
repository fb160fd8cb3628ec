"""GitLab: project, group and system hooks, with a secret token or with signatures."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..presets import standard_webhooks
from ..schemes.token import Token

TYPE = (header("X-Gitlab-Event"), body("object_attributes.action"))
OBJECT = (body("object_attributes.id"), body("project_id"), body("project.id"))
RETRIES = Retries(
    automatic=False,
    hours=0,
    schedule="GitLab never redelivers automatically",
    disables="disables the endpoint after 4 failures in a row for a minute, growing to a day; after 40 until a test "
    "succeeds",
    signs_each_attempt="yes",
    why="it is sent once",
)
LISTER = Lister(
    list="GET /projects/{id}/hooks/{hook_id}/events",
    days=7,
    redeliver="POST /projects/{id}/hooks/{hook_id}/events/{event_id}/resend",
)
SOURCES = (
    "gitlabhq: web_hook_service.rb",
    "GitLab merge requests 230944, 231325",
    "gitlabhq pull request 8343: retries are declined",
    "an OpenAPI copy by API Evangelist",
)

CONTRACTS = (
    Contract(
        name="gitlab",
        title="GitLab",
        scheme=Token(header=b"x-gitlab-token"),
        secret="the hook's secret token",
        id=header("Idempotency-Key"),
        type=TYPE,
        object_id=OBJECT,
        occurred_at=body("object_attributes.updated_at"),
        delivery_id=header("X-Gitlab-Webhook-UUID"),
        max_body=25 * MIB,
        deadline=10,
        retries=RETRIES,
        lister=LISTER,
        confirmed=Confirmed(
            signature="docs", event="code", response="code", retry="quoted", reconcile="quoted", sources=SOURCES
        ),
        notes=(
            "The token proves the sender, not the body: prefer a signing token, which is provider gitlab_signed.",
            "It does not retry, and disables a hook that fails too often: reconcile after an outage. That there are "
            "no retries is not documented; when they were proposed, GitLab declined.",
            "That deliveries can be listed for seven days is from an unofficial copy of the API.",
        ),
    ),
    Contract(
        name="gitlab_signed",
        title="GitLab, signed",
        scheme=standard_webhooks(),
        secret="the hook's signing token: whsec_ and the key in base64",
        id=header("webhook-id"),
        type=TYPE,
        object_id=OBJECT,
        occurred_at=body("object_attributes.updated_at"),
        delivery_id=header("X-Gitlab-Webhook-UUID"),
        max_body=25 * MIB,
        deadline=10,
        retries=RETRIES,
        lister=LISTER,
        confirmed=Confirmed(
            signature="docs", event="code", response="code", retry="quoted", reconcile="quoted", sources=SOURCES
        ),
        notes=("X-Gitlab-Event is not signed; the id is, so a known event cannot be sent as another type.",),
    ),
)
