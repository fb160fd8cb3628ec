"""RSA signatures with an X.509 certificate whose URL the request names: PayPal and Amazon SNS.

Trust comes from where the certificate is fetched: over TLS, from a host and a path that the contract allows. Its
chain is not followed to a root: SNS publishes only the leaf, and an attacker who could serve another certificate from
the allowed host would need that host's TLS key.
"""

from __future__ import annotations

import base64
import hmac
import re
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import msgspec

from ...errors import ConfigError, Malformed, Unauthentic
from ...model import Request
from ..fields import Body, Constant, Field, Header, Present
from . import sns
from .base import Coverage, Defaults, Draft, Keyring, Presented, Where, adding, only
from .crypto import KeyKind, decoded, fits, installed, shown, signature, test_private, verifies
from .times import seconds, written

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    from .crypto import Public

ID, TIME, SIGNATURE = b"paypal-transmission-id", b"paypal-transmission-time", b"paypal-transmission-sig"
ADDRESS, ALGORITHM = b"paypal-cert-url", b"paypal-auth-algo"
SHA256_WITH_RSA = b"SHA256withRSA"

TEST_URL = "https://test-key.hookledger.invalid/test.pem"
"""Means the test key's certificate; nothing is fetched from there."""

_TEST = b"test key"  # as material; never the text of a certificate
_URL = re.compile(rb"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)((?:/[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)+)")
_MAX_URL = 512
_WEBHOOK_ID = re.compile(r"[A-Za-z0-9-]{8,64}", re.ASCII)


