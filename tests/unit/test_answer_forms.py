"""Answers for Slack, Discord and Twilio: as their SDKs write or read them, refused beyond documented limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from hookledger import Answer
from hookledger.answers import discord, slack, twilio
from hookledger.errors import BadResult
from tests.oracles.oracle import sdk


def content(answer: Answer) -> Any:
    assert (answer.status, dict(answer.headers)) == (200, {"content-type": "application/json"})
    return json.loads(answer.body)


def title(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


INPUT = {
    "type": "input",
    "block_id": "reason",
    "label": title("Reason"),
    "element": {"type": "plain_text_input", "action_id": "text"},
}
VIEW = {"type": "modal", "callback_id": "deploy", "title": title("Deploy"), "submit": title("Go"), "blocks": [INPUT]}
SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "*shop*"}}


# ── Slack ────────────────────────────────────────────────────────────────────


def test_a_message_to_slack_has_the_fields_that_its_webhook_client_sends() -> None:
    section = sdk("slack_sdk.models.blocks", "slack_sdk").SectionBlock(text="*shop*")
    given: dict[str, Any] = {"text": "shop", "blocks": [section], "replace_original": True}
    expected = sdk("slack_sdk.webhook.internal_utils", "slack_sdk")._build_body(
        {**given, "response_type": "in_channel"}
    )
    assert content(slack.message(**given, in_channel=True)) == expected
    assert content(slack.message("done")) == {"response_type": "ephemeral", "text": "done"}
    assert content(slack.message(delete_original=True)) == {"delete_original": True}
    empty = slack.ack()
    assert (empty.status, empty.body, empty.headers) == (200, b"", ())


def test_slack_s_models_read_the_view_of_an_answer() -> None:
    View = sdk("slack_sdk.models.views", "slack_sdk").View  # noqa: N806 - a class
    for made, action in ((slack.update(VIEW), "update"), (slack.push(View(**VIEW)), "push")):
        sent = content(made)
        assert sent["response_action"] == action
        view = View(**sent["view"])
        view.validate_json()
        assert view.to_dict() == View(**VIEW).to_dict()
    assert content(slack.clear()) == {"response_action": "clear"}
    assert content(slack.errors({"reason": "too short"})) == {
        "response_action": "errors",
        "errors": {"reason": "too short"},
    }


def test_slack_s_models_write_the_same_options() -> None:
    blocks = sdk("slack_sdk.models.blocks", "slack_sdk")
    shop = blocks.Option(text="shop", value="1", description="the shop")
    shop.validate_json()
    ours = slack.Option("shop", "1", "the shop")
    assert _plain(content(slack.options([ours]))["options"]) == _plain([shop.to_dict()])
    assert content(slack.options([shop])) == {"options": [shop.to_dict()]}
    assert content(slack.options([])) == {"options": []}
    group = blocks.OptionGroup(label="live", options=[shop])
    assert _plain(content(slack.option_groups({"live": [ours]}))["option_groups"]) == _plain([group.to_dict()])


def _plain(given: Any) -> Any:
    """Without what the SDK adds by default."""
    if isinstance(given, dict):
        return {name: _plain(value) for name, value in given.items() if name != "emoji"}
    return [_plain(one) for one in given] if isinstance(given, list) else given


def view(**fields: Any) -> dict[str, Any]:
    return {**VIEW, **fields}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (slack.message, "needs text"),
        (lambda: slack.message("x" * 40_001), "40,001 characters, 1 to 40,000"),
        (lambda: slack.message(""), "text has 0 characters"),
        (lambda: slack.message(5), "text is text"),  # type: ignore[arg-type]
        (lambda: slack.message(blocks=[SECTION] * 51), "blocks has 51 entries, at most 50"),
        (lambda: slack.message(blocks=[{"text": "a"}]), "has no type"),
        (lambda: slack.message(blocks=SECTION), "list of objects"),
        (lambda: slack.message(blocks=["a"]), r"blocks\[0\] is a JSON object"),
        (lambda: slack.message(blocks=[{"type": "section", "text": title("x" * 3001)}]), "3,001 characters"),
        (lambda: slack.message("gone", delete_original=True), "delete_original"),
        (lambda: slack.update(view(type="home")), "'modal'"),
        (lambda: slack.update(view(title=title("x" * 25))), "title has 25"),
        (lambda: slack.push(view(title=None)), "no title"),
        (lambda: slack.push(view(blocks=[])), "no blocks"),
        (lambda: slack.push(view(private_metadata="x" * 3001)), "private_metadata"),
        (lambda: slack.errors({}), "names no block"),
        (lambda: slack.errors({"reason": ""}), "0 characters"),
        (lambda: slack.options([slack.Option("a", "1")] * 101), "101 entries"),
        (lambda: slack.options([slack.Option("x" * 76, "1")]), "76 characters"),
        (lambda: slack.options([slack.Option("a", "x" * 151)]), "151 characters"),
        (lambda: slack.option_groups({str(n): [] for n in range(101)}), "101 groups"),
        (lambda: slack.message(blocks=[{"type": "section", "x": object()}]), "cannot be written as JSON"),
    ],
)
def test_what_slack_does_not_allow_is_refused(make: Callable[[], Answer], words: str) -> None:
    with pytest.raises(BadResult, match=words):
        make()


# ── Discord ──────────────────────────────────────────────────────────────────


def test_discord_s_types_and_flags_are_those_of_its_sdk() -> None:
    theirs = sdk("discord_interactions", "discord-interactions")
    named: list[tuple[str, Answer]] = [
        ("CHANNEL_MESSAGE_WITH_SOURCE", discord.message("done")),
        ("DEFERRED_CHANNEL_MESSAGE_WITH_SOURCE", discord.deferred()),
        ("DEFERRED_UPDATE_MESSAGE", discord.deferred_update()),
        ("UPDATE_MESSAGE", discord.update("done")),
        ("APPLICATION_COMMAND_AUTOCOMPLETE_RESULT", discord.choices([])),
        ("MODAL", discord.modal("why", "Why?", [{"type": 1, "components": []}])),
    ]
    for name, made in named:
        assert content(made)["type"] == getattr(theirs.InteractionResponseType, name)
    for made in (discord.message("done", ephemeral=True), discord.deferred(ephemeral=True)):
        assert content(made)["data"]["flags"] == theirs.InteractionResponseFlags.EPHEMERAL


def test_discord_gets_what_is_given_and_nothing_else() -> None:
    assert content(discord.message("done", flags=4, ephemeral=True, allowed_mentions={"parse": []})) == {
        "type": 4,
        "data": {"content": "done", "flags": 68, "allowed_mentions": {"parse": []}},
    }
    assert content(discord.deferred()) == {"type": 5}
    assert content(discord.update("", components=[])) == {"type": 7, "data": {"content": "", "components": []}}
    made = discord.choices([discord.Choice("Shop", "shop"), {"name": "Two", "value": 2}])
    assert content(made) == {
        "type": 8,
        "data": {"choices": [{"name": "Shop", "value": "shop"}, {"name": "Two", "value": 2}]},
    }
    text = [{"type": 10, "content": "x" * 3000}]
    assert content(discord.message(components=text * 40, flags=discord.IS_COMPONENTS_V2))["data"]["flags"] == 1 << 15


ROW = {"type": 1, "components": []}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (discord.message, "needs content"),
        (lambda: discord.message(""), "needs content"),
        (lambda: discord.message("x" * 2001), "2,001 characters, at most 2,000"),
        (lambda: discord.message(embeds=[{"title": "a"}] * 11), "11 entries"),
        (
            lambda: discord.message(embeds=[{"description": "x" * 4000, "footer": {"text": "y" * 2001}}]),
            "6,001 characters",
        ),
        (lambda: discord.message("a", components=[ROW] * 6), "6 entries"),
        (lambda: discord.message("a", flags=discord.IS_COMPONENTS_V2), "components only"),
        (lambda: discord.choices([discord.Choice("a", "a")] * 26), "26 entries, at most 25"),
        (lambda: discord.choices([discord.Choice("", "a")]), "0 characters"),
        (lambda: discord.choices([discord.Choice("a", "x" * 101)]), "101 characters"),
        (lambda: discord.choices([discord.Choice("a", 2**53 + 1)]), "between"),
        (lambda: discord.choices([discord.Choice("a", float("nan"))]), "between"),
        (lambda: discord.choices([discord.Choice("a", True)]), "text or a number"),
        (lambda: discord.modal("x" * 101, "a", [ROW]), "custom_id has 101"),
        (lambda: discord.modal("x", "a" * 46, [ROW]), "title has 46"),
        (lambda: discord.modal("x", "a", []), "0 entries, 1 to 5"),
    ],
)
def test_what_discord_does_not_allow_is_refused(make: Callable[[], Answer], words: str) -> None:
    with pytest.raises(BadResult, match=words):
        make()


# ── Twilio ───────────────────────────────────────────────────────────────────


def structure(document: bytes | str) -> Any:
    def of(element: Any) -> Any:
        return element.tag, dict(element.attrib), element.text, [of(inner) for inner in element]

    return of(ElementTree.fromstring(document))


HOSTILE = "Fish & \"Chips\" <Dial>+1900</Dial> ]]> 'x' \r\n\tü \U0001f600"


def test_twilio_s_library_writes_the_same_documents() -> None:
    voice, messaging = sdk("twilio.twiml.voice_response", "twilio"), sdk("twilio.twiml.messaging_response", "twilio")
    theirs = voice.VoiceResponse()
    menu = voice.Gather(action="/menu?turn=1&x=2", method="POST", input="dtmf speech", num_digits=1, timeout=5)
    menu.say(HOSTILE, voice="Polly.Joanna", language="en-US", loop=2)
    menu.pause(length=2)
    theirs.append(menu)
    theirs.play("https://example.com/a.mp3?a=1&b=2")
    theirs.redirect("/again", method="POST")
    theirs.hangup()
    ours = twilio.response(
        twilio.gather(
            twilio.say(HOSTILE, voice="Polly.Joanna", language="en-US", loop=2),
            twilio.pause(2),
            action="/menu?turn=1&x=2",
            method="POST",
            accepts="dtmf speech",
            digits=1,
            timeout=5,
        ),
        twilio.play("https://example.com/a.mp3?a=1&b=2"),
        twilio.redirect("/again", method="POST"),
        twilio.hangup(),
    )
    assert (ours.status, dict(ours.headers)) == (200, {"content-type": "text/xml; charset=utf-8"})
    said = structure(ours.body)[3][0][3][0]
    assert said[2] == HOSTILE
    expected = structure(str(theirs))
    expected[3][0][3][0] = (*said[:2], HOSTILE, [])  # theirs leaves the line end to the parser, which changes it
    assert structure(ours.body) == expected

    reply = messaging.MessagingResponse()
    picture = messaging.Message()
    picture.body("a < b")
    picture.media("https://example.com/a.png?x=1&y=2")
    reply.append(picture)
    made = twilio.response(twilio.message("a < b", media=["https://example.com/a.png?x=1&y=2"]))
    assert structure(made.body) == structure(str(reply))
    busy = voice.VoiceResponse()
    busy.reject(reason="busy")
    assert structure(twilio.response(twilio.reject("busy")).body) == structure(str(busy))
    assert structure(twilio.response().body) == structure(str(messaging.MessagingResponse()))
    assert twilio.twiml(theirs).body == str(theirs).encode()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: twilio.response(twilio.say("a\0b")), r"U\+0000"),
        (lambda: twilio.response(twilio.say("a\ud800b")), r"U\+D800"),
        (lambda: twilio.response(twilio.say("a", voice="\x1b")), r"U\+001B"),
        (lambda: twilio.response(twilio.say("x" * 4097)), "4,097 characters"),
        (lambda: twilio.response(twilio.say("")), "0 characters"),
        (lambda: twilio.response("<Say>hi</Say>"), "not str"),  # type: ignore[arg-type]
        (lambda: twilio.response(twilio.gather(twilio.hangup())), "prompt of Gather"),
        (lambda: twilio.response(twilio.gather(digits=0)), "1 or more"),
        (lambda: twilio.response(twilio.redirect("/a", method="PUT")), "method"),  # type: ignore[arg-type]
        (lambda: twilio.response(twilio.reject("later")), "reason"),  # type: ignore[arg-type]
        (lambda: twilio.response(twilio.message()), "body or media"),
        (lambda: twilio.response(twilio.message("x" * 1601)), "1,601 characters"),
        (lambda: twilio.response(twilio.message(media=["https://a"] * 11)), "at most 10"),
        (lambda: twilio.response(*[twilio.say("x" * 4096)] * 17), "65,536"),
        (lambda: twilio.twiml("<Response><Say>"), "not well-formed"),
        (lambda: twilio.twiml(""), "not well-formed"),
        (lambda: twilio.twiml("<html/>"), "'html'"),
        (lambda: twilio.twiml('<!DOCTYPE r [<!ENTITY a "b">]><Response>&a;</Response>'), "no DOCTYPE"),
    ],
)
def test_what_twilio_does_not_allow_is_refused(make: Callable[[], Answer], words: str) -> None:
    with pytest.raises(BadResult, match=words):
        make()
