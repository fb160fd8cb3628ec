"""A JSON Web Token in a header: Google Pub/Sub, Microsoft Entra, Plaid, Jira apps.

Most such tokens identify the sender and do not cover the body; only a claim with the body's digest does.
"""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...errors import ConfigError, Malformed, Unauthentic
from ...model import Request
from ..fields import Body, Constant, Field, Present
from ..tolerant import decode_plain
from .base import Coverage, Defaults, Draft, KeyNeeded, Keyring, Presented, Where, adding, only
from .crypto import KeyKind, fits, installed, shown, test_private
from .message import body_digest

MAX_TOKEN = 8192
TEST_KID = "hookledger-test-key"
LEEWAY = 60.0
"""Seconds that a token is accepted after its expiry, for clock skew."""

_TEST = b"test key"  # as material; never the text of a JWK
_KID = re.compile(r"[A-Za-z0-9._~+/=:@-]{1,256}", re.ASCII)
_URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._-]+)+", re.ASCII)
_KINDS: dict[str, tuple[KeyKind, str]] = {"RS256": ("rsa", "RSA"), "ES256": ("p256", "EC")}

Claims = dict[str, Any]


class Claim(Struct, frozen=True):
    """A value that the token must have under the first of these names that is present."""

    names: tuple[str, ...]
    value: str | bool


