"""One request as a provider sends it, and the few things every oracle and signer reads from it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct


class NotOffered(Exception):
    """The delivery cannot be put into the form that the SDK takes, so the SDK never saw it."""


class Delivery(Struct, frozen=True):
    """`url` is the full public URL, as the provider knows it; header names may have any case."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes

    def header(self, name: str) -> str:
        """The value, or the empty text: what SDKs that take a header's value get when there is none."""
        return self.lowered().get(name.lower(), "")

    def lowered(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise NotOffered("the body is not UTF-8") from error

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise NotOffered("the body is not JSON") from error

    def form(self) -> dict[str, list[str]]:
        return parse_qs(self.text(), keep_blank_values=True)
