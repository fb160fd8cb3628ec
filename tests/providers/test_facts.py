"""Facts that were found wrong or missing when the contracts were held against public documents."""

from __future__ import annotations

import hmac
from typing import Any

import msgspec
import pytest

from hookledger.errors import Rejected
from hookledger.model import Item, Proof, Request
from hookledger.providers.catalogue import contracts, find
from hookledger.providers.words import facts
from hookledger.receive.advice import advice
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from tests.endpoints import configure
from tests.providers.made import FIRST, endpoint_of

NOW = 1_763_000_000.0
OWN, MAIN = "the key of a subaccount", "the key of the main account"
KNOWN = contracts()


def items(name: str, content: Any, *headers: tuple[str, str]) -> tuple[Item, ...]:
    """What is found in a request that was proved."""
    pairs = tuple((field.lower().encode(), value.encode()) for field, value in headers)
    request = Request("POST", f"/{name}", b"", pairs, msgspec.json.encode(content))
    return identify(endpoint_of(FIRST[name]), request, Proof("", ""), NOW)


# ── Mailgun ──────────────────────────────────────────────────────────────────


def mailgun(**signatures: str) -> Request:
    stamp, token = f"{NOW:.0f}", "a" * 50
    block = {"timestamp": stamp, "token": token}
    for field, key in signatures.items():
        block[field.replace("_", "-")] = hmac.new(key.encode(), (stamp + token).encode(), "sha256").hexdigest()
    content = {"signature": block, "event-data": {"id": "e1", "event": "opened"}}
    return Request("POST", "/mailgun", b"", (), msgspec.json.encode(content))


def accepted(request: Request, *secrets: str) -> bool:
    try:
        verify(configure("mailgun", find("mailgun"), list(secrets)), request, NOW)
    except Rejected:
        return False
    return True


def test_a_subaccounts_event_is_proved_by_either_signature() -> None:
    both = mailgun(signature=OWN, parent_signature=MAIN)
    assert accepted(both, OWN)
    assert accepted(both, MAIN)
    assert accepted(both, "an old key of another account", MAIN)
    assert accepted(mailgun(signature=OWN), OWN)
    assert not accepted(mailgun(signature=OWN), MAIN)
    assert not accepted(both, "the key of somebody else")
    assert not accepted(mailgun(parent_signature=MAIN), MAIN), "as documented, the event's own is always there"


@pytest.mark.parametrize("value", [None, 1, [], {}, "", "0" * 64])
def test_a_malformed_parent_signature_proves_nothing(value: object) -> None:
    content = msgspec.json.decode(mailgun(signature=OWN).body)
    content["signature"]["parent-signature"] = value
    odd = Request("POST", "/mailgun", b"", (), msgspec.json.encode(content))
    assert accepted(odd, OWN)
    assert not accepted(odd, MAIN)


# ── times of events ──────────────────────────────────────────────────────────


def test_slacks_event_has_its_own_time() -> None:
    content = {"event_id": "Ev1", "event_time": 1_763_000_000, "event": {"type": "message"}}
    [dispatched] = items("slack_events", content)
    assert dispatched.occurred_at == 1_763_000_000
    content["event"] = {"type": "message", "event_ts": "1762999990.000200"}
    [own] = items("slack_events", content)
    assert own.occurred_at == pytest.approx(1_762_999_990.0002, abs=0.00001)


def test_adyens_transactions_have_another_time() -> None:
    content = {"type": "balancePlatform.transaction.created", "data": {"id": "EVJN1"}}
    [queued] = items("adyen", {**content, "timestamp": "2025-11-13T02:13:20Z"})
    assert queued.occurred_at == 1_763_000_000
    [created] = items("adyen", {**content, "createdAt": "2025-11-13T02:13:10Z", "timestamp": "2025-11-13T02:13:20Z"})
    assert created.occurred_at == 1_762_999_990


# ── what an event is about, and on whose behalf ──────────────────────────────