class Jwt(Defaults, frozen=True, kw_only=True):
    """If the provider publishes its keys, the configured secret is the audience that tokens must have."""

    header: bytes = b"authorization"
    prefix: bytes = b"Bearer "
    alg: Literal["RS256", "ES256", "HS256"] = "RS256"
    """The only accepted algorithm. HS256: the secret itself is the key."""
    jwks: str = ""
    """The URL of the provider's key set, for RS256 and ES256."""
    ask: str = ""
    """The URL that returns one key by its id, with `client_id` and the secret, as at Plaid; instead of `jwks`."""
    client_id: str = ""
    issuers: tuple[str, ...] = ()
    """The accepted issuers; empty: anyone who has the key."""
    email: str = ""
    """The service account that the token must name. Google issues anyone a token for any audience: without this, an
    audience proves nothing."""
    claims: tuple[Claim, ...] = ()
    body_claim: str = ""
    """The claim with the SHA-256 of the body, in hex."""
    expires: bool = True
    """Whether the token must have an expiry."""
    tolerance: float = 300.0
    """Seconds since the token was issued: the lifetime of tokens if the provider reuses them."""
    secrets: tuple[bytes, ...] = ()
    """The secrets to fetch keys with; set by `bound`."""
    unset: bool = False
    """Whether the source must still set client_id or email; checked when its secret is prepared."""
    test_key: bytes | None = None
    """The PEM of a private key for local tests: its public half is accepted if a token names TEST_KID."""

    def __post_init__(self) -> None:
        if bool(self.jwks) + bool(self.ask) != (self.alg != "HS256"):
            raise ConfigError("set one of jwks and ask for RS256 and ES256; none for HS256, whose key is the secret")
        for url in filter(None, (self.jwks, self.ask)):
            if not _URL.fullmatch(url):
                raise ConfigError(f"jwks and ask must be plain https URLs, not {url!r}")
        if not self.unset:
            self._check_set()

    def _check_set(self) -> None:
        if bool(self.ask) != bool(self.client_id):
            raise ConfigError("ask and client_id need each other: set both")
        if "accounts.google.com" in " ".join(self.issuers) and not (self.email or self.claims):
            raise ConfigError("Google issues anyone a token for your audience: set email to the service account")

    def __repr__(self) -> str:
        return shown(self)

    def bound(self, keys: tuple[bytes, ...]) -> Jwt:
        """Return the scheme with these prepared keys: it fetches the provider's keys with the first."""
        return msgspec.structs.replace(self, secrets=keys) if self.ask else self

    @property
    def name(self) -> str:
        return f"jwt-{self.alg.lower()}"

    @property
    def key_kind(self) -> KeyKind | None:
        return None if self.alg == "HS256" else _KINDS[self.alg][0]

    @property
    def coverage(self) -> Coverage:
        return "body" if self.body_claim else "nothing"

    @property
    def min_key(self) -> int:
        return 32 if self.alg == "HS256" else 8  # RFC 7518: a key as long as the hash

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """A token that does not cover the body is a credential until it expires."""
        return frozenset() if self.body_claim else frozenset({self.header})

    def signs(self, field: Field) -> bool:
        if isinstance(field, Body | Present):
            return bool(self.body_claim)
        return isinstance(field, Constant)

    def prepare(self, secret: str) -> bytes:
        installed("cryptography", "jwt", *(("httpx2",) if self.alg != "HS256" else ()))
        if self.test_key is not None and self.key_kind is not None:
            test_private(self.test_key, self.key_kind)
        self._check_set()
        key = secret.strip().encode()
        if b"-----BEGIN" in key:
            raise ValueError("it is a PEM, not the client's secret or an audience")
        return key

    # ── verifying ──

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        value = only(request.headers, self.header, "token")
        token = value[len(self.prefix) :]
        if value[: len(self.prefix)].lower() != self.prefix.lower() or not 0 < len(token) <= MAX_TOKEN:
            raise Malformed("token_malformed")  # the authorization scheme is case-insensitive
        claimed = _header(token)
        if claimed.get("alg") != self.alg:  # such as `none`, or HS256 with the public key as the secret
            raise Unauthentic("algorithm_mismatch")
        material, where = (b"", None) if self.alg == "HS256" else self._material(claimed.get("kid"), keyring)
        return Presented(candidates=(token,), messages=(body_digest(request.body),), material=material, where=where)

    def _material(self, kid: object, keyring: Keyring) -> tuple[bytes, Where | None]:
        """Return the JWK that the token names, and where it is published."""
        if not isinstance(kid, str) or not _KID.fullmatch(kid):
            raise Malformed("token_malformed")
        if self.test_key is not None and kid == TEST_KID:
            return _TEST, None
        where = Where(self.jwks, fixed=True)
        if self.ask:
            if not self.secrets:
                raise ConfigError("keys cannot be fetched without a secret: call Jwt.bound")
            asked = {"client_id": self.client_id, "secret": self.secrets[0].decode(), "key_id": kid}
            where = Where(self.ask, msgspec.json.encode(asked))
        found = _keys(keyring.get(where)).get(kid)
        if found is None:
            raise KeyNeeded(where, again=True)
        return found, where

    def matches(self, key: bytes, presented: Presented) -> bool:
        """Whether the token matches; raise Unauthentic if its signature matches but a claim is wrong."""
        claims = self._signed_claims(key, presented)
        if claims is None or (self.jwks and not _is_for(claims.get("aud"), key)):
            return False
        if self.issuers and claims.get("iss") not in self.issuers:
            raise Unauthentic("claim_mismatch")
        for claim in self._required:
            if next((claims[name] for name in claim.names if name in claims), None) != claim.value:
                raise Unauthentic("claim_mismatch")
        if self.body_claim:
            digest = claims.get(self.body_claim)
            if not isinstance(digest, str) or not hmac.compare_digest(
                digest.encode("utf-8", "surrogatepass"), presented.messages[0]
            ):
                raise Unauthentic("body_digest_mismatch")
        return True

    @property
    def _required(self) -> tuple[Claim, ...]:
        if not self.email:
            return self.claims
        return (Claim(("email",), self.email), Claim(("email_verified",), True), *self.claims)

    def _signed_claims(self, key: bytes, presented: Presented) -> Claims | None:
        """Return the token's claims if its signature matches, otherwise None."""
        import jwt

        verifying: Any = key
        if presented.material == _TEST and self.test_key is not None and self.key_kind is not None:
            verifying = test_private(self.test_key, self.key_kind).public_key()
        elif self.alg != "HS256":
            verifying = _verifying(presented.material, self.alg)
            if verifying is None:
                raise Unauthentic("key_unknown")
        try:
            token = jwt.PyJWS(algorithms=[self.alg]).decode_complete(
                presented.candidates[0], verifying, algorithms=[self.alg]
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        return _object(token["payload"])

    def signed_at(self, presented: Presented, request: Request) -> float | None:
        """Return when the token was issued. Rejects a token that becomes valid later: no provider issues such."""
        claims = _claimed(presented)
        issued, begins = _moment(claims, "iat"), _moment(claims, "nbf")
        if issued is None or (_moment(claims, "exp") is None and self.expires):
            raise Unauthentic("timestamp_missing")
        if begins is not None and begins > issued + LEEWAY:
            raise Unauthentic("timestamp_future")
        return issued

    def ends_at(self, presented: Presented) -> float | None:
        """Return until when the token is accepted; None without an expiry."""
        ends = _moment(_claimed(presented), "exp")
        return None if ends is None else ends + LEEWAY

    # ── signing ──

    def sign(self, key: bytes, draft: Draft) -> Draft:
        installed("cryptography", "jwt")
        import jwt

        claims: Claims = {claim.names[0]: claim.value for claim in self._required}
        claims["iat"] = int(draft.now)
        if self.expires:
            claims["exp"] = int(draft.now + max(3600.0, self.tolerance))
        if self.issuers:
            claims["iss"] = self.issuers[0]
        if self.jwks:
            claims["aud"] = key.decode()
        if self.body_claim:
            claims[self.body_claim] = body_digest(draft.body).decode()
        if self.key_kind is None:
            token = jwt.encode(claims, key, self.alg)
        else:
            private: Any = test_private(self.test_key, self.key_kind)
            token = jwt.encode(claims, private, self.alg, headers={"kid": TEST_KID})
        return adding(draft, {self.header: self.prefix.decode() + token})


def _header(token: bytes) -> Claims:
    """Return the token's header, not verified yet."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Malformed("token_malformed") from None
    if "crit" in header or "b64" in header:  # extensions that change the signed text: no provider uses them
        raise Malformed("token_malformed")
    return header


def _claimed(presented: Presented) -> Claims:
    """Return the claims of a token whose signature has matched."""
    import jwt

    token = jwt.PyJWS().decode_complete(presented.candidates[0], options={"verify_signature": False})
    return _object(token["payload"]) or {}


def _object(raw: bytes) -> Claims | None:
    try:
        found = decode_plain(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_for(audience: object, key: bytes) -> bool:
    """Whether the token's audience is the key."""
    named = audience if isinstance(audience, list) else [audience]
    texts = [name.encode("utf-8", "surrogatepass") for name in named if isinstance(name, str)]
    return any(hmac.compare_digest(name, key) for name in texts)


def _moment(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Malformed("timestamp_malformed")
    return float(value)


@lru_cache(maxsize=256)
def _keys(raw: bytes) -> dict[str, bytes]:
    """Return the JWKs of a key set, or the one of Plaid's answer unless it was withdrawn, by id."""
    document = _object(raw) or {}
    keys = document.get("keys", [document.get("key")])
    return {
        key["kid"]: msgspec.json.encode(key)
        for key in (keys if isinstance(keys, list) else [])
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("expired_at") is None
    }


@lru_cache(maxsize=256)
def _verifying(material: bytes, alg: str) -> object | None:
    """Return the public key of a JWK; None unless it is for signatures of that algorithm."""
    import jwt

    jwk = _object(material) or {}
    kind, family = _KINDS[alg]
    if jwk.get("kty") != family or jwk.get("use", "sig") != "sig" or jwk.get("alg", alg) != alg:
        return None
    try:
        key = jwt.PyJWK(jwk, algorithm=alg).key
    except Exception:  # a malformed key: errors of PyJWT and of its dependencies
        return None
    return key if fits(kind, key) else None
