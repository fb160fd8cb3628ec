"""Warnings about settings that are allowed but risky; logged at start-up and shown by `hookledger doctor`."""

from __future__ import annotations

from ..providers.fields import written
from ..providers.schemes.certificate import Certificate
from ..providers.schemes.jwt import Jwt
from ..providers.schemes.public_key import PublicKey
from .endpoint import Endpoint
from .secrets import MISSING

SHORT_SECRET = 16
"""Bytes; an attacker who captured one signed request can guess a shorter secret offline."""


def advice(endpoint: Endpoint, *, reconciled: bool) -> list[str]:
    """Return one line per risk, with the source, what may happen, and what to do."""
    said = [*_on_proof(endpoint), *_on_behaviour(endpoint, reconciled=reconciled)]
    return [f"source {endpoint.name!r}: {line}" for line in said]


def _on_proof(endpoint: Endpoint) -> list[str]:
    contract, said = endpoint.contract, []
    if not endpoint.secrets:
        said.append("without a secret anyone can write to it: treat its events as hints")
    if contract.scheme.coverage != "body" and endpoint.secrets:
        covered = {
            "fields": "covers only some fields of the body",
            "checksum": "covers a checksum of the body, which can be forged",
            "nothing": "does not cover the body",
        }[contract.scheme.coverage]
        said.append(f"the signature {covered}: treat the body as a hint where much depends on it")
    if _guessable(endpoint):
        said.append(f"a secret is shorter than {SHORT_SECRET} bytes and can be guessed: use a longer one")
    if endpoint.type_unsigned:
        said.append(
            f"{contract.title} does not sign the event type: anyone who captured a body can send it as another type, "
            "so read what matters from the body"
        )
        hidden = sorted(kind for kind in endpoint.repeatable if not contract.shows_any(kind))
        if hidden:
            said.append(f"the body does not show {', '.join(hidden)}: a second one with the same body is quarantined")
    if endpoint.version is not None and not contract.scheme.signs(endpoint.version):
        said.append(
            f"{written(endpoint.version)} is not signed: anyone who holds a delivery back can send its body first, "
            "in another version, so let each handler check what it reads"
        )
    if getattr(contract.scheme, "test_key", None):
        said.append("it accepts deliveries signed with a test key: do not use it in production")
    return said


def _on_behaviour(endpoint: Endpoint, *, reconciled: bool) -> list[str]:
    contract, said = endpoint.contract, []
    if any(shake.token for shake in contract.handshakes) and endpoint.verify_token is None:
        said.append(f"{contract.title} requires a token in its handshake: set verify_token")
    if any(shake.origins for shake in contract.handshakes) and not endpoint.settings.origins:
        said.append(f"{contract.title} may send a handshake, and origins is empty: set origins to accept it")
    if endpoint.settings.mode == "observe":
        said.append('its mode is "observe": events are recorded as skipped and no handler runs')
    if contract.retries.automatic is False and not reconciled:
        missed = "configure reconcile, or set" if contract.lister.list else "if you accept that, set"
        said.append(f"{contract.title} does not redeliver failed deliveries: {missed} reconciled = true")
    elif contract.retries.hours is not None and contract.retries.hours < 1 and not reconciled:
        minutes = contract.retries.hours * 60
        span = f"for only {minutes:.0f} minutes" if minutes >= 1 else "only once more"
        said.append(f"{contract.title} retries {span}: a longer outage loses events")
    if contract.retries.advice and not reconciled:
        said.append(contract.retries.advice)
    rule = endpoint.entities
    if rule is not None and rule.ordered:
        named = " or ".join(map(written, rule.fields)) or "an object id"
        said.append(f"events without {named} are not ordered, of any type: {', '.join(sorted(rule.ordered))}")
    if contract.stable == "no":
        said.append(f"{contract.title} gives a redelivery another id: Hookledger compares its content instead")
    return said


def _guessable(endpoint: Endpoint) -> bool:
    scheme = endpoint.contract.scheme
    if isinstance(scheme, Certificate | PublicKey) or (isinstance(scheme, Jwt) and scheme.jwks):
        return False  # the secret is a public key, or a name that the provider signs
    return any(len(secret.key) < SHORT_SECRET and secret.expires_at != MISSING for secret in endpoint.secrets)
