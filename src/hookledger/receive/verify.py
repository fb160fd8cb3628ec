"""Is this request from the provider? Decided over the raw bytes, before anything is parsed or stored."""

from __future__ import annotations

from ..errors import Malformed, Unauthentic
from ..model import Proof, Request
from .endpoint import Endpoint

REASONS = {
    "signature_missing": "there is no signature",
    "signature_duplicate": "there are two signatures, and it is not for us to choose",
    "signature_malformed": "what stands for the signature is none of the configured form",
    "signature_mismatch": "no signature was made with one of our secrets over these bytes",
    "signature_version": "the signature is of another version than the configured one",
    "secret_expired": "the signature was made with a secret of ours that has expired",
    "credential_missing": "no secret was presented",
    "credential_duplicate": "two secrets were presented",
    "credential_malformed": "what was presented is no secret of the configured form",
    "timestamp_missing": "there is no signed time",
    "timestamp_duplicate": "there are two signed times",
    "timestamp_malformed": "the signed time is not written as the provider writes it",
    "timestamp_stale": "the signed time is too long ago",
    "timestamp_future": "the signed time is too far ahead",
    "id_missing": "there is no signed event id",
    "id_duplicate": "there are two signed event ids",
    "id_malformed": "the signed event id contains the separator, so the message can be read in two ways",
    "body_malformed": "the signature should be in the body, and the body is not readable",
    "body_digest_missing": "the signed URL has no digest of the body, or two",
    "body_digest_mismatch": "the digest in the signed URL, or in the token, is not that of the body",
    "token_missing": "there is no token",
    "token_duplicate": "there are two tokens",
    "token_malformed": "what stands for the token is none, is over 8 KiB, or names no usable key",
    "algorithm_missing": "the header that names the algorithm is absent",
    "algorithm_duplicate": "the algorithm is named twice",
    "algorithm_refused": "the request names another algorithm than the configured one",
    "certificate_missing": "no certificate is named",
    "certificate_duplicate": "two certificates are named",
    "certificate_url": "the certificate's address is not one that the contract pins: nothing was fetched",
    "certificate_invalid": "what was fetched is no RSA certificate for the provider's name",
    "certificate_expired": "the signature is good, but its certificate was not valid at the signed time",
    "key_unknown": "the provider publishes no such key, or none of the right kind",
    "claim_mismatch": "the token is well signed, but not by the issuer or for the account that we expect",
    "form_malformed": "the signed form cannot be read",
    "query_malformed": "the URL's parameters cannot be read",
}
"""Why `verify` refuses: duplicate and malformed are Malformed, all others Unauthentic."""


def verify(endpoint: Endpoint, request: Request, now: float) -> Proof:
    """The proof that the request is authentic and fresh; else Malformed or Unauthentic, a reason of REASONS.

    Does not prevent the replay of a captured request within the tolerance, or ever where no time is signed:
    that is what identities are for. Raises KeyNeeded where a published key has to be fetched first.
    """
    scheme = endpoint.contract.scheme
    if not endpoint.secrets:  # `configure` lets that pass only for providers that prove nothing
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

    # Only now: a time that nobody signed says nothing, not even that it is stale.
    signed_at = scheme.signed_at(presented, request)
    if signed_at is not None and endpoint.tolerance is not None:
        if signed_at < now - endpoint.tolerance:
            raise Unauthentic("timestamp_stale")
        if signed_at > now + endpoint.tolerance:
            raise Unauthentic("timestamp_future")
    return Proof(scheme.name, secret.fingerprint, signed_at)
