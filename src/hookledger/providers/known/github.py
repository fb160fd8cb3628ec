"""GitHub: repository, organization and app webhooks."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries, Shape, TypeFields, names
from ..fields import body, header
from ..schemes.hmac import Hmac

TYPES = names(
    """
    branch_protection_configuration branch_protection_rule check_run check_suite code_scanning_alert
    commit_comment create custom_property custom_property_values delete dependabot_alert deploy_key deployment
    deployment_protection_rule deployment_review deployment_status discussion discussion_comment fork
    github_app_authorization gollum installation installation_repositories installation_target issue_comment
    issue_dependencies issues label marketplace_purchase member membership merge_group meta milestone org_block
    organization package page_build personal_access_token_request ping project project_card project_column
    projects_v2 projects_v2_item projects_v2_status_update public pull_request pull_request_review
    pull_request_review_comment pull_request_review_thread push registry_package release repository
    repository_advisory repository_dispatch repository_import repository_ruleset repository_vulnerability_alert
    secret_scanning_alert secret_scanning_alert_location secret_scanning_scan security_advisory
    security_and_analysis sponsorship star status sub_issues team team_add watch workflow_dispatch workflow_job
    workflow_run
    """
)


def shape(kind: str, has: str, lacks: str = "", action: str = "") -> Shape:
    return Shape(
        types=frozenset({kind}),
        has=tuple(map(body, has.split())),
        lacks=tuple(map(body, lacks.split())),
        says=((body("action"), action),) if action else (),
    )


# By the fields that GitHub's published schemas require of a type and of no other.
SHAPES = (
    shape("workflow_dispatch", "inputs ref workflow"),
    shape("repository_dispatch", "branch client_payload action"),
    shape("membership", "scope member team action"),
    shape("member", "member repository action", "team scope"),
    shape("team_add", "team repository", "action member"),
    shape("org_block", "blocked_user action"),
    shape("github_app_authorization.revoked", "sender", "repository organization alert", "revoked"),
    shape("organization.member_added", "organization membership", "repository", "member_added"),
    shape("organization.member_removed", "organization membership", "repository", "member_removed"),
    shape("organization.renamed", "organization", "repository account target_type", "renamed"),
    shape("team", "team organization action", "member"),
    shape("label", "label repository action", "issue pull_request discussion"),
)
# These contain times or commits; a source may still declare them repeatable.
MORE_SHAPES = (shape("gollum", "pages"), shape("push", "commits pusher compare"))

REPOSITORY = body("repository.id")


def _of(types: str, *about: str, at: str = "") -> TypeFields:
    """Return object and time of these types, within their repository; the first path present is used."""
    fields = tuple(map(body, about))
    return TypeFields(
        types=tuple(types.split()), object_id=(REPOSITORY, *fields), occurred_at=tuple(map(body, at.split()))
    )


PER_TYPE = (
    _of("issues", "issue.id", at="issue.updated_at"),
    _of("pull_request", "pull_request.id", at="pull_request.updated_at"),
    _of("pull_request_review", "review.id", at="review.updated_at review.submitted_at"),
    _of("pull_request_review_thread", "thread.node_id", at="updated_at pull_request.updated_at"),
    _of(
        "issue_comment pull_request_review_comment commit_comment discussion_comment",
        "comment.id",
        at="comment.updated_at",
    ),
    _of("discussion", "discussion.id", at="discussion.updated_at"),
    _of("push create delete", "ref", at="repository.pushed_at"),
    _of("release", "release.id", at="release.updated_at release.published_at release.created_at"),
    _of("check_run", "check_run.id", at="check_run.completed_at check_run.started_at"),
    _of("check_suite", "check_suite.id", at="check_suite.updated_at"),
    _of("workflow_run", "workflow_run.id", at="workflow_run.updated_at"),
    _of(
        "workflow_job",
        "workflow_job.id",
        at="workflow_job.completed_at workflow_job.started_at workflow_job.created_at",
    ),
    _of("status", "sha", "context", at="updated_at"),
    _of("deployment", "deployment.id", at="deployment.updated_at"),
    _of("deployment_status", "deployment.id", at="deployment_status.updated_at"),
    _of("milestone", "milestone.id", at="milestone.updated_at"),
    _of("label", "label.id"),
    _of("package", "package.id", at="package.updated_at"),
    _of("registry_package", "registry_package.id", at="registry_package.updated_at"),
    _of("fork", "forkee.id", at="forkee.created_at"),
    _of("star", "sender.id", at="starred_at"),
    _of("member", "member.id"),
    _of(
        "code_scanning_alert dependabot_alert secret_scanning_alert",
        "alert.number",
        at="alert.updated_at alert.created_at",
    ),
    _of("repository", at="repository.updated_at"),
    TypeFields(types=("membership",), object_id=(body("team.id"), body("member.id"))),
    TypeFields(types=("team", "team_add"), object_id=(body("team.id"),)),
    TypeFields(types=("organization",), object_id=(body("organization.id"), body("membership.user.id"))),
    TypeFields(
        types=("installation", "installation_repositories"),
        object_id=(body("installation.id"),),
        occurred_at=(body("installation.updated_at"),),
    ),
    TypeFields(
        types=("projects_v2_item",),
        object_id=(body("projects_v2_item.id"),),
        occurred_at=(body("projects_v2_item.updated_at"),),
    ),
)

CONTRACTS = (
    Contract(
        name="github",
        title="GitHub",
        scheme=Hmac(header=b"x-hub-signature-256", prefix=b"sha256="),
        secret="the webhook's secret, as text",
        id=header("X-GitHub-Delivery"),
        type=(header("X-GitHub-Event"), body("action")),
        object_id=(REPOSITORY, body("organization.id"), body("installation.id")),
        per_type=PER_TYPE,
        delivery_id=header("X-GitHub-Delivery"),
        hook_id=header("X-GitHub-Hook-ID"),
        types=TYPES,
        shown=SHAPES + MORE_SHAPES,
        # Two dispatches with the same inputs are two intents, and adding a member again gives the same body: nothing
        # in these bodies, not even a time, distinguishes the second from the first.
        repeatable=frozenset(name for shape in SHAPES for name in shape.types),
        form_field="payload",
        max_body=25 * MIB,
        deadline=10,
        retries=Retries(automatic=False, hours=0, schedule="GitHub never redelivers automatically"),
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
            sources=(
                "GitHub's documentation",
                "@octokit/webhooks-methods 6.0.0",
                "octokit/webhooks: payload schemas, and the payloads it publishes for objects and times",
            ),
        ),
        notes=(
            "Only the body is signed. A known body under another delivery id or X-GitHub-Event is quarantined, "
            "unless it shows a type that repeats identical bodies, such as workflow_dispatch: that is accepted "
            "again, so anyone who captured one can repeat it. `repeatable = []` quarantines those too.",
            "There are no automatic redeliveries: fetch missed events.",
            "The ping after creation is an event of type ping.",
            "Deliveries can be listed and redelivered for three days; on Enterprise Server for seven.",
            "The object of an event is REPOSITORY:OBJECT; its time is the object's last change. Types without one "
            "(label, member, membership, team) have no time.",
            "An event has the same delivery id at every webhook: give each webhook its own source.",
        ),
    ),
)
