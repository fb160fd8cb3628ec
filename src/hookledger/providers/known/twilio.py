"""Twilio: callbacks about messages and calls as forms, and Event Streams as JSON."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body, header, present
from ..schemes.hmac import Hmac

SECRET = "the account's primary auth token"
URL_NOTE = (
    "Twilio signs the URL that it calls, with scheme, host and query: behind a proxy set public_url. No time is "
    "signed."
)
EMPTY = b'<?xml version="1.0" encoding="UTF-8"?><Response/>'

CONTRACTS = (
    Contract(
        name="twilio",
        title="Twilio",
        scheme=Hmac(
            header=b"x-twilio-signature", alg="sha1", encoding="base64", message="{url}{form}", any_port=True
        ),
        secret=SECRET,
        content="form",
        # The status of a message occurs once. The whole form identifies events without MessageStatus (calls,
        # recordings, incoming messages): a call's sid and status are the same through all its prompts.
        key=(body("MessageSid"), body("MessageStatus")),
        type=(
            present("MessageStatus", "CallStatus", "RecordingStatus", "EventType", "SmsStatus"),
            body("MessageStatus"),
            body("CallStatus"),
            body("RecordingStatus"),
            body("EventType"),
        ),
        object_id=(body("MessageSid"), body("CallSid"), body("RecordingSid"), body("ConversationSid")),
        delivery_id=header("I-Twilio-Idempotency-Token"),
        answer=Answer(200, EMPTY, "text/xml"),
        deadline=15,
        retries=Retries(automatic=False, hours=0, schedule="one more try to connect; more with #rc= in the URL"),
        lister=Lister(list="GET /2010-04-01/Accounts/{sid}/Messages.json, Calls.json: resources, not events"),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            response="memory",
            retry="docs",
            reconcile="memory",
            sources=("twilio 9.13.0 and the published vector", "twilio.com: webhooks connection overrides"),
        ),
        notes=(
            URL_NOTE,
            "Types are the field and its value: MessageStatus.delivered, CallStatus.completed. An incoming message "
            "has type SmsStatus.",
            "The answer is an empty TwiML document: fine for callbacks and messages, but a call would end. Calls "
            "need their instructions immediately, which an inbox cannot give.",
        ),
    ),
    Contract(
        name="twilio_json",
        title="Twilio Event Streams",
        scheme=Hmac(
            header=b"x-twilio-signature",
            alg="sha1",
            encoding="base64",
            message="{url}",
            any_port=True,
            body_digest="bodySHA256",
        ),
        secret=SECRET,
        items=((),),
        id=body("id"),
        type=(body("type"),),
        object_id=(body("data.messageSid"), body("data.callSid"), body("data.conversationSid")),
        occurred_at=body("time"),
        deadline=5,
        retries=Retries(automatic=True, hours=4, schedule="exponential"),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            response="docs",
            retry="docs",
            sources=("twilio 9.13.0", "twilio.com: Event Streams, delivery and duplication, webhook quickstart"),
        ),
        notes=(
            URL_NOTE,
            "The signed URL covers the body by its digest (bodySHA256).",
            "Leave the sink's batch_events on: the body must be an array, and its form without it is unknown.",
        ),
    ),
)
