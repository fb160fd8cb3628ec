"""Adyen: webhooks signed in a header, and classic notifications whose items are signed individually."""

from __future__ import annotations

from ..contract import Answer, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.adyen import AdyenItems
from ..schemes.hmac import Hmac

SECRET = "the webhook's HMAC key, in hex"
RETRIES = Retries(
    automatic=True, hours=720, schedule="9s, 18s, 27s, then 2m growing to 4h, then every 8h; 7 or 30 days by product"
)
LISTER = Lister(redeliver="customer area")
SOURCES = (
    "Adyen 16.0.0: util.py, and its vector",
    "docs.adyen.com: troubleshoot webhooks, tokenization webhooks, transfer and transaction webhooks",
)

CONTRACTS = (
    Contract(
        name="adyen",
        title="Adyen platform webhooks",
        scheme=Hmac(header=b"hmacsignature", encoding="base64", key="hex", min_key=16),
        secret=SECRET,
        id=body("eventId"),
        # The id is the PSP reference of what happened, which can have several types. Without an id (configuration,
        # transfers) the whole body identifies the event: it has the time and the new state.
        key=(body("type"), body("eventId")),
        type=(body("type"),),
        object_id=(
            body("data.id"),
            body("data.accountHolder.id"),
            body("data.balanceAccount.id"),
            body("data.paymentInstrument.id"),
            body("data.storedPaymentMethodId"),
        ),
        occurred_at=body("createdAt"),
        occurred_else=(body("timestamp"),),  # when it was queued
        deadline=10,
        retries=RETRIES,
        lister=LISTER,
        confirmed=Confirmed(
            signature="run", event="memory", response="docs", retry="memory", reconcile="memory", sources=SOURCES
        ),
        notes=(
            "No time is signed.",
            "Transfers number their webhooks: data.sequenceNumber grows from 1 and tells their order.",
            "That eventId is a PSP reference is documented for tokens; what other products send is from memory.",
            "Only the first three retries are documented; the queue after them is from memory.",
        ),
    ),
    Contract(
        name="adyen_classic",
        title="Adyen standard notifications",
        scheme=AdyenItems(),
        secret=SECRET,
        key=(body("pspReference"), body("eventCode"), body("success")),
        type=(body("eventCode"),),
        object_id=(body("pspReference"),),
        occurred_at=body("eventDate"),
        items=(("notificationItems", "NotificationRequestItem"),),
        inherit=("live",),
        volatile=(body("additionalData.hmacSignature"),),  # changes with the key
        answer=Answer(200, b"[accepted]", "text/plain"),
        deadline=10,
        retries=RETRIES,
        lister=LISTER,
        confirmed=Confirmed(
            signature="run", event="memory", response="docs", retry="memory", reconcile="memory", sources=SOURCES
        ),
        notes=(
            "Only eight fields of each item are signed: reason, eventDate, live and all other additionalData may be "
            "forged.",
            "success says whether it worked, not the type: an AUTHORISATION may have been declined.",
            "A later notification of the same reference, code and success with other details shows as a conflict.",
        ),
    ),
)
