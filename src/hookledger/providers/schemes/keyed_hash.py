"""HubSpot's first two versions: a plain hash of the secret and the message.

An attacker who knows one such hash can extend the message (v1) or its body (v2): prefer v3, which is an HMAC.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import ClassVar

from ...errors import Malformed
from ...model import Request
from ..fields import Field, Header, Query
from . import message as template
from .base import Coverage, Defaults, Draft, Keyring, Presented, adding, only

_HEX = re.compile(rb"[0-9a-f]{64}")


class KeyedHash(Defaults, frozen=True, kw_only=True):
    name: ClassVar[str] = "sha256-prefix"
    coverage: ClassVar[Coverage] = "body"
    header: bytes
    message: str
    version_header: bytes
    version: bytes
    """The required value of the version header: a request must not choose a weaker version."""
    min_key: int = 8

    @property
    def signs_url(self) -> bool:
        return "url" in template.fields(self.message)

    def signs(self, field: Field) -> bool:
        return self.signs_url if isinstance(field, Query) else not isinstance(field, Header)

    def prepare(self, secret: str) -> bytes:
        return secret.encode()

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        signature = only(request.headers, self.header, "signature")
        versions = request.values(self.version_header)
        if versions != [self.version] and (versions or self.version != b"v1"):  # v1 had no such header at first
            raise Malformed("signature_version")
        values = {"body": request.body, "url": url, "method": request.method.encode()}
        return Presented(candidates=(signature,), messages=(template.render(self.message, values),))

    def matches(self, key: bytes, presented: Presented) -> bool:
        expected = hashlib.sha256(key + presented.messages[0]).hexdigest().encode()
        return hmac.compare_digest(expected, presented.candidates[0])

    def plausible(self, presented: Presented) -> bool:
        return _HEX.fullmatch(presented.candidates[0]) is not None

    def sign(self, key: bytes, draft: Draft) -> Draft:
        values = {"body": draft.body, "url": draft.url.encode(), "method": draft.method.encode()}
        digest = hashlib.sha256(key + template.render(self.message, values)).hexdigest()
        return adding(draft, {self.header: digest, self.version_header: self.version.decode()})