REPOSITORY = {"id": 1296269, "pushed_at": 1_763_000_000, "updated_at": "2025-11-13T02:13:20Z"}
CHANGED = {"id": 7, "node_id": "n7", "number": 7, "updated_at": "2025-11-13T02:13:20Z"}
GITHUB: dict[str, tuple[dict[str, Any], str, float | None]] = {
    "issues": ({"action": "opened", "issue": CHANGED}, "1296269:7", NOW),
    "pull_request": ({"action": "closed", "pull_request": CHANGED}, "1296269:7", NOW),
    "issue_comment": ({"action": "created", "issue": {"id": 8}, "comment": CHANGED}, "1296269:7", NOW),
    "pull_request_review": ({"review": {"id": 7, "submitted_at": "2025-11-13T02:13:20Z"}}, "1296269:7", NOW),
    "push": ({"ref": "refs/heads/main"}, "1296269:refs/heads/main", NOW),
    "status": ({"sha": "abc", "context": "ci", "updated_at": "2025-11-13T02:13:20Z"}, "1296269:abc:ci", NOW),
    "workflow_job": ({"workflow_job": {"id": 7, "started_at": "2025-11-13T02:13:20Z"}}, "1296269:7", NOW),
    "deployment_status": ({"deployment": {"id": 7}, "deployment_status": CHANGED}, "1296269:7", NOW),
    "dependabot_alert": ({"alert": CHANGED}, "1296269:7", NOW),
    "label": ({"label": {"id": 7}}, "1296269:7", None),
    "repository": ({"action": "edited"}, "1296269", NOW),
    "watch": ({"action": "started"}, "1296269", None),
}


@pytest.mark.parametrize("event", sorted(GITHUB))
def test_github_says_by_type_what_an_event_is_about(event: str) -> None:
    content, about, moment = GITHUB[event]
    [found] = items("github", {**content, "repository": REPOSITORY}, ("X-GitHub-Event", event))
    assert (found.object_id, found.occurred_at) == (about, moment)


def test_github_without_a_repository() -> None:
    kind = ("X-GitHub-Event", "membership")
    [member] = items("github", {"team": {"id": 3}, "member": {"id": 4}, "organization": {"id": 5}}, kind)
    assert member.object_id == "3:4"
    [odd] = items("github", {"team": None, "member": [], "organization": {"id": 5}}, kind)
    assert odd.object_id == "5"
    [unknown] = items("github", {"installation": {"id": 6}}, ("X-GitHub-Event", "something_new"))
    assert (unknown.object_id, unknown.occurred_at) == ("6", None)


@pytest.mark.parametrize(
    ("content", "account"),
    [
        ({"account": "acct_1"}, "acct_1"),
        ({"context": "ctx_1"}, "ctx_1"),
        ({"account": "acct_1", "context": "ctx_1"}, "acct_1"),
        ({"account": None}, None),
        ({}, None),
    ],
)
def test_stripes_account(content: dict[str, Any], account: str | None) -> None:
    [found] = items("stripe", {"id": "evt_1", "type": "charge.succeeded", **content})
    assert found.account == account


def test_slacks_retry() -> None:
    content = {"event_id": "Ev1", "event": {"type": "message"}}
    number, why = ("X-Slack-Retry-Num", "2"), ("X-Slack-Retry-Reason", "http_timeout")
    assert [items("slack_events", content, *given)[0].retry for given in ((), (number,), (number, why), (why,))] == [
        None,
        "2",
        "2 http_timeout",
        None,
    ]


# ── what an outage loses ─────────────────────────────────────────────────────

ARN = "arn:aws:sns:eu-west-1:123456789012:orders"


def said(name: str, secret: str = "made up for the tests", *, reconciled: bool = False) -> str:
    return "\n".join(advice(configure(name, KNOWN[name], [secret]), reconciled=reconciled))


def test_what_an_outage_loses_is_said_with_what_to_do() -> None:
    for words in ("three times, 20 seconds apart", "delivery policy", "dead-letter queue"):
        assert words in said("aws_sns", ARN)
    assert "dead-letter queue" not in said("aws_sns", ARN, reconciled=True)
    assert "Require Acknowledgement" in said("docusign")
    assert "configure reconcile" in said("gitlab")


def test_how_long_each_tries() -> None:
    tried = {name: KNOWN[name].retries for name in ("docusign", "gitlab", "gitlab_signed", "hubspot_v2", "sendgrid")}
    assert {name: (retries.automatic, retries.hours) for name, retries in tried.items()} == {
        "docusign": (True, 240),
        "gitlab": (False, 0),
        "gitlab_signed": (False, 0),
        "hubspot_v2": (True, 72),
        "sendgrid": (True, 29),
    }
    assert (KNOWN["hubspot"].deadline, KNOWN["hubspot_v2"].deadline, KNOWN["google_pubsub"].deadline) == (5, 30, 10)
    assert KNOWN["google_pubsub"].retries.hours == 31 * 24


def test_a_list_that_must_be_switched_on_says_so() -> None:
    [listed] = [fact.value for fact in facts(KNOWN["square"]) if fact.name == "can be listed"]
    assert "PUT /v2/events/enable" in listed
