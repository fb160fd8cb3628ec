"""A secret in the request: proves that the sender knows it, and nothing about the body."""

from __future__ import annotations

import base64
import hmac
from typing import ClassVar
from urllib.parse import quote

from ...errors import ConfigError, Malformed, Unauthentic
from ...model import Request
from .. import forms
from ..fields import Constant, Field
from .base import Coverage, Defaults, Draft, Keyring, Presented, adding

MAX_TOKEN = 4096


class Token(Defaults, frozen=True, kw_only=True):
    """The secret is in a header or in a URL parameter; with both set, in either."""

    coverage: ClassVar[Coverage] = "nothing"
    header: bytes = b""
    parameter: str = ""
    prefix: bytes = b""
    """Text before the secret in the header, such as `Bearer `."""
    basic: bool = False
    """Whether the secret is USER:PASSWORD of HTTP Basic authentication."""
    optional: bool = False
    """Whether the secret may be missing, because the provider may sign nothing: then events are only hints."""
    min_key: int = 8

    def __post_init__(self) -> None:
        if not (self.header or self.parameter):
            raise ConfigError("the secret needs a place in the request: set header or parameter")

    @property
    def name(self) -> str:
        return "basic" if self.basic else "token"

    @property
    def secret_headers(self) -> frozenset[bytes]:
        return frozenset({self.header}) if self.header else frozenset()

    @property
    def secret_parameters(self) -> frozenset[str]:
        return frozenset({self.parameter}) if self.parameter else frozenset()

    def signs(self, field: Field) -> bool:
        return isinstance(field, Constant)

    def prepare(self, secret: str) -> bytes:
        if not self.basic:
            return secret.encode()
        if ":" not in secret:
            raise ValueError("it does not have the form USER:PASSWORD")
        return base64.b64encode(secret.encode())

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        presented = request.values(self.header) if self.header else []
        if presented:
            presented = [value[len(self._prefix) :] for value in presented if self._fits(value)]
            if not presented:
                raise Malformed("credential_malformed")
        if self.parameter:
            presented += _parameters(request.query, self.parameter)
        if len(presented) > 1:
            raise Malformed("credential_duplicate")
        if not presented or not presented[0].strip():
            raise Unauthentic("credential_missing")
        if len(presented[0]) > MAX_TOKEN:
            raise Malformed("credential_malformed")
        return Presented(candidates=(presented[0],))

    @property
    def _prefix(self) -> bytes:
        return b"Basic " if self.basic else self.prefix

    def _fits(self, value: bytes) -> bool:
        return value[: len(self._prefix)].lower() == self._prefix.lower()  # the scheme's name is case-insensitive

    def matches(self, key: bytes, presented: Presented) -> bool:
        return hmac.compare_digest(key, presented.candidates[0])

    def sign(self, key: bytes, draft: Draft) -> Draft:
        if self.header:
            return adding(draft, {self.header: (self._prefix + key).decode("latin-1")})
        joint = "&" if "?" in draft.url else "?"
        return adding(draft, {}, url=f"{draft.url}{joint}{quote(self.parameter)}={quote(key, safe='')}")


def _parameters(query: bytes, name: str) -> list[bytes]:
    try:
        return forms.values(query, name)
    except ValueError:
        raise Malformed("query_malformed") from None
