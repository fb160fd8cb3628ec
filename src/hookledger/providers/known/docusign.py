"""DocuSign Connect: messages in the JSON format with one event each (JSON SIM)."""

from __future__ import annotations

from ..contract import MIB, Confirmed, Contract, Lister, Retries
from ..fields import body
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="docusign",
        title="DocuSign Connect",
        scheme=Hmac(header=b"x-docusign-signature-", numbered=True, encoding="base64"),
        secret="a Connect HMAC key, as text",
        # No id. Events about recipients name one besides the envelope; some events are about neither. Two
        # configurations with one URL send each event twice: these are two events, since their contents differ.
        immutable=(
            body("event"),
            body("generatedDateTime"),
            body("configurationId"),
            body("data.accountId"),
            body("data.envelopeId"),
            body("data.recipientId"),
            body("data.templateId"),
        ),
        type=(body("event"),),
        object_id=(body("data.envelopeId"), body("data.templateId")),
        occurred_at=body("generatedDateTime"),
        volatile=(body("retryCount"),),
        max_body=50 * MIB,  # may include documents, as base64
        deadline=100,
        retries=Retries(
            automatic=True,
            hours=240,
            schedule="with Require Acknowledgement once a day, ten times at most, else never",
            advice="without Require Acknowledgement it does not redeliver failed deliveries: turn that on in the "
            "Connect configuration (requiresAcknowledgement)",
        ),
        lister=Lister(
            list="the Connect logs and failures API, the last 100",
            days=15,
            redeliver="PUT …/connect/envelopes/{id}/retry_queue",
        ),
        confirmed=Confirmed(
            signature="quoted",
            event="memory",
            response="memory",
            retry="docs",
            reconcile="docs",
            sources=(
                "DocuSign's documentation: validation and security, JSON SIM, the retry queue, ConnectEvents",
                "docusign_esign: ConnectCustomConfiguration.requires_acknowledgement",
                "hookdeck/webhook-skills: docusign",
            ),
        ),
        notes=(
            "Choose JSON SIM: the older formats are XML or envelope summaries, which this contract does not read.",
            "Each active key signs in a separate, numbered header: one match is enough.",
            "A manually republished envelope may have another generatedDateTime, and then is a new event.",
        ),
    ),
)
