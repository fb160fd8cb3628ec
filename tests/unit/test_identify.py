"""Keys, fingerprints and projections of authentic requests."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from hookledger.errors import NoKey, Rejected, UnreadableError
from hookledger.ids import key_identity
from hookledger.model import Item, Proof, Request
from hookledger.providers.catalogue import find
from hookledger.providers.reading import decode
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.identify import identify
from hookledger.states import KeyOrigin
from tests.endpoints import configure

SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
PROOF = Proof("hmac-sha256", "fingerprint")
NOW = 1_700_000_000.0
STRIPE = configure("stripe", find("stripe"), [SECRET])
GITHUB = configure("github", find("github"), [SECRET])
STANDARD = configure("standard", find("standard_webhooks"), [SECRET])
EVENT = {
    "id": "evt_1",
    "type": "invoice.paid",
    "created": 1_700_000_000,
    "pending_webhooks": 2,
    "data": {"object": {"id": "in_1"}},
}


def items(endpoint: Endpoint, body: object, **headers: str) -> tuple[Item, ...]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())
    return identify(endpoint, Request("POST", "/", b"", pairs, raw), PROOF, NOW)


def one(endpoint: Endpoint, body: object, **headers: str) -> Item:
    (item,) = items(endpoint, body, **headers)
    return item


def generic(**options: object) -> Endpoint:
    return configure("acme", find("hmac", {"header": "X-Sig", **options}), [SECRET])


# ── contracts ────────────────────────────────────────────────────────────────


def test_stripe() -> None:
    item = one(STRIPE, EVENT)
    assert (item.key, item.key_origin, item.provider_id) == ("evt_1", KeyOrigin.SIGNED_ID, "evt_1")
    assert (item.type, item.object_id, item.occurred_at) == ("invoice.paid", "in_1", 1_700_000_000.0)
    assert (item.body_identity, item.delivery_id, item.invalid, item.skip) == (None, None, None, None)
    assert item.identity == key_identity("stripe", b"evt_1")


def test_stripe_thin_event() -> None:
    thin = {"id": "evt_2", "type": "v1.x", "created": "2025-01-02T03:04:05Z", "related_object": {"id": "acct_1"}}
    item = one(STRIPE, thin)
    assert (item.object_id, item.occurred_at) == ("acct_1", 1735787045.0)


def test_stripe_volatile_field_makes_no_conflict() -> None:
    first = one(STRIPE, EVENT)
    reordered = dict(reversed({**EVENT, "pending_webhooks": 1}.items()))
    assert one(STRIPE, reordered).fingerprint == first.fingerprint
    other = one(STRIPE, {**EVENT, "data": {"object": {"id": "in_1", "pending_webhooks": 1}}})
    assert other.identity == first.identity
    assert other.fingerprint != first.fingerprint


def test_github() -> None:
    body = {"action": "opened", "issue": {"id": 1}}
    item = one(GITHUB, body, x_github_delivery="guid-1", x_github_event="issues")
    assert (item.key, item.key_origin, item.type) == ("guid-1", KeyOrigin.UNSIGNED_ID, "issues.opened")
    assert (item.provider_id, item.delivery_id) == ("guid-1", "guid-1")
    assert item.fingerprint == hashlib.sha256(json.dumps(body).encode()).digest()
    assert item.body_identity is not None


def test_github_same_body_under_another_id_is_seen() -> None:
    body = {"action": "opened"}
    first = one(GITHUB, body, x_github_delivery="1", x_github_event="issues")
    again = one(GITHUB, body, x_github_delivery="2", x_github_event="issues")
    nameless = one(GITHUB, body, x_github_event="issues")
    other = one(GITHUB, body, x_github_delivery="2", x_github_event="pull_request")
    assert first.identity != again.identity
    assert first.body_identity == again.body_identity == nameless.body_identity == other.body_identity is not None
    assert [found.type_identity for found in (first, again, nameless, other)] == [None] * 4
    assert nameless.key_origin == KeyOrigin.DIGEST


DISPATCHED: dict[str, dict[str, Any]] = {
    "workflow_dispatch": {"inputs": None, "ref": "refs/heads/main", "workflow": "deploy.yml"},
    "repository_dispatch": {"action": "deploy", "branch": "main", "client_payload": {}},
}


@pytest.mark.parametrize("event", DISPATCHED)
def test_github_dispatches_with_equal_bodies_are_two_intents(event: str) -> None:
    body = DISPATCHED[event]
    assert one(GITHUB, body, x_github_delivery="1", x_github_event=event).repeats
    assert one(GITHUB, body, x_github_event=event).key_origin is KeyOrigin.ARRIVAL


@pytest.mark.parametrize("event", DISPATCHED)
@pytest.mark.parametrize("body", [{"action": "opened"}, {"ref": "refs/heads/main"}, b"[]", b"{"])
def test_an_unsigned_header_makes_no_body_repeatable(event: str, body: Any) -> None:
    claimed = one(GITHUB, body, x_github_delivery="1", x_github_event=event)
    assert not claimed.repeats
    assert claimed.body_identity is not None
    assert one(GITHUB, body, x_github_event=event).key_origin is KeyOrigin.DIGEST


def test_a_source_can_switch_repeatable_off() -> None:
    strict = configure("github", find("github"), [SECRET], repeatable=[])
    body = DISPATCHED["workflow_dispatch"]
    assert not one(strict, body, x_github_delivery="1", x_github_event="workflow_dispatch").repeats


@pytest.mark.parametrize(
    ("event", "body", "repeats"),
    [
        ("team", {"action": "created", "team": {}, "organization": {}}, True),
        ("team", {"action": "created", "team": {}, "organization": {}, "member": {}, "scope": "team"}, False),
        ("membership", {"action": "added", "team": {}, "member": {}, "scope": "team"}, True),
        ("member", {"action": "removed", "member": {}, "repository": {}}, True),
        ("member", {"action": "added", "team": {}, "member": {}, "scope": "team", "repository": {}}, False),
        ("team_add", {"team": {}, "repository": {}}, True),
        ("team_add", {"action": "edited", "team": {}, "repository": {}}, False),
        ("org_block", {"action": "blocked", "blocked_user": {}}, True),
        ("organization", {"action": "member_added", "organization": {}, "membership": {}}, True),
        ("organization", {"action": "member_removed", "organization": {}, "membership": {}}, True),
        ("organization", {"action": "member_removed", "organization": {}, "membership": {}, "repository": {}}, False),
        ("organization", {"action": "deleted", "organization": {}, "membership": {}}, False),
        ("organization", {"action": "renamed", "organization": {}, "changes": {}}, True),
        ("github_app_authorization", {"action": "revoked", "sender": {}}, True),
        ("github_app_authorization", {"action": "revoked", "sender": {}, "alert": {}, "repository": {}}, False),
        ("label", {"action": "created", "label": {}, "repository": {}}, True),
        ("label", {"action": "labeled", "label": {}, "repository": {}, "issue": {}}, False),
        ("organization.renamed", {"action": "opened", "organization": {}}, False),
    ],
)
def test_github_bodies_without_a_time(event: str, body: dict[str, Any], repeats: bool) -> None:
    assert one(GITHUB, body, x_github_delivery="1", x_github_event=event).repeats is repeats


def test_github_form() -> None:
    form = b"payload=%7B%22action%22%3A%22opened%22%7D"
    assert one(GITHUB, form, x_github_delivery="1", x_github_event="issues").type == "issues.opened"


def test_standard_webhooks() -> None:
    body = {"type": "user.created", "timestamp": "2022-11-03T20:26:10.344522Z", "data": {"id": "u1"}}
    item = one(STANDARD, body, webhook_id="msg_1")
    assert (item.key, item.key_origin, item.body_identity) == ("msg_1", KeyOrigin.SIGNED_ID, None)
    assert (item.type, item.object_id, item.occurred_at) == ("user.created", "u1", 1667507170.344522)


# ── keys ─────────────────────────────────────────────────────────────────────


def test_a_key_is_exact_and_belongs_to_its_source() -> None:
    other = configure("stripe-test", find("stripe"), [SECRET])
    identities = {
        one(endpoint, {**EVENT, "id": key}).identity
        for endpoint in (STRIPE, other)
        for key in ("evt_1", "EVT_1", " evt_1", "evt_1\0", "é", "e\u0301", "\ud800", "\udfff", "\ufffd")
    }
    assert len(identities) == 18
    assert one(STRIPE, {**EVENT, "id": 7}).identity == one(STRIPE, {**EVENT, "id": "7"}).identity


def test_composite_keys_do_not_run_together() -> None:
    endpoint = generic(key=["body:a", "body:b"], id="body:a")
    first, second = one(endpoint, {"a": "x:y", "b": "z"}), one(endpoint, {"a": "x", "b": "y:z"})
    assert first.key == second.key == "x:y:z"
    assert first.key_origin == KeyOrigin.COMPOSITE
    assert first.identity != second.identity
    assert first.provider_id == "x:y"
    assert one(endpoint, {"a": "x"}).key_origin == KeyOrigin.DIGEST


# proves R12
@pytest.mark.parametrize("value", [None, "", "  ", True, 1.5, [], {}, ["evt_1"], {"id": "evt_1"}])
def test_what_is_no_id_falls_back_to_a_digest(value: object) -> None:
    body = {**EVENT, "id": value}
    item = one(STRIPE, body)
    assert (item.key_origin, item.provider_id) == (KeyOrigin.DIGEST, None)
    assert item.key == f"sha256:{item.fingerprint.hex()}"
    assert one(STRIPE, {**body, "pending_webhooks": 9}).identity == item.identity
    assert one(STRIPE, {**body, "type": "other"}).identity != item.identity
    strict = configure("stripe", find("stripe"), [SECRET], key_required=True)
    with pytest.raises(NoKey) as caught:
        one(strict, body)
    assert caught.value.reason == "key_missing"


def test_a_digest_cannot_pose_as_an_id() -> None:
    digest = one(STRIPE, {"type": "a"})
    assert one(STRIPE, {"type": "a", "id": digest.key}).identity != digest.identity


def test_a_demanded_key_is_decided_before_the_dead_letter() -> None:
    with pytest.raises(NoKey):
        one(configure("s", find("stripe"), [SECRET], key_required=True), b"not json")
    standard = configure("s", find("standard_webhooks"), [SECRET], key_required=True)
    assert one(standard, b"not json", webhook_id="msg_1").invalid
    github = configure("g", find("github"), [SECRET], key_required=True)
    assert one(github, b"not json", x_github_delivery="1").key == "1"


def test_long_and_strange_keys_are_shown_safely() -> None:
    long = one(STRIPE, {**EVENT, "id": "x" * 300})
    assert len(long.key) == 255
    assert long.key.startswith("x" * 183 + "…sha256:")
    assert long.key != one(STRIPE, {**EVENT, "id": "x" * 301}).key
    assert one(STRIPE, {**EVENT, "id": "x" * 255}).key == "x" * 255
    assert one(STRIPE, {**EVENT, "id": "注文-é"}).key == "注文-é"
    assert "\0" not in one(STRIPE, {**EVENT, "id": "a\0b\x1b[2Jc\ud800"}).key


# ── types ────────────────────────────────────────────────────────────────────


def test_a_missing_type_is_unknown() -> None:
    assert one(STRIPE, {"id": "evt_1"}).type == "unknown"
    assert one(GITHUB, {"action": "opened"}, x_github_delivery="1").type == "unknown"
    assert one(GITHUB, {"action": ["x"]}, x_github_delivery="1", x_github_event="push").type == "push"


# proves R4
def test_types_that_are_not_allowed_are_skipped_or_rejected() -> None:
    skip = configure("s", find("stripe"), [SECRET], types=["customer.*"])
    reject = configure("s", find("stripe"), [SECRET], types=["customer.*"], other_types="reject")
    assert one(skip, EVENT).skip == "the source does not accept this event type"
    assert one(skip, {**EVENT, "type": "customer.created"}).skip is None
    with pytest.raises(Rejected) as caught:
        one(reject, EVENT)
    assert (type(caught.value), caught.value.reason) == (Rejected, "type_rejected")
    assert one(reject, b"[").invalid  # what cannot be read is kept, whatever its type might have been


# ── bodies ───────────────────────────────────────────────────────────────────

UNREADABLE = {
    "empty": (b"", "the body is not JSON"),
    "text": (b"hello", "the body is not JSON"),
    "truncated": (b'{"id": "evt_1"', "the body is not JSON"),
    "not UTF-8": (b'{"id": "\xff"}', "the body is not JSON"),
    "surrogate bytes": (b'{"id": "\xed\xa0\x80"}', "the body is not JSON"),
    "UTF-16": ('{"id": "evt_1"}'.encode("utf-16"), "the body is not JSON"),
    "array": (b"[]", "not an object"),
    "null": (b"null", "not an object"),
    "deep": (b'{"a":' * 900 + b"1" + b"}" * 900, "the JSON is nested too deeply"),
    "very deep": (b"[" * 1_000_000, "the JSON is nested too deeply"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_bodies_are_kept_under_their_bytes(name: str) -> None:
    body, why = UNREADABLE[name]
    for endpoint, headers in ((STRIPE, {}), (GITHUB, {"x_github_delivery": "1", "x_github_event": "push"})):
        item = one(endpoint, body, **headers)
        assert (item.invalid, item.key_origin) == (why, KeyOrigin.DIGEST)
        assert item.fingerprint == hashlib.sha256(body).digest()
        assert item == one(endpoint, body, **headers)
    signed = one(STANDARD, body, webhook_id="msg_1")
    assert (signed.invalid, signed.key, signed.key_origin) == (why, "msg_1", KeyOrigin.SIGNED_ID)


def test_a_number_no_one_can_read() -> None:
    """Found out where the field is read: at intake if it identifies the event, else by the handler."""
    body = b'{"id": ' + b"1" * 5000 + b"}"
    assert one(STRIPE, body).invalid == "an integer has over 4,300 digits"
    assert one(GITHUB, body, x_github_delivery="1", x_github_event="push").invalid is None
    with pytest.raises(UnreadableError):
        decode(GITHUB.contract, body)


@pytest.mark.parametrize(
    "extra",
    [
        rb'"x": "\ud800"',
        b'"x": NaN',
        b'"x": 1e400',
        b'"x": -Infinity',
        b'"x": ' + b"9" * 4000,
        rb'"x": "\u0000"',
        b'"id": "first", "x": 1',
        rb'"\ud800": 1',
    ],
)
def test_unusual_but_readable_bodies_are_events(extra: bytes) -> None:
    body = b"{" + extra + b', "id": "evt_1", "type": "t"}'
    item = one(STRIPE, body)
    assert (item.key, item.type, item.invalid) == ("evt_1", "t", None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("1970-01-01T00:00:10", 10.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("2199-12-31", 7258032000.0),
        (-1, None),
        (1e18, None),
        (10**400, None),
        (True, None),
        ("", None),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("2200-01-01T00:00:00Z", None),
        (float("nan"), None),
        (float("inf"), None),
        ([], None),
    ],
)
def test_times_fit_or_are_left_out(value: object, expected: float | None) -> None:
    assert one(STRIPE, {**EVENT, "created": value}).occurred_at == expected
    milliseconds = generic(occurred_at="body:t", occurred_unit="ms")
    assert one(milliseconds, {"t": 1500}).occurred_at == 1.5
    assert one(milliseconds, {"t": 1700000000123.45678}).occurred_at == 1700000000.123457


# ── several events in one request ────────────────────────────────────────────


def test_a_request_may_hold_several_events() -> None:
    endpoint = generic(items="data.events", id="body:id", type=["body:type"])
    found = items(endpoint, {"data": {"events": [{"id": 1, "type": "a"}, {"id": 2}, {"type": "c"}]}})
    assert [(i.key, i.type) for i in found[:2]] == [("1", "a"), ("2", "unknown")]
    assert found[2].key_origin == KeyOrigin.DIGEST
    assert len({i.identity for i in found}) == len({i.fingerprint for i in found}) == 3
    # The same event in other company is the same event.
    (alone,) = items(endpoint, {"data": {"events": [{"type": "c"}]}})
    assert alone == found[2]
    assert items(endpoint, {"data": {"events": []}}) == ()


def test_a_bad_item_does_not_spoil_the_others() -> None:
    endpoint = generic(items="", id="body:id")
    found = items(endpoint, [{"id": 1}, 7, 7, None, {"id": 2, "x": float("nan")}])
    assert [i.invalid for i in found] == [None, "not an object", "not an object", "not an object", None]
    assert len({i.identity for i in found}) == 5
    assert found == items(endpoint, [{"id": 1}, 7, 7, None, {"id": 2, "x": float("nan")}])


@pytest.mark.parametrize("body", [{}, {"events": {}}, {"events": None}, [], 1])
def test_a_request_without_its_array_is_one_invalid_item(body: object) -> None:
    assert one(generic(items="events"), body).invalid == "the body has no array of events"


def test_a_batch_is_refused_only_as_a_whole() -> None:
    contract = find("hmac", {"header": "X-Sig", "items": "", "id": "body:id", "type": ["body:type"]})
    endpoint = configure("s", contract, [SECRET], types=["a"], other_types="reject")
    found = items(endpoint, [{"id": 1, "type": "a"}, {"id": 2, "type": "b"}])
    assert [i.skip for i in found] == [None, "the source does not accept this event type"]
    with pytest.raises(Rejected):
        items(endpoint, [{"id": 2, "type": "b"}])


def test_nested_volatile_fields() -> None:
    endpoint = generic(volatile=["meta.attempt", "absent.x", "text.x"])
    first = one(endpoint, {"meta": {"attempt": 1, "a": 1}, "text": "x"})
    assert one(endpoint, {"meta": {"attempt": 2, "a": 1}, "text": "x"}).fingerprint == first.fingerprint
    assert one(endpoint, {"meta": {"attempt": 1, "a": 2}, "text": "x"}).fingerprint != first.fingerprint
