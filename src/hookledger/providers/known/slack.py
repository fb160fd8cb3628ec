"""Slack: the Events API, slash commands and interactivity."""

from __future__ import annotations

import msgspec

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body, header
from ..handshake import Handshake
from ..schemes.hmac import Hmac
from ..schemes.times import Timestamp

SCHEME = Hmac(
    header=b"x-slack-signature",
    prefix=b"v0=",
    timestamp=Timestamp(header=b"x-slack-request-timestamp", tolerance=300),
    message="v0:{ts}:{body}",
)
SECRET = "the app's signing secret, as text"
SOURCES = ("slack_sdk 3.46.0 and the published vector", "api.slack.com: url_verification, types/event, Events API")
ONCE = Retries(
    automatic=False,
    hours=0,
    schedule="never: the user sees that it failed",
    signs_each_attempt="yes",
    why="it is sent once",
)

CONTRACTS = (
    Contract(
        name="slack_events",
        title="Slack Events API",
        # Slack advises five minutes; its last retry is after six.
        scheme=msgspec.structs.replace(
            SCHEME, timestamp=Timestamp(header=b"x-slack-request-timestamp", tolerance=900)
        ),
        secret=SECRET,
        id=body("event_id"),
        type=(body("event.type"),),
        object_id=(body("event.channel"), body("event.item.channel"), body("event.user")),
        occurred_at=body("event.event_ts"),
        occurred_else=(body("event_time"),),  # when it was dispatched
        retry=(header("X-Slack-Retry-Num"), header("X-Slack-Retry-Reason")),
        deadline=3,
        handshakes=(
            Handshake(
                method="POST",
                when=((body("type"), "url_verification"),),
                value=body("challenge"),
                signed=True,
                text="{value}",
            ),
        ),
        retries=Retries(
            automatic=True,
            hours=0.1,
            schedule="3 retries: immediately, after a minute, after five",
            disables="disables the endpoint when too few succeed within an hour",
            why="Slack does not say",
        ),
        lister=Lister(list="conversations.history, channel by channel: there is no list of events"),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            handshake="docs",
            response="docs",
            retry="quoted",
            reconcile="memory",
            sources=SOURCES,
        ),
        notes=(
            "What is not delivered within six minutes is lost: there is neither a list nor a redelivery.",
            "That every event has an id is documented; that a retry has the same is from memory.",
            "app_rate_limited contains no event: its type is unknown.",
        ),
    ),
    Contract(
        name="slack_commands",
        title="Slack slash commands",
        scheme=SCHEME,
        secret=SECRET,
        content="form",
        id=body("trigger_id"),  # new for each use: the same command with the same text is another intent
        stable="unknown",
        type=(body("command"),),
        object_id=(body("channel_id"),),
        answer=Answer(200, b""),  # Slack would show a body to the user
        deadline=3,
        retries=ONCE,
        confirmed=Confirmed(signature="run", event="memory", response="memory", retry="memory", sources=SOURCES),
        notes=("The handler runs after the answer: send what the user should see to response_url.",),
    ),
    Contract(
        name="slack_interactions",
        title="Slack interactivity",
        scheme=SCHEME,
        secret=SECRET,
        form_field="payload",
        id=body("trigger_id"),  # view_closed has none: its view occurs once, so the content identifies it
        stable="unknown",
        type=(body("type"),),
        object_id=(body("view.id"), body("container.message_ts"), body("callback_id")),
        answer=Answer(200, b""),  # Slack would read a body as errors of the user's form
        deadline=3,
        retries=ONCE,
        confirmed=Confirmed(signature="run", event="memory", response="memory", retry="memory", sources=SOURCES),
        notes=(
            "The handler runs after the answer: send what the user should see to response_url or to a new view.",
            "Options of an external select must be in the answer itself: they cannot be served from an inbox.",
        ),
    ),
)
