"""A JSON Web Token in a header: Google Pub/Sub, Microsoft Entra, Plaid, Jira apps.

Most such tokens say who sends and nothing about the body; only where a claim holds the body's digest is it covered.
"""

from __future__ import annotations

import hashlib
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
from .base import Coverage, Draft, KeyNeeded, Keyring, Presented, Where, adding, only
from .crypto import KeyKind, fits, installed, shown, test_private

MAX_TOKEN = 8192
TEST_KID = "hookledger-test-key"
LEEWAY = 60.0
"""Seconds that a token is taken after its end, for clocks that differ."""

_TEST = b"test key"  # as material; no JWK reads so
_KID = re.compile(r"[A-Za-z0-9._~+/=:@-]{1,256}", re.ASCII)
_URL = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._-]+)+", re.ASCII)
_KINDS: dict[str, tuple[KeyKind, str]] = {"RS256": ("rsa", "RSA"), "ES256": ("p256", "EC")}

Claims = dict[str, Any]


class Claim(Struct, frozen=True):
    """A claim that the token must make, under the first of these names that it has."""

    names: tuple[str, ...]
    value: str | bool


class Jwt(Struct, frozen=True, kw_only=True):
    """Where the provider publishes its keys, the configured secret is the audience that tokens must be for."""

    header: bytes = b"authorization"
    prefix: bytes = b"Bearer "
    alg: Literal["RS256", "ES256", "HS256"] = "RS256"
    """The one that is accepted, whatever the token says. HS256: the secret itself is the key."""
    jwks: str = ""
    """The address of the provider's key set, for RS256 and ES256."""
    ask: str = ""
    """Or where one key is asked for by its id, as at Plaid, with `client_id` and the secret."""
    client_id: str = ""
    issuers: tuple[str, ...] = ()
    """Who may have issued the token; empty: anyone who has the key."""
    email: str = ""
    """The service account that the token must name. Google gives anyone a token for any audience: without this,
    an audience proves nothing."""
    claims: tuple[Claim, ...] = ()
    body_claim: str = ""
    """The claim with the SHA-256 of the body, in hex."""
    expires: bool = True
    """Whether the token must say when it ends."""
    tolerance: float = 300.0
    """Seconds since the token was issued: the provider's lifetime of tokens where it uses them again."""
    secrets: tuple[bytes, ...] = ()
    """What keys are asked for with; set by `bound`."""
    unset: bool = False
    """In a contract, whose source has yet to set client_id or email: whether it did is checked with its secret."""
    test_key: bytes | None = None
    """The PEM of a private key for local tests: its public half is accepted where a token names TEST_KID."""

    def __post_init__(self) -> None:
        if bool(self.jwks) + bool(self.ask) != (self.alg != "HS256"):
            raise ConfigError("RS256 and ES256 need jwks or ask, one of them; HS256 neither: its key is the secret")
        for url in filter(None, (self.jwks, self.ask)):
            if not _URL.fullmatch(url):
                raise ConfigError(f"keys are fetched over https from a plain address, not from {url!r}")
        if not self.unset:
            self._check_set()

    def _check_set(self) -> None:
        if bool(self.ask) != bool(self.client_id):
            raise ConfigError("ask and client_id go together")
        if "accounts.google.com" in " ".join(self.issuers) and not (self.email or self.claims):
            raise ConfigError("anyone can have Google issue a token for your audience: say whose with email")

    def __repr__(self) -> str:
        return shown(self)

    def bound(self, keys: tuple[bytes, ...]) -> Jwt:
        """The scheme of a source with these prepared keys: the provider's are asked for with the first."""
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
    def signs_url(self) -> bool:
        return False

    @property
    def secret_headers(self) -> frozenset[bytes]:
        """A token that is not bound to its body is a credential until it ends."""
        return frozenset() if self.body_claim else frozenset({self.header})

    @property
    def secret_parameters(self) -> frozenset[str]:
        return frozenset()

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
            raise ValueError("a PEM, where the client's secret or an audience belongs")
        return key

    # ── verifying ──

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        value = only(request.headers, self.header, "token")
        token = value[len(self.prefix) :]
        if value[: len(self.prefix)].lower() != self.prefix.lower() or not 0 < len(token) <= MAX_TOKEN:
            raise Malformed("token_malformed")  # the name of the authorization scheme has no case
        claimed = _header(token)
        if claimed.get("alg") != self.alg:  # `none`, or HS256 with our public key for a secret
            raise Unauthentic("algorithm_refused")
        material, where = (b"", None) if self.alg == "HS256" else self._material(claimed.get("kid"), keyring)
        return Presented(candidates=(token,), messages=(_digest(request.body),), material=material, where=where)

    def _material(self, kid: object, keyring: Keyring) -> tuple[bytes, Where | None]:
        """The JWK that the token names, and where it is published."""
        if not isinstance(kid, str) or not _KID.fullmatch(kid):
            raise Malformed("token_malformed")
        if self.test_key is not None and kid == TEST_KID:
            return _TEST, None
        where = Where(self.jwks, fixed=True)
        if self.ask:
            if not self.secrets:
                raise ConfigError("the keys can be asked for only with a secret: Jwt.bound")
            asked = {"client_id": self.client_id, "secret": self.secrets[0].decode(), "key_id": kid}
            where = Where(self.ask, msgspec.json.encode(asked))
        found = _keys(keyring.get(where)).get(kid)
        if found is None:
            raise KeyNeeded(where, again=True)
        return found, where

    def matches(self, key: bytes, presented: Presented) -> bool:
        """Raises Unauthentic where the signature is good and what the token says is not."""
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
        """What the token says, if its signature is good."""
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

    def plausible(self, presented: Presented) -> bool:
        return True  # `read` has looked at its form already, before anything was fetched for it

    def signed_at(self, presented: Presented, request: Request) -> float | None:
        """When the token was issued. One that is valid only some time after that is refused: no provider makes such
        tokens."""
        claims = _claimed(presented)
        issued, begins = _moment(claims, "iat"), _moment(claims, "nbf")
        if issued is None or (_moment(claims, "exp") is None and self.expires):
            raise Unauthentic("timestamp_missing")
        if begins is not None and begins > issued + LEEWAY:
            raise Unauthentic("timestamp_future")
        return issued

    def ends_at(self, presented: Presented) -> float | None:
        """The last moment at which the token is taken; None where it does not say when it ends."""
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
            claims[self.body_claim] = _digest(draft.body).decode()
        if self.key_kind is None:
            token = jwt.encode(claims, key, self.alg)
        else:
            private: Any = test_private(self.test_key, self.key_kind)
            token = jwt.encode(claims, private, self.alg, headers={"kid": TEST_KID})
        return adding(draft, {self.header: self.prefix.decode() + token})


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _header(token: bytes) -> Claims:
    """The token's header, not believed yet."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Malformed("token_malformed") from None
    if "crit" in header or "b64" in header:  # extensions that change what is signed: no provider has them
        raise Malformed("token_malformed")
    return header


def _claimed(presented: Presented) -> Claims:
    """What the token says, whose signature has been found good."""
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
    """Whether the token is for the audience that the key is."""
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
    """The JWKs of a key set, or the one that Plaid answers with unless it has been withdrawn, by their ids."""
    document = _object(raw) or {}
    keys = document.get("keys", [document.get("key")])
    return {
        key["kid"]: msgspec.json.encode(key)
        for key in (keys if isinstance(keys, list) else [])
        if isinstance(key, dict) and isinstance(key.get("kid"), str) and key.get("expired_at") is None
    }


@lru_cache(maxsize=256)
def _verifying(material: bytes, alg: str) -> object | None:
    """A JWK as an object; None unless it is a public key for signatures of that algorithm."""
    import jwt

    jwk = _object(material) or {}
    kind, family = _KINDS[alg]
    if jwk.get("kty") != family or jwk.get("use", "sig") != "sig" or jwk.get("alg", alg) != alg:
        return None
    try:
        key = jwt.PyJWK(jwk, algorithm=alg).key
    except Exception:  # a published key of a wrong form: PyJWT's errors, and those of what it is built on
        return None
    return key if fits(kind, key) else None
