"""The application under attack: sources of every kind that strangers may try. Nothing is handled, only received."""

from hookledger import Inbox
from tests.crash.app import SECRETS

inbox = Inbox()
inbox.source("stripe", provider="stripe", secrets=[SECRETS["stripe"]])
inbox.source("github", provider="github", secrets=[SECRETS["github"]])
inbox.source("standard", provider="standard_webhooks", secrets=[SECRETS["standard"]])
# Their proof lies in the body, which has to be looked at before it is proved.
inbox.source("adyen", provider="adyen_classic", secrets=["A1B2C3D4E5F60718293A4B5C6D7E8F90" * 2])
inbox.source("mailgun", provider="mailgun", secrets=["attack-tests-mailgun-signing-key"])
inbox.source("sns", provider="aws_sns", secrets=["arn:aws:sns:eu-west-1:123456789012:attacks"])
inbox.source("braintree", provider="braintree", secrets=["made_up:attack-tests-private-key"])
inbox.source(
    "twilio",
    provider="twilio",
    secrets=["attack-tests-twilio-auth-token"],
    public_url="https://example.test/twilio",
)