class Certificate(Defaults, frozen=True, kw_only=True):
    """The key is what the signature must name: PayPal's webhook id, or the ARN of the SNS topic. Both use one
    certificate for all customers, so without it another customer's events would be accepted."""

    name: ClassVar[str] = "rsa-x509"
    key_kind: ClassVar[KeyKind] = "rsa"
    kind: Literal["paypal", "sns"]
    host: str
    """A regular expression for the whole host of certificates."""
    path: str
    """A regular expression for their whole path."""
    subject: str = ""
    """A regular expression for the certificate's common name or one of its DNS names; empty: not checked."""
    versions: tuple[Literal["1", "2"], ...] = ("1", "2")
    """SNS signs version 1 with SHA-1 and 2 with SHA-256: ("2",) forbids the first."""
    tolerance: float = 300.0
    min_key: int = 8
    test_key: bytes | None = None
    """The PEM of a private key for local tests: its public half is accepted if a request names TEST_URL."""

    def __post_init__(self) -> None:
        for pattern in (self.host, self.path, self.subject):
            try:
                re.compile(pattern, re.ASCII)
            except re.error as error:
                raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from error
        if not self.host or not self.path or not self.versions:
            raise ConfigError("a certificate scheme needs host, path and at least one version: set them")

    def __repr__(self) -> str:
        return shown(self)

    @property
    def coverage(self) -> Coverage:
        # Anyone can change the other fields of an envelope, or make a body with a given CRC-32.
        return "fields" if self.kind == "sns" else "checksum"

    def signs(self, field: Field) -> bool:
        match field:
            case Header(name):
                return self.kind == "paypal" and name in (ID, TIME)
            case Body(path):
                return self.kind == "sns" and path[0] in sns.FIELDS
            case Present(names):
                return self.kind == "sns" and sns.FIELDS.issuperset(names)
            case _:
                return isinstance(field, Constant)

    def prepare(self, secret: str) -> bytes:
        installed("cryptography", "httpx2")
        if self.test_key is not None:
            test_private(self.test_key, "rsa")
        secret = secret.strip()
        if self.kind == "paypal" and not _WEBHOOK_ID.fullmatch(secret):
            raise ValueError("it is not a webhook id of letters, digits and hyphens, as PayPal's dashboard shows it")
        if self.kind == "sns" and not sns.TOPIC.fullmatch(secret):
            raise ValueError("it is not a topic's ARN, arn:aws:sns:REGION:ACCOUNT:NAME")
        return secret.encode()

    # ── verifying ──

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        return self._paypal(request, keyring) if self.kind == "paypal" else self._sns(request, keyring)

    def _paypal(self, request: Request, keyring: Keyring) -> Presented:
        """`messages`: the signed text before and after the webhook id."""
        address = only(request.headers, ADDRESS, "certificate")
        self._pin(address)
        if only(request.headers, ALGORITHM, "algorithm") != SHA256_WITH_RSA:
            raise Unauthentic("algorithm_mismatch")
        made = _well_formed(only(request.headers, SIGNATURE, "signature"))
        event_id, moment = only(request.headers, ID, "id"), only(request.headers, TIME, "timestamp")
        if b"|" in event_id:
            raise Malformed("id_malformed")
        if b"|" in moment:  # ISO 8601 allows any character between date and time
            raise Malformed("timestamp_malformed")
        return Presented(
            candidates=(made,),
            messages=(b"%b|%b|" % (event_id, moment), b"|%d" % zlib.crc32(request.body)),
            signed_at=seconds(moment, "iso"),
            id=event_id,
            material=self._material(address, keyring),
            where=self._where(address),
        )

    def _sns(self, request: Request, keyring: Keyring) -> Presented:
        """`messages`: the signed text, its topic, and the signature's version."""
        fields = sns.envelope(request.body)
        address = sns.text(fields, "SigningCertURL", "certificate")
        self._pin(address)
        version = sns.text(fields, "SignatureVersion", "signature")
        if version not in [allowed.encode() for allowed in self.versions]:
            raise Unauthentic("signature_version")
        made = _well_formed(sns.text(fields, "Signature", "signature"))
        signed = sns.canonical(fields)
        return Presented(
            candidates=(made,),
            messages=(signed, fields["TopicArn"].encode(), version),
            signed_at=seconds(fields["Timestamp"].encode(), "iso"),
            id=fields["MessageId"].encode(),
            material=self._material(address, keyring),
            where=self._where(address),
        )

    def _pin(self, address: bytes) -> None:
        """Raise Unauthentic unless the contract allows the URL: no port, user, query, fragment or escape."""
        if self._is_test(address):
            return
        parts = _URL.fullmatch(address) if len(address) <= _MAX_URL else None
        if parts is None or not (
            re.fullmatch(self.host, parts[1].decode(), re.ASCII)
            and re.fullmatch(self.path, parts[2].decode(), re.ASCII)
        ):
            raise Unauthentic("certificate_url")

    def _is_test(self, address: bytes) -> bool:
        return self.test_key is not None and address == TEST_URL.encode()

    def _where(self, address: bytes) -> Where | None:
        """Return where to fetch the certificate; None for the test key."""
        return None if self._is_test(address) else Where(address.decode())

    def _material(self, address: bytes, keyring: Keyring) -> bytes:
        """Return the certificate from an allowed URL."""
        where = self._where(address)
        if where is None:
            return _TEST
        pem = keyring.get(where)
        certificate = _parsed(pem)
        if certificate is None:
            raise Unauthentic("certificate_invalid")
        if self.subject and not any(re.fullmatch(self.subject, name, re.ASCII) for name in certificate.names):
            raise Unauthentic("certificate_invalid")
        return pem

    def matches(self, key: bytes, presented: Presented) -> bool:
        """Whether the signature matches; raise Unauthentic if its certificate was not valid at the signed time."""
        if self.kind == "paypal":
            before, after = presented.messages
            message, sha1 = before + key + after, False
        else:
            message, topic, version = presented.messages
            if not hmac.compare_digest(key, topic):
                return False
            sha1 = version == b"1"
        certificate = None if presented.material == _TEST else _parsed(presented.material)
        public: Public
        if certificate is not None:
            public = certificate.public
        elif presented.material == _TEST and self.test_key is not None:
            public = test_private(self.test_key, "rsa").public_key()
        else:
            return False
        made = decoded(presented.candidates[0], "base64")
        if made is None or not verifies(public, made, message, sha1=sha1):
            return False
        # No clock here: the caller checks that the signed time is close to now. So a certificate that was valid at
        # the signed time is valid now, within the tolerance.
        moment = presented.signed_at
        if certificate is not None and (moment is None or not certificate.begins <= moment <= certificate.ends):
            raise Unauthentic("certificate_expired")
        return True

    # ── signing ──

    def sign(self, key: bytes, draft: Draft) -> Draft:
        installed("cryptography")
        private = test_private(self.test_key, "rsa")
        if self.kind == "paypal":
            moment, event_id = written(draft.now, "iso"), draft.id or "test"
            message = b"%b|%b|%b|%d" % (event_id.encode(), moment, key, zlib.crc32(draft.body))
            headers = {
                ID: event_id,
                TIME: moment.decode(),
                ADDRESS: TEST_URL,
                ALGORITHM: SHA256_WITH_RSA.decode(),
                SIGNATURE: base64.b64encode(signature(private, message)).decode(),
            }
            return adding(draft, headers)
        content = sns.drafted(draft.body, key.decode(), draft.id, draft.now)
        fields = {name: value for name, value in content.items() if isinstance(value, str)}
        version = self.versions[-1]
        made = signature(private, sns.canonical(fields), sha1=version == "1")
        proof = {
            "SignatureVersion": version,
            "Signature": base64.b64encode(made).decode(),
            "SigningCertURL": TEST_URL,
        }
        return adding(draft, {}, body=msgspec.json.encode({**content, **proof}))


class _Parsed(NamedTuple):
    public: RSAPublicKey
    begins: float
    ends: float
    names: tuple[str, ...]


@lru_cache(maxsize=256)
def _parsed(pem: bytes) -> _Parsed | None:
    """Return the first certificate; None if it is unreadable, self-signed, or has no strong RSA key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if not pem.lstrip().startswith(b"-----BEGIN CERTIFICATE-----"):
        return None
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        public = certificate.public_key()
        names = [str(name.value) for name in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        names += [
            name
            for extension in certificate.extensions
            if isinstance(extension.value, x509.SubjectAlternativeName)
            for name in extension.value.get_values_for_type(x509.DNSName)
        ]
        if certificate.issuer == certificate.subject or not fits("rsa", public):
            return None
        assert isinstance(public, RSAPublicKey)
        return _Parsed(
            public,
            certificate.not_valid_before_utc.timestamp(),
            certificate.not_valid_after_utc.timestamp(),
            tuple(names),
        )
    except Exception:  # the errors of a malformed certificate have no common base class
        return None


def _well_formed(made: bytes) -> bytes:
    """Return the signature; raise Malformed unless it is base64 of one with an RSA key of 2048 to 4096 bits."""
    raw = decoded(made, "base64") if len(made) <= 1024 else None
    if raw is None or not 256 <= len(raw) <= 512:
        raise Malformed("signature_malformed")
    return made
