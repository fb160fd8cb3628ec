"""Verify that a request is from the provider, by its raw bytes, before anything is parsed or stored."""

from __future__ import annotations

from ..errors import Malformed, Unauthentic
from ..model import Proof, Request
from ..providers.schemes.jwt import Jwt
from ..providers.schemes.times import AHEAD
from .endpoint import Endpoint


def verify(endpoint: Endpoint, request: Request, now: float) -> Proof:
    """Return the proof that the request is authentic and fresh; else raise Malformed or Unauthentic, with a reason of
    UNPROVED.

    Does not prevent the replay of a captured request within the tolerance, or at any time if no time is signed: event
    identities do. Raises KeyNeeded if a published key must be fetched first.
    """
    scheme = endpoint.contract.scheme
    if not endpoint.secrets:  # `configure` allows that only for providers that sign nothing
        return Proof("none", "")
    presented = scheme.read(request, endpoint.url(request), endpoint.keyring)
    expired = False
    for secret in endpoint.secrets:
        if scheme.matches(secret.key, presented):
            if secret.expires_at is None or now < secret.expires_at:
                break
            expired = True
    else:
        if expired:
            raise Unauthentic("secret_expired")
        if not scheme.plausible(presented):
            raise Malformed("signature_malformed")
        raise Unauthentic("signature_mismatch")

    # check last: an unsigned time proves nothing
    signed_at = scheme.signed_at(presented, request)
    if signed_at is not None and endpoint.tolerance is not None:
        if signed_at < now - endpoint.tolerance:
            raise Unauthentic("timestamp_stale")
        if signed_at > now + min(endpoint.tolerance, AHEAD):
            raise Unauthentic("timestamp_future")
    if isinstance(scheme, Jwt) and (ends := scheme.ends_at(presented)) is not None and ends < now:
        raise Unauthentic("timestamp_stale")
    if presented.where is not None:
        endpoint.keyring.proved(presented.where)
    return Proof(scheme.name, secret.fingerprint, signed_at)
