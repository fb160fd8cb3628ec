"""Braintree: XML in a signed form."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import body, query
from ..handshake import Handshake
from ..schemes.hmac import Hmac

CHALLENGE = "[0-9a-f]{20,32}"
"""The handshake signs a challenge for anyone, with the key of the deliveries; a notification's base64 is longer."""

SUBJECTS = tuple(
    body(f"subject.{path}")
    for path in (
        "subscription.id",
        "dispute.id",
        "disbursement.id",
        "transaction.id",
        "transaction-review.transaction-id",
        "merchant-account.id",
        "api-error-response.merchant-account.id",
        *(f"local-payment{step}.payment-id" for step in ("", "-expired", "-funded", "-reversed")),
        *(f"{kind}-account.token" for kind in ("paypal", "sepa-debit", "us-bank", "venmo")),
        *(f"{kind}-card.token" for kind in ("android-pay", "apple-pay", "credit", "masterpass", "samsung-pay")),
        "visa-checkout-card.token",
        "granted-payment-instrument-update.token",
        "payment-method-customer-data-updated-metadata.token",
        "connected-merchant-status-transitioned.merchant-public-id",
        "connected-merchant-paypal-status-changed.merchant-public-id",
        "partner-merchant.partner-merchant-id",
        "oauth-application-revocation.merchant-id",
        "account-updater-daily-report.report-url",
    )
)
"""The identifying field of every kind that Braintree's library knows."""

CONTRACTS = (
    Contract(
        name="braintree",
        title="Braintree",
        scheme=Hmac(
            form="bt_signature",  # <public key>|<hex>[&<public key>|<hex>]
            message="{form:bt_payload}",
            also="{form:bt_payload}\n",
            never=CHALLENGE,
            alg="sha1",
            separator=b"&",
            key="sha1",
            paired=True,
        ),
        secret="PUBLIC_KEY:PRIVATE_KEY of the API",
        content="braintree",
        # No id. The rest of the XML is a state that a retry may render differently, so it is left out.
        immutable=(body("kind"), body("timestamp"), body("source-merchant-id"), *SUBJECTS),
        type=(body("kind"),),
        object_id=SUBJECTS,
        occurred_at=body("timestamp"),
        deadline=30,
        handshakes=(
            Handshake(
                method="GET",
                when=((query("bt_challenge"), None),),
                value=query("bt_challenge"),
                alphabet=CHALLENGE,
                mac="sha1",
                paired=True,
                text="{mac}",
            ),
        ),
        retries=Retries(automatic=True, hours=24, schedule="hourly; in the sandbox for 3 hours"),
        lister=Lister(list="search for transactions and subscriptions: there is no list of events"),
        confirmed=Confirmed(
            signature="run",
            event="code",
            handshake="run",
            response="quoted",
            retry="quoted",
            reconcile="memory",
            sources=(
                "braintree 4.48.0: webhook_notification*.py, webhook_testing_gateway.py",
                "Braintree's documentation, quoted by WooCommerce's plug-in",
            ),
        ),
        notes=(
            "An event has no id: kind, time and subject identify it. A second notification of the same kind about "
            "the same subject within one second becomes a conflict.",
            "The digest is SHA-1 and no time is signed: Braintree offers nothing newer.",
            "Hookledger answers the handshake with the first of the secrets.",
        ),
    ),
)
