"""Is this request from the provider? Decided over the raw bytes, before anything is parsed or stored."""

from __future__ import annotations

from hmac import compare_digest

from ..errors import Malformed, Unauthentic
from ..model import Proof, Request
from ..providers import schemes
from .endpoint import Endpoint

REASONS = {
    "signature_missing": "there is no signature header",
    "signature_duplicate": "there are two signature headers, and it is not for us to choose",
    "signature_malformed": "the signature header holds no signature of the configured form",
    "signature_mismatch": "no signature was made with one of our secrets over these bytes",
    "secret_expired": "the signature was made with a secret of ours that has expired",
    "timestamp_missing": "there is no signed time",
    "timestamp_duplicate": "there are two signed times",
    "timestamp_malformed": "the signed time is not a plain number",
    "timestamp_stale": "the signed time is too long ago",
    "timestamp_future": "the signed time is too far ahead",
    "id_missing": "there is no signed event id",
    "id_duplicate": "there are two signed event ids",
    "id_malformed": "the signed event id contains the separator, so the message can be read in two ways",
}
"""Why `verify` refuses: duplicate and malformed are Malformed, all others Unauthentic."""


def verify(endpoint: Endpoint, request: Request, now: float) -> Proof:
    """The proof that the request is authentic and fresh; else Malformed or Unauthentic, a reason of REASONS.

    Does not prevent the replay of a captured request within the tolerance, or ever where no time is signed:
    that is what identities are for.
    """
    scheme = endpoint.contract.scheme
    presented = schemes.read(scheme, request.headers)
    message = schemes.message(scheme, presented, request.body, endpoint.url(request))
    expired = plausible = False
    for secret in endpoint.secrets:
        expected = schemes.signature(scheme, secret.key, message)
        if _matches(expected, presented.signatures):
            if secret.expires_at is None or now < secret.expires_at:
                break
            expired = True
        plausible = plausible or any(schemes.well_formed(scheme, c, expected) for c in presented.signatures)
    else:
        if expired:
            raise Unauthentic("secret_expired")
        raise Unauthentic("signature_mismatch") if plausible else Malformed("signature_malformed")

    # Only now: a time that nobody signed says nothing, not even that it is stale.
    if presented.signed_at is not None and endpoint.tolerance is not None:
        if presented.signed_at < now - endpoint.tolerance:
            raise Unauthentic("timestamp_stale")
        if presented.signed_at > now + endpoint.tolerance:
            raise Unauthentic("timestamp_future")
    return Proof(scheme.name, secret.fingerprint, presented.signed_at)


def _matches(expected: bytes, candidates: tuple[bytes, ...]) -> bool:
    for candidate in candidates:  # noqa: SIM110 - a generator would cost more than the comparison
        if compare_digest(expected, candidate):
            return True
    return False
