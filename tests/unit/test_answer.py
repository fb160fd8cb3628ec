"""What a handler may answer, and what may be declared."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from hookledger import Answer, ConfigError, Event, Inbox, Source
from hookledger.answer import MAX_ANSWER, AnswerRule
from hookledger.errors import BadResult
from hookledger.model import Kind, unpack_headers

SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM="
EMPTY = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'
LATE = Answer("working on it")


@pytest.mark.parametrize(
    ("body", "data", "kind"),
    [
        ({"text": "ä"}, '{"text":"ä"}'.encode(), "application/json"),
        ([1, None], b"[1,null]", "application/json"),
        ("ä", "ä".encode(), "text/plain; charset=utf-8"),
        (b"\0\xff", b"\0\xff", None),
        ("", b"", None),
    ],
)
def test_a_body_is_encoded_with_its_content_type(body: Any, data: bytes, kind: str | None) -> None:
    answer = Answer(body)
    assert (answer.body, dict(answer.headers).get("content-type")) == (data, kind)
    stored = answer.stored()
    assert (stored.status, stored.body, tuple(unpack_headers(stored.headers))) == (200, data, answer.headers)


def test_headers_keep_their_order_and_repeat() -> None:
    given = [("Link", "<a>"), ("X-Request-Id", " 1\t"), ("Link", "<b>"), ("Content-Type", "text/xml")]
    answer = Answer("<a/>", headers=given)
    assert answer.headers == (("link", "<a>"), ("x-request-id", "1"), ("link", "<b>"), ("content-type", "text/xml"))
    assert unpack_headers(answer.stored().headers) == [*answer.headers]


@pytest.mark.parametrize("status", [199, 300, 399, 500, 503, "200", True, None, 200.0])
def test_only_2xx_and_4xx_are_answers(status: Any) -> None:
    with pytest.raises(BadResult, match="status"):
        Answer("x", status)


@pytest.mark.parametrize(
    "headers",
    [
        {"x": "a\r\nset-cookie: b"},
        {"x": "a\nb"},
        {"x": "a\0"},
        {"x": "€"},
        {"x\r\ny": "a"},
        {"x y": "a"},
        {"": "a"},
        {"x:": "a"},
        {"Content-Length": "1"},
        {"Transfer-Encoding": "chunked"},
        {"connection": "close"},
        {"Date": "now"},
        {"Set-Cookie": "a=b"},
        {"x": 1},
        [("x",)],
        {"x": "a" * 9000},
    ],
)
def test_headers_that_would_change_the_response_are_refused(headers: Any) -> None:
    with pytest.raises(BadResult):
        Answer("x", headers=headers)


@pytest.mark.parametrize("body", [1, None, {"x": object()}, {1, 2}, "\ud800", b"x" * (MAX_ANSWER + 1)])
def test_bodies_that_cannot_be_kept_are_refused(body: Any) -> None:
    with pytest.raises(BadResult):
        Answer(body)


def test_a_status_without_content_has_no_body() -> None:
    assert Answer(status=204).body == b""
    with pytest.raises(BadResult, match="no body"):
        Answer("x", status=204)


@pytest.mark.parametrize("name, value", [("headers", (("x", "a\r\nset-cookie: b"),)), ("status", 500), ("body", "é")])
def test_an_answer_is_not_changed_after_it_was_checked(name: str, value: object) -> None:
    answer = Answer("x")
    with pytest.raises(AttributeError, match="make another one"):
        setattr(answer, name, value)
    assert answer == Answer("x")


def test_an_answer_can_be_copied() -> None:
    answer = Answer({"text": "done"}, 201, [("X-One", "1"), ("X-One", "2")])
    assert copy.deepcopy(answer) == pickle.loads(pickle.dumps(answer)) == answer


def test_an_answer_shows_nothing_of_its_body() -> None:
    assert "secret" not in repr(Answer("secret"))


# ── declared ──


def source(provider: str = "stripe", **options: Any) -> Source:
    inbox = Inbox("sqlite:///nowhere.db")
    return inbox.source("in", provider=provider, secrets=[SECRET], **options)


async def handler(event: Event) -> Answer:
    return Answer("done")


def rule(declared: Source, kind: str) -> AnswerRule | None:
    found = declared._routes.find(Kind("in", kind))
    return None if found is None else found.answers


def test_a_declared_handler_answers_its_types() -> None:
    declared = source()
    declared.answer("a", "b.*", deadline="2.5s", late=LATE, concurrent=409)(handler)
    for kind in ("a", "b.c"):
        found = rule(declared, kind)
        assert found is not None
        assert (found.deadline, found.late, found.concurrent, found.redelivered) == (2.5, LATE, 409, True)
    assert rule(declared, "c") is None


def test_answers_are_kept_as_long_as_the_provider_retries() -> None:
    declared = source()
    declared.answer("a", deadline=1)(handler)
    found = rule(declared, "a")
    assert found is not None
    assert found.keep == 72 * 3600


DISCORD_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"  # RFC 8032: it must be a real one


def source_of(provider: str) -> Source:
    inbox = Inbox("sqlite:///nowhere.db")
    return inbox.source("in", provider=provider, secrets=[DISCORD_KEY], public_url="https://example.com/in")


def test_a_provider_that_does_not_retry_needs_an_answer_past_the_deadline() -> None:
    made = source_of("github")
    with pytest.raises(ConfigError, match="late="):
        made.answer("a", deadline=1)
    made.answer("a", deadline=1, late=LATE)(handler)


@pytest.mark.parametrize(
    ("provider", "pattern", "kind", "body"),
    [
        ("slack_commands", "/deploy", "/deploy", b""),
        ("slack_interactions", "view_submission", "view_submission", b""),
        ("slack_interactions", "*", "block_suggestion", b'{"options":[]}'),
        ("discord_interactions", "command.*", "command.deploy", b'{"type":5}'),
        ("discord_interactions", "component", "component", b'{"type":6}'),
        ("discord_interactions", "modal", "modal", b'{"type":5}'),
        ("discord_interactions", "autocomplete.*", "autocomplete.deploy", b'{"type":8,"data":{"choices":[]}}'),
        ("discord_interactions", "*", "autocomplete.deploy", b'{"type":8,"data":{"choices":[]}}'),
        ("discord_interactions", "*", "component", b'{"type":6}'),
        ("discord_interactions", "*", "command.deploy", b'{"type":5}'),
        ("twilio", "SmsStatus", "SmsStatus", EMPTY),
        ("twilio_voice", "*", "CallStatus.ringing", EMPTY),
    ],
)
def test_the_provider_s_form_is_sent_past_the_deadline(provider: str, pattern: str, kind: str, body: bytes) -> None:
    made = source_of(provider)
    made.answer(pattern, deadline=1)(handler)
    found = rule(made, kind)
    assert found is not None
    for form in (found.of(kind).late, found.of(kind).failed):
        assert form is not None
        assert (form.status, form.body) == (200, body)


def test_a_form_of_one_s_own_comes_first_where_it_fits() -> None:
    made = source_of("discord_interactions")
    own, failed = Answer({"type": 5, "data": {"flags": 64}}), Answer({"type": 4, "data": {"content": "no"}})
    made.answer("*", deadline=1, late=own, failed=failed)(handler)
    found = rule(made, "command.deploy")
    assert found is not None
    assert (found.of("command.deploy").late, found.of("command.deploy").failed) == (own, failed)
    assert found.of("component").late == own
    never_later = found.of("autocomplete.deploy")
    assert never_later.late == never_later.failed == Answer({"type": 8, "data": {"choices": []}})


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("discord_interactions", "autocomplete.deploy"), ("slack_interactions", "block_suggestion")],
)
def test_what_cannot_be_answered_later_takes_no_late(provider: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be answered later: remove late="):
        source_of(provider).answer(kind, deadline=1, late=LATE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deadline": 0}, "deadline"),
        ({"deadline": -1}, "duration"),
        ({"deadline": "51s"}, "deadline"),
        ({"deadline": float("inf")}, "duration"),
        ({"late": "text"}, "late is an Answer"),
        ({"late": Answer("no", 400)}, "2xx"),
        ({"failed": {"a": 1}}, "failed is an Answer"),
        ({"concurrent": 503}, "concurrent"),
        ({"stale": "maybe"}, "stale"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        source().answer("a", **{"deadline": 1, **options})


def test_types_are_named() -> None:
    with pytest.raises(ConfigError, match="names the event types"):
        source().answer(deadline=1)
    with pytest.raises(ConfigError, match="is text"):
        source().answer(handler, deadline=1)  # type: ignore[arg-type]


def test_ordered_events_have_no_answer() -> None:
    with pytest.raises(ConfigError, match="ordered"):
        source(ordered=["invoice.*"]).answer("invoice.paid", deadline=1)


@pytest.mark.parametrize("provider", ["sendgrid", "dropbox"])
def test_several_events_or_hints_have_no_answer(provider: str) -> None:
    from hookledger.providers.catalogue import find

    contract = find(provider, {})
    assert contract.items is not None or contract.hint
    from hookledger.receive.answer_rule import answer_rule

    class Made:
        settings = source().settings

    made: Any = Made()
    made.contract = contract
    with pytest.raises(ConfigError, match="declare the handler with on"):
        answer_rule(made, ["a"], 1, LATE, None, "wait")


def test_two_handlers_of_one_type_are_refused() -> None:
    declared = source()
    declared.on("a")(lambda event: None)
    with pytest.raises(ConfigError, match="both"):
        declared.answer("a", deadline=1)(handler)
