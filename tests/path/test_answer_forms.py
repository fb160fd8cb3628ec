"""Requests as Slack, Discord and Twilio document and sign them get answers in the form that each of them reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

import pytest

from hookledger import Answer, Event, Permanent, State
from hookledger.answers import discord, slack, twilio
from hookledger.providers.catalogue import contracts
from hookledger.providers.sample import sample
from tests.asgi_client import Answer as Response
from tests.asgi_client import Site, ask
from tests.oracles.oracle import sdk
from tests.path.conftest import MakeSite, done
from tests.path.test_answers import reached, same

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
URL = "https://calls.example.com"


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    return await site_on(database_url)


def body_of(provider: str, kind: str, ident: str | None = None) -> bytes:
    return sample(contracts()[provider], kind, ident).body


# ── the providers, with the signatures of their own SDKs ─────────────────────


class Slack:
    def __init__(self, site: Site, provider: str) -> None:
        self.site, self.provider = site, provider
        self.source = site.inbox.source("in", provider=provider, secrets=[SECRET])

    async def send(self, kind: str, ident: str | None = None) -> Response:
        body = body_of(self.provider, kind, ident)
        now = str(int(self.site.inbox.clock.time()))
        signature = (
            sdk("slack_sdk.signature", "slack_sdk")
            .SignatureVerifier(SECRET)
            .generate_signature(timestamp=now, body=body)
        )
        headers = [("content-type", "application/x-www-form-urlencoded"), ("x-slack-request-timestamp", now)]
        return await ask(self.site.inbox.asgi, "POST", "/in", body, [*headers, ("x-slack-signature", signature)])


class Discord:
    def __init__(self, site: Site) -> None:
        self.site, self.key = site, sdk("nacl.signing", "discord-interactions").SigningKey.generate()
        public = self.key.verify_key.encode().hex()
        self.source = site.inbox.source("in", provider="discord_interactions", secrets=[public])

    async def send(self, kind: str, ident: str | None = None) -> Response:
        body, now = body_of("discord_interactions", kind, ident), str(int(self.site.inbox.clock.time()))
        signature = self.key.sign(now.encode() + body).signature.hex()
        assert sdk("discord_interactions", "discord-interactions").verify_key(
            body, signature, now, self.key.verify_key.encode().hex()
        )
        headers = [("x-signature-ed25519", signature), ("x-signature-timestamp", now)]
        return await ask(self.site.inbox.asgi, "POST", "/in", body, [("content-type", "application/json"), *headers])


class Twilio:
    def __init__(self, site: Site, provider: str = "twilio_voice") -> None:
        self.site = site
        self.source = site.inbox.source("in", provider=provider, secrets=[SECRET], public_url=f"{URL}/in")

    async def send(self, form: Mapping[str, str], token: str | None = None, query: str = "") -> Response:
        url = f"{URL}/in?{query}" if query else f"{URL}/in"
        signature = (
            sdk("twilio.request_validator", "twilio").RequestValidator(SECRET).compute_signature(url, dict(form))
        )
        headers = [("content-type", "application/x-www-form-urlencoded"), ("x-twilio-signature", signature)]
        headers += [] if token is None else [("I-Twilio-Idempotency-Token", token)]
        body = urlencode(form).encode()
        return await ask(self.site.inbox.asgi, "POST", "/in", body, headers, query=query.encode())


# ── Slack ────────────────────────────────────────────────────────────────────


async def test_a_slash_command_is_answered_once_per_use(site: Site) -> None:
    made = Slack(site, "slack_commands")

    @made.source.answer("/deploy", deadline="2.5s")
    async def deploy(event: Event) -> Answer:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        return slack.message(f"deploying {event.json['text']}", in_channel=True)

    first = await made.send("/deploy", "1.2.a")
    assert (first.status, first.headers["content-type"]) == (200, "application/json")
    assert first.json == {"response_type": "in_channel", "text": "deploying shop production"}
    assert same(first, await made.send("/deploy", "1.2.a"))  # a captured request
    again = await made.send("/deploy", "1.2.b")  # the same command with the same text, typed again
    assert again.body == first.body
    assert await done(site) == ["1.2.a", "1.2.b"]


async def test_a_late_slash_command_gets_an_empty_200_and_a_failed_one_too(
    site: Site, recorded_in_time: None
) -> None:
    made = Slack(site, "slack_commands")
    go = asyncio.Event()

    @made.source.answer("/deploy", deadline=0.2)
    async def deploy(event: Event) -> Answer:
        if event.key == "1.2.fails":
            raise Permanent("no such environment")
        await go.wait()
        return slack.message("done")

    late = await made.send("/deploy", "1.2.late")
    assert (late.status, late.body, "content-type" in late.headers) == (200, b"", False)
    go.set()
    failed = await made.send("/deploy", "1.2.fails")
    assert (failed.status, failed.body) == (200, b"")
    await reached(site, "1.2.fails", State.FAILED)


async def test_views_and_options_are_answered(site: Site) -> None:
    made = Slack(site, "slack_interactions")
    asked: list[str] = []

    @made.source.answer("view_submission", deadline="2.5s")
    async def submitted(event: Event) -> Answer:
        [reason] = [one["text"]["value"] for one in event.json["view"]["state"]["values"].values()]
        if len(reason) < 10:
            return slack.errors({"reason": "say more"})
        return slack.ack()

    @made.source.answer("block_suggestion", deadline="2.5s")
    async def suggest(event: Event) -> Answer:
        asked.append(event.json["value"])
        return slack.options([slack.Option(f"shop {len(asked)}", "shop")])

    @made.source.answer("shortcut", deadline="2.5s")
    async def shortcut(event: Event) -> Answer:
        return slack.update({**event.json.get("view", {}), "type": "modal", "title": "x"})  # a mistake

    wrong = await made.send("view_submission")
    assert wrong.json == {"response_action": "errors", "errors": {"reason": "say more"}}
    sent = json.loads(dict(parsed(body_of("slack_interactions", "view_submission")))["payload"])["view"]
    assert "reason" in {block.block_id for block in sdk("slack_sdk.models.views", "slack_sdk").View(**sent).blocks}
    # The same text typed again: Slack's request is the same, and has no id.
    suggestions = [await made.send("block_suggestion", "sug_1") for _ in range(2)]
    assert [one.json["options"][0]["text"]["text"] for one in suggestions] == ["shop 1", "shop 2"]
    mistaken = await made.send("shortcut", "1.2.m")
    assert (mistaken.status, mistaken.body) == (200, b"")
    assert await site.state("1.2.m") is State.FAILED
    assert "title is a JSON object" in str((await site.event("1.2.m")).event.error)


def parsed(form: bytes) -> list[tuple[str, str]]:
    return parse_qsl(form.decode())


# ── Discord ──────────────────────────────────────────────────────────────────


async def test_every_kind_of_interaction_gets_its_form(site: Site) -> None:
    Form = sdk("discord_interactions", "discord-interactions").InteractionResponseType  # noqa: N806 - a class
    made = Discord(site)

    @made.source.answer("command.deploy", deadline="2.5s")
    async def deploy(event: Event) -> Answer:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        [environment] = event.json["data"]["options"]
        return discord.message(f"deploying to {environment['value']}", ephemeral=True)

    @made.source.answer("autocomplete.deploy", deadline="2.5s")
    async def suggest(event: Event) -> Answer:
        return discord.choices([discord.Choice("production", "production")])

    @made.source.answer("component", deadline="2.5s")
    async def approved(event: Event) -> Answer:
        return discord.update(f"{event.json['data']['custom_id']}d", components=[])

    @made.source.answer("modal", deadline="2.5s")
    async def told(event: Event) -> Answer:
        return discord.message("thank you")

    first = await made.send("command.deploy", "786008729715212338")
    assert first.json == {
        "type": Form.CHANNEL_MESSAGE_WITH_SOURCE,
        "data": {"content": "deploying to production", "flags": 64},
    }
    assert same(first, await made.send("command.deploy", "786008729715212338"))
    assert await done(site) == ["786008729715212338"]
    suggested = await made.send("autocomplete.deploy")
    assert suggested.json["type"] == Form.APPLICATION_COMMAND_AUTOCOMPLETE_RESULT
    assert (await made.send("component")).json == {
        "type": Form.UPDATE_MESSAGE,
        "data": {"content": "approved", "components": []},
    }
    assert (await made.send("modal")).json["type"] == Form.CHANNEL_MESSAGE_WITH_SOURCE


async def test_late_and_failed_interactions_get_the_form_of_their_kind(site: Site, recorded_in_time: None) -> None:
    made = Discord(site)
    go = asyncio.Event()

    @made.source.answer("*", deadline=0.2)
    async def slow(event: Event) -> Answer:
        if event.key == "1":
            raise Permanent("no")
        await go.wait()
        return discord.message("done")

    expected = {
        "command.deploy": {"type": 5},
        "component": {"type": 6},
        "modal": {"type": 5},
        "autocomplete.deploy": {"type": 8, "data": {"choices": []}},
    }
    assert {kind: (await made.send(kind)).json for kind in expected} == expected
    go.set()
    assert (await made.send("component", "1")).json == {"type": 6}
    await reached(site, "1", State.FAILED)


# ── Twilio ───────────────────────────────────────────────────────────────────


PROMPT = {
    "AccountSid": "AC0001",
    "ApiVersion": "2010-04-01",
    "CallSid": "CA0001",
    "CallStatus": "in-progress",
    "Digits": "1",
    "Direction": "inbound",
    "From": "+15555550123",
    "To": "+15555550100",
}


def menu(made: Twilio) -> list[str]:
    pressed: list[str] = []

    @made.source.answer("*", deadline="10s")
    async def handle(event: Event) -> Answer:
        pressed.append(event.json["Digits"])
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.key)
        return twilio.response(twilio.say(f"key {len(pressed)}"), twilio.redirect("/in?turn=2"))

    return pressed


async def test_identical_prompts_are_answered_each_and_a_retry_gets_the_same(site: Site) -> None:
    made = Twilio(site)
    pressed = menu(made)
    first = await made.send(PROMPT, "token-1")
    assert (first.status, first.headers["content-type"]) == (200, "text/xml; charset=utf-8")
    assert b"<Say>key 1</Say>" in first.body
    assert same(first, await made.send(PROMPT, "token-1"))  # Twilio's retry
    second = await made.send(PROMPT, "token-2")  # the caller pressed 1 again
    assert b"<Say>key 2</Say>" in second.body
    assert same(second, await made.send(PROMPT, "token-2"))
    assert pressed == ["1", "1"]
    assert await done(site) == ["CA0001:token-1", "CA0001:token-2"]
    third = [await made.send(PROMPT) for _ in range(2)]  # without a token it is not known what is a retry
    assert [b"key 3" in third[0].body, b"key 4" in third[1].body] == [True, True]
    assert await site.deliveries() == {"accepted": 4, "duplicate": 2}


async def test_a_token_with_another_prompt_runs_nothing(site: Site) -> None:
    made = Twilio(site)
    pressed = menu(made)
    await made.send(PROMPT, "token-1")
    forged = await made.send({**PROMPT, "Digits": "2"}, "token-1")
    assert structure(forged) == "<Response/>"
    assert pressed == ["1"]
    assert (await site.deliveries())["conflict"] == 1


async def test_a_form_split_elsewhere_is_no_prompt(site: Site) -> None:
    """The signature covers the text of the fields and not where they begin."""
    made = Twilio(site)
    pressed = menu(made)
    await made.send(PROMPT, "token-1")
    moved = {name: value for name, value in PROMPT.items() if name not in ("Digits", "Direction")}
    moved["Digits1Direction"] = "inbound"
    shifted = await made.send(moved, "token-2")
    assert shifted.status == 200, "the signature is Twilio's"
    assert pressed == ["1"]
    assert (await site.deliveries())["same_body"] == 1


async def test_a_message_is_answered_once(site: Site) -> None:
    made = Twilio(site, "twilio")

    @made.source.answer("SmsStatus", deadline="10s")
    async def reply(event: Event) -> Answer:
        await event.tx.execute("INSERT INTO done VALUES ($1)", event.json["MessageSid"])
        return twilio.response(twilio.message(f"you said <{event.json['Body']}>"))

    form = {"AccountSid": "AC1", "Body": "hello & bye", "From": "+1555", "SmsStatus": "received"}
    first = await made.send({**form, "MessageSid": "SM1"}, "token-1")
    assert b"<Body>you said &lt;hello &amp; bye&gt;</Body>" in first.body
    assert same(first, await made.send({**form, "MessageSid": "SM1"}, "token-1"))
    await made.send({**form, "MessageSid": "SM2"}, "token-2")
    assert await done(site) == ["SM1", "SM2"]


def structure(response: Response) -> str:
    return response.body.decode().rpartition("?>")[2]
