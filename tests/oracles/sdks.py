"""What each provider's SDK says of a delivery, by the names of our contracts.

An accepting oracle does not say that a delivery is authentic: `notes` lists what the SDK leaves unchecked, `wants`
what it demands of a body besides a signature, and `past` and `future` how far its clock reaches.
"""

from __future__ import annotations

from tests.oracles import verifiers
from tests.oracles.oracle import Oracle

_STANDARD = ("WebhookVerificationError", "EmptyWebhookSecretError")
_NO_TIME = "no timestamp: a replay is accepted for ever"
_TEXT = "takes the body as text: one that is not UTF-8 cannot be offered"
_MALFORMED = "malformed elements of the signature list raise ValueError or binascii.Error"
_NOT_V1A = "Ed25519 signatures (v1a) are passed over"

ORACLES: dict[str, Oracle] = {
    "stripe": Oracle(
        package="stripe>=16.1",
        verify=verifiers.stripe,
        documented=("SignatureVerificationError",),
        past=300,
        notes=("accepts any timestamp in the future", _TEXT),
    ),
    "standard_webhooks": Oracle(
        package="standardwebhooks>=1.1",
        verify=verifiers.standard_webhooks,
        documented=_STANDARD,
        past=300,
        future=300,
        notes=(_MALFORMED, _NOT_V1A, "accepts timestamps with a fraction and signs their whole part", _TEXT),
    ),
    "gitlab_signed": Oracle(
        package="standardwebhooks>=1.1",
        verify=verifiers.standard_webhooks,
        documented=_STANDARD,
        past=300,
        future=300,
        notes=("not GitLab's own: the specification's library stands in", _MALFORMED, _TEXT),
    ),
    "bigcommerce": Oracle(
        package="standardwebhooks>=1.1",
        verify=verifiers.bigcommerce,
        documented=_STANDARD,
        past=300,
        future=300,
        notes=("not BigCommerce's own: the library its documentation names", _MALFORMED, _TEXT),
    ),
    "svix": Oracle(
        package="svix>=2.9",
        verify=verifiers.svix,
        documented=_STANDARD,
        past=300,
        future=300,
        notes=("webhook-* headers count too, svix-* first", _MALFORMED, _NOT_V1A, _TEXT),
    ),
    "clerk": Oracle(
        package="svix>=2.9",
        verify=verifiers.svix,
        documented=_STANDARD,
        past=300,
        future=300,
        notes=("Clerk sends through Svix and has no verifier of its own in Python", _MALFORMED, _TEXT),
    ),
    "resend": Oracle(
        package="resend>=2.50",
        verify=verifiers.resend,
        documented=("ValueError",),
        past=300,
        future=300,
        wants="JSON, not empty",
        notes=("the version before the comma is not read: `v9,` counts as `v1,`", _TEXT),
    ),
    "openai": Oracle(
        package="openai>=3.49",
        verify=verifiers.openai,
        documented=("InvalidWebhookSignatureError", "ValueError"),
        past=300,
        future=300,
        notes=("a secret without whsec_ is taken as text", "a signature without `v1,` is accepted", _TEXT),
    ),
    "anthropic": Oracle(
        package="anthropic>=2.8",
        verify=verifiers.anthropic,
        documented=_STANDARD,
        past=300,
        future=300,
        wants="JSON",
        notes=(_MALFORMED, _NOT_V1A, _TEXT),
    ),
    "github": Oracle(
        package="gidgethub>=6",
        verify=verifiers.github,
        documented=("ValidationFailure",),
        notes=("not GitHub's own", "accepts SHA-1 signatures too", _NO_TIME),
    ),
    "slack_events": Oracle(
        package="slack_sdk>=3.46",
        verify=verifiers.slack,
        past=300,
        future=300,
        notes=("a timestamp that is no number raises ValueError", _TEXT),
    ),
    "twilio": Oracle(
        package="twilio>=9.13",
        verify=verifiers.twilio,
        notes=(
            "tries the URL with and without its port",
            "a body that is neither a form nor bound by bodySHA256 raises TypeError",
            "form fields are sorted and repeated values collapse, so their order is not covered",
            _NO_TIME,
        ),
    ),
    "paddle": Oracle(
        package="paddle-python-sdk>=1.16",
        verify=verifiers.paddle,
        documented=("ConnectionRefusedError",),
        past=5,
        future=5,
        notes=("an unknown key in the header raises ValueError", "TEST_MODE=1 would switch the clock off", _TEXT),
    ),
    "square": Oracle(
        package="squareup>=46",
        verify=verifiers.square,
        documented=("ValueError",),
        wants="not empty",
        notes=("the URL is compared as it is written: a trailing slash refuses", _NO_TIME, _TEXT),
    ),
    "adyen": Oracle(
        package="Adyen>=16", verify=verifiers.adyen, notes=(_NO_TIME, "a key that is not hex raises binascii.Error")
    ),
    "adyen_classic": Oracle(
        package="Adyen>=16",
        verify=verifiers.adyen_classic,
        documented=("ValueError",),
        wants="JSON with a NotificationRequestItem",
        covers_body=False,
        notes=(
            "only eight fields are signed",
            "only the first of notificationItems is checked",
            "colons in fields are not escaped, so neighbouring fields can trade text",
            _NO_TIME,
        ),
    ),
    "hubspot": Oracle(
        package="hubspot-api-client>=12",
        verify=verifiers.hubspot("v3"),
        documented=("InvalidSignatureTimestampError",),
        past=300,
        notes=("accepts any timestamp in the future", "does not decode the URL", _TEXT),
    ),
    "hubspot_v1": Oracle(
        package="hubspot-api-client>=12",
        verify=verifiers.hubspot("v1"),
        notes=(
            "the version header is not read",
            "a bare SHA-256 behind the secret: open to length extension",
            _NO_TIME,
        ),
    ),
    "hubspot_v2": Oracle(
        package="hubspot-api-client>=12",
        verify=verifiers.hubspot("v2"),
        notes=(
            "the version header is not read",
            "a bare SHA-256 behind the secret: open to length extension",
            _NO_TIME,
        ),
    ),
    "line": Oracle(package="line-bot-sdk>=3.27", verify=verifiers.line, notes=(_NO_TIME, _TEXT)),
    "razorpay": Oracle(
        package="razorpay>=2.0.1",
        verify=verifiers.razorpay,
        documented=("SignatureVerificationError",),
        notes=(_NO_TIME, _TEXT),
    ),
    "gocardless": Oracle(
        package="gocardless_pro>=3.22",
        verify=verifiers.gocardless,
        documented=("InvalidSignatureError",),
        wants="JSON with a list `events`",
        notes=(_NO_TIME, "a signature that is not ASCII raises TypeError"),
    ),
    "coinbase_commerce": Oracle(
        package="coinbase-commerce>=1.0.1",
        verify=verifiers.coinbase_commerce,
        documented=("SignatureVerificationError",),
        notes=(_NO_TIME, _TEXT),
    ),
    "mailgun": Oracle(
        package="mailgun>=1.10",
        verify=verifiers.mailgun,
        documented=("TypeError", "ValueError"),
        past=900,
        future=900,
        wants="JSON with `signature`",
        covers_body=False,
        notes=("the event is not signed: one triple vouches for any event", "tokens are not remembered"),
    ),
    "workos": Oracle(
        package="workos>=10.6",
        verify=verifiers.workos,
        documented=("ValueError",),
        past=180,
        future=180,
        notes=("the header's two parts must be parted by `, `", "the names t= and v1= are not read", _TEXT),
    ),
    "discord_interactions": Oracle(
        package="discord-interactions>=0.4",
        verify=verifiers.discord,
        notes=("the timestamp is signed but its age is not checked",),
    ),
    "sendgrid": Oracle(
        package="sendgrid>=6.12",
        verify=verifiers.sendgrid,
        notes=("the timestamp is signed but its age is not checked", "junk in the base64 is passed over", _TEXT),
    ),
    "google_pubsub": Oracle(
        package="google-auth>=2.62",
        verify=verifiers.google_pubsub,
        documented=("GoogleAuthError", "InvalidValue", "MalformedError", "ValueError"),
        past=3600,
        future=0,
        covers_body=False,
        notes=(
            "the service account's email is not checked",
            "only the token is signed",
            "the certificates' own dates are not checked",
            "the audience is taken to be the endpoint's URL, Pub/Sub's default",
        ),
    ),
    "meta": Oracle(
        package="pywa>=4.5",
        verify=verifiers.meta,
        notes=("not Meta's own", "accepts a signature without `sha256=`", _NO_TIME),
    ),
    "quickbooks": Oracle(
        package="python-quickbooks>=0.9.12",
        verify=verifiers.quickbooks,
        notes=(
            "not Intuit's own",
            "junk in the base64 is passed over",
            "not compared in constant time",
            _NO_TIME,
            _TEXT,
        ),
    ),
    "braintree": Oracle(
        package="braintree>=4.48",
        verify=verifiers.braintree,
        documented=("InvalidSignatureError",),
        wants="a form whose bt_payload is an XML notification",
        notes=("also tries the payload with a line feed added", _NO_TIME),
    ),
}
