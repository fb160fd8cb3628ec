"""What is allowed in a source and yet may surprise; said at start-up and by `hookledger doctor`."""

from __future__ import annotations

from ..providers.schemes.certificate import Certificate
from ..providers.schemes.jwt import Jwt
from ..providers.schemes.public_key import PublicKey
from .endpoint import Endpoint
from .secrets import MISSING

SHORT_SECRET = 16
"""Bytes; who captured one signed request can try all shorter ones at leisure."""


def advice(endpoint: Endpoint, *, reconciled: bool) -> list[str]:
    """Each line names the source, what may happen, and what to do."""
    said = [*_on_proof(endpoint), *_on_behaviour(endpoint, reconciled=reconciled)]
    return [f"source {endpoint.name!r}: {line}" for line in said]


def _on_proof(endpoint: Endpoint) -> list[str]:
    contract, said = endpoint.contract, []
    if not endpoint.secrets:
        said.append("without a secret every stranger can write to it: take its events for hints")
    if contract.scheme.coverage != "body" and endpoint.secrets:
        covered = {
            "fields": "only some fields of the body are",
            "checksum": "the body is bound by a checksum that can be forged: it is not",
            "nothing": "the body is not",
        }[contract.scheme.coverage]
        said.append(f"{covered} covered by the proof: take it for a hint where much depends on it")
    if _guessable(endpoint):
        said.append(f"a secret is shorter than {SHORT_SECRET} bytes and can be guessed: use a longer one")
    if endpoint.type_unsigned:
        said.append(
            f"{contract.title} does not sign the type: whoever delivers a captured body first chooses it, so read "
            "what matters from the body"
        )
        hidden = sorted(kind for kind in endpoint.repeatable if not contract.shows_any(kind))
        if hidden:
            said.append(f"no body shows {', '.join(hidden)}: a second one with the same body is quarantined")
    if getattr(contract.scheme, "test_key", None):
        said.append("deliveries signed with a test key are accepted: not for production")
    return said


def _on_behaviour(endpoint: Endpoint, *, reconciled: bool) -> list[str]:
    contract, said = endpoint.contract, []
    if any(shake.token for shake in contract.handshakes) and endpoint.rules.verify_token is None:
        said.append(f"{contract.title} asks for a token before it delivers: set verify_token")
    if any(shake.origins for shake in contract.handshakes) and not endpoint.rules.origins:
        said.append(f"{contract.title} asks before it delivers, and nobody is among origins: set them if it does")
    if endpoint.rules.mode == "observe":
        said.append("it observes: events are recorded as skipped and no handler runs")
    if contract.retries.automatic is False and not reconciled:
        missed = "configure reconcile, or set" if contract.lister.list else "if you can live with that, set"
        said.append(f"{contract.title} does not deliver again what it could not deliver: {missed} reconciled = true")
    elif contract.retries.hours is not None and contract.retries.hours < 1 and not reconciled:
        minutes = contract.retries.hours * 60
        span = f"for only {minutes:.0f} minutes" if minutes >= 1 else "only once more"
        said.append(f"{contract.title} tries {span}: an outage beyond that loses events")
    if contract.retries.advice and not reconciled:
        said.append(contract.retries.advice)
    if contract.stable == "no":
        said.append(f"{contract.title} gives a redelivery another id: only its content tells it apart")
    return said


def _guessable(endpoint: Endpoint) -> bool:
    scheme = endpoint.contract.scheme
    if isinstance(scheme, Certificate | PublicKey) or (isinstance(scheme, Jwt) and scheme.jwks):
        return False  # what is configured is a public key, or a name that the provider signs
    return any(len(secret.key) < SHORT_SECRET and secret.expires_at != MISSING for secret in endpoint.secrets)
