"""Postmark: events of sent messages, and inbound messages."""

from __future__ import annotations

from ..contract import MIB, Answer, Confirmed, Contract, Lister, Retries
from ..fields import Constant, body
from ..schemes.token import Token

CONFIRMED = Confirmed(
    signature="quoted",
    event="memory",
    response="docs",
    retry="docs",
    reconcile="memory",
    sources=("Postmark's article on retries", "hookdeck/webhook-skills"),
)
PROVES_LITTLE = (
    "Postmark signs nothing. Put user and password into the URL you give it; they prove the sender, not the content."
)

CONTRACTS = (
    Contract(
        name="postmark",
        title="Postmark",
        scheme=Token(header=b"authorization", basic=True),
        secret="USER:PASSWORD, as in the URL given to Postmark",
        # One message is opened and clicked many times, so id and kind are not enough: the time is included, which has
        # another name in each kind. Bounces and complaints also have an id.
        immutable=(
            body("RecordType"),
            body("MessageID"),
            body("ID"),
            body("Recipient"),
            body("Email"),
            body("DeliveredAt"),
            body("BouncedAt"),
            body("ReceivedAt"),
            body("ChangedAt"),
            body("OriginalLink"),
            body("ErrorCode"),
        ),
        type=(body("RecordType"),),
        object_id=(body("MessageID"),),
        answer=Answer(status=200),
        retries=Retries(automatic=True, hours=10.35, schedule="1m to 6h, fewer for opens, clicks and deliveries"),
        lister=Lister(list="GET /bounces, GET /messages/outbound"),
        confirmed=CONFIRMED,
        notes=(PROVES_LITTLE, "A 403 stops the retries of an event for good."),
    ),
    Contract(
        name="postmark_inbound",
        title="Postmark inbound mail",
        scheme=Token(header=b"authorization", basic=True),
        secret="USER:PASSWORD, as in the URL given to Postmark",
        id=body("MessageID"),
        type=(Constant("inbound"),),
        object_id=(body("MessageID"),),
        max_body=50 * MIB,  # includes attachments, as base64
        answer=Answer(status=200),
        retries=Retries(automatic=True, hours=10.35, schedule="1m, 5m, 10m three times, 15m, 30m, 1h, 2h, 6h"),
        lister=Lister(list="GET /messages/inbound", redeliver="PUT /messages/inbound/{id}/retry"),
        confirmed=CONFIRMED,
        notes=(PROVES_LITTLE, "After a 403 Postmark does not retry the message."),
    ),
)
