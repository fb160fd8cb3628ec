"""Why a request is rejected: a closed set of codes, each with its text. Hookledger counts and shows them."""

from __future__ import annotations

NOT_A_DELIVERY = "not_a_delivery"

UNPROVED = {
    "signature_missing": "the request has no signature",
    "signature_duplicate": "the request has two signatures",
    "signature_malformed": "the signature is malformed",
    "signature_mismatch": "no configured secret matches the signature",
    "signature_version": "the signature's version is not the configured one",
    "secret_expired": "the secret that matches the signature has expired",
    "credential_missing": "the request has no credential",
    "credential_duplicate": "the request has two credentials",
    "credential_malformed": "the credential is malformed",
    "timestamp_missing": "the request has no signed time",
    "timestamp_duplicate": "the request has two signed times",
    "timestamp_malformed": "the signed time is malformed",
    "timestamp_stale": "the signed time is too old",
    "timestamp_future": "the signed time is too far in the future",
    "id_missing": "the request has no signed event id",
    "id_duplicate": "the request has two signed event ids",
    "id_malformed": "the signed event id contains the separator, so the signed message is ambiguous",
    "body_malformed": "the body is unreadable, and the signature must be in it",
    "body_digest_missing": "the signed URL has no digest of the body, or two",
    "body_digest_mismatch": "the digest in the signed URL or the token does not match the body",
    "token_missing": "the request has no token",
    "token_duplicate": "the request has two tokens",
    "token_malformed": "the token is malformed, is over 8 KiB, or names no usable key",
    "algorithm_missing": "the request does not name the algorithm",
    "algorithm_duplicate": "the request names the algorithm twice",
    "algorithm_mismatch": "the request's algorithm is not the configured one",
    "certificate_missing": "the request names no certificate",
    "certificate_duplicate": "the request names two certificates",
    "certificate_url": "the contract does not allow the certificate's URL, so it was not fetched",
    "certificate_invalid": "the fetched file is not an RSA certificate for the provider's name",
    "certificate_expired": "the signature matches, but its certificate was not valid at the signed time",
    "key_unknown": "the provider publishes no such key, or only one of the wrong kind",
    "claim_mismatch": "the token's signature matches, but its issuer or account is not the expected one",
    "form_malformed": "the signed form is unreadable",
    "query_malformed": "the URL's parameters are unreadable",
}
"""Why `verify` rejects: duplicate and malformed are Malformed, all others Unauthentic."""

REASONS = {
    **UNPROVED,
    NOT_A_DELIVERY: "the request is a handshake, not a delivery",
    "key_missing": "the source requires an event key, and the event has none",
    "idempotency_key_missing": "the guarded route requires Idempotency-Key",
    "idempotency_key_malformed": "the Idempotency-Key is malformed",
    "type_rejected": "the source does not accept this event type",
    "schema_break": "the content breaks its schema, and the source refuses such events",
    "content_unreadable": "the content is unreadable, and the source refuses such events",
    "unknown_source": "no source has this path",
    "method": "deliveries must be POST requests",
    "handshake_token": "the handshake does not present the source's verify_token",
    "handshake_origin": "the handshake's origin is not one of the source's origins",
    "handshake_malformed": "the handshake challenge is malformed",
    "handshake_duplicate": "the handshake has a header twice",
    "handshake_url": "the handshake's URL is not the provider's, so it was not fetched",
    "body_too_large": "the body is over the source's limit",
    "chunks_too_small": "the body arrived in too many parts for its size",
    "body_too_slow": "the body did not arrive in time",
    "headers_too_large": "the headers are over the limit",
    "headers_too_slow": "the headers did not arrive in time",
    "url_too_long": "the URL is over the limit",
    "content_encoding": "the content encoding is not accepted",
    "transfer_encoding": "the transfer encoding is not accepted",
    "host_header": "the HTTP/1.1 request has no Host header, or two",
    "http_malformed": "the request is not valid HTTP",
    "disconnected": "the client disconnected mid-request",
    "pipelined": "a second request arrived before the first was answered",
    "bad_data": "the database cannot store it",
    "unavailable": "the key to verify it with cannot be fetched now",
}
"""All codes."""


def in_words(code: str) -> str:
    """Return why a request was rejected."""
    return REASONS.get(code) or code.replace("_", " ")
