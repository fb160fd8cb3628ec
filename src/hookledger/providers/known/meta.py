"""Meta: Graph API subscriptions, WhatsApp Business, and Messenger with Instagram messaging."""

from __future__ import annotations

from ..contract import MIB, Answer, Confirmed, Contract, Retries
from ..fields import body, present, query
from ..handshake import Handshake
from ..schemes.hmac import Hmac

SCHEME = Hmac(header=b"x-hub-signature-256", prefix=b"sha256=")
HOLDS = "the app's secret, as text"
SUBSCRIBE = Handshake(
    method="GET",
    when=((query("hub.mode"), "subscribe"), (query("hub.challenge"), None)),
    token=query("hub.verify_token"),
    value=query("hub.challenge"),
    text="{value}",
)
CONFIRMED = Confirmed(
    signature="run",
    event="memory",
    handshake="quoted",
    response="quoted",
    retry="quoted",
    reconcile="memory",
    sources=("pywa 4.5.0: utils.py", "Meta's documentation, quoted by others"),
)
ASKED = "Set verify_token to the token that you enter with the URL in Meta's dashboard."

CONTRACTS = (
    Contract(
        name="meta",
        title="Meta Graph API",
        scheme=SCHEME,
        secret=HOLDS,
        # No id: the whole change with the entry's time identifies the event. That is when it was sent, but without it
        # two changes that only name the field would be one event.
        type=(body("object"), body("field")),
        object_id=(body("id"),),
        occurred_at=body("time"),
        items=(("entry", "changes"),),
        inherit=("object", "id", "uid", "time"),
        max_body=4 * MIB,
        answer=Answer(status=200),
        handshakes=(SUBSCRIBE,),
        retries=Retries(automatic=True, hours=36, schedule="immediately, then at a falling rate"),
        confirmed=CONFIRMED,
        notes=(
            ASKED,
            "A retry with a new time would be a new event: let handlers fetch the current state from the Graph.",
        ),
    ),
    Contract(
        name="meta_whatsapp",
        title="WhatsApp Business",
        scheme=SCHEME,
        secret=HOLDS,
        # A message and its statuses have the same id: sent, delivered and read are three events, in a group one per
        # reader. Anything else (a template was approved) has no id: its whole content identifies it.
        immutable=(body("id"), body("status"), body("recipient_id"), body("recipient_participant_id")),
        type=(body("field"), body("type"), body("status"), body("event")),
        object_id=(body("from"), body("recipient_id")),
        occurred_at=body("timestamp"),
        volatile=(body("contacts"),),  # of all messages in the batch
        items=(("entry", "changes", "value", "messages"), ("entry", "changes", "value", "statuses")),
        inherit=("field", "metadata", "contacts"),
        # A template that is approved, paused and approved again has the same body twice: the entry differs.
        around=(("id", "entry_id"), ("time", "entry_time")),
        max_body=4 * MIB,
        answer=Answer(status=200),
        handshakes=(SUBSCRIBE,),
        retries=Retries(automatic=True, hours=168, schedule="immediately, then at a falling rate, for 7 days"),
        confirmed=CONFIRMED,
        notes=(
            ASKED,
            "A status may arrive before the one that precedes it.",
            "The entry's time distinguishes other events than messages and statuses: a retry with a new time would "
            "be a new event.",
        ),
    ),
    Contract(
        name="meta_messenger",
        title="Messenger and Instagram messaging",
        scheme=SCHEME,
        secret=HOLDS,
        # Messages and postbacks have an id; a reaction has the message's, so its action and time are included.
        immutable=(
            body("timestamp"),
            body("sender.id"),
            body("recipient.id"),
            body("message.mid"),
            body("message_edit.mid"),
            body("message_edit.num_edit"),
            body("postback.mid"),
            body("postback.payload"),
            body("reaction.mid"),
            body("reaction.action"),
            body("reaction.reaction"),
            body("read.mid"),
            body("read.watermark"),
            body("delivery.watermark"),
            body("referral.ref"),
        ),
        type=(present("message", "message_edit", "postback", "reaction", "read", "delivery", "optin", "referral"),),
        object_id=(body("sender.id"),),
        occurred_at=body("timestamp"),
        occurred_unit="ms",
        items=(("entry", "messaging"), ("entry", "standby")),
        inherit=("object",),
        max_body=4 * MIB,
        answer=Answer(status=200),
        handshakes=(SUBSCRIBE,),
        retries=Retries(
            automatic=True, schedule="at a falling rate", disables="disables the endpoint after an hour of failures"
        ),
        confirmed=CONFIRMED,
        notes=(ASKED, "Changes of a page at the same URL are recorded whole, as type unknown."),
    ),
)
