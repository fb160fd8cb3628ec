"""An access token for client credentials, kept until shortly before it expires."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...errors import FetchFailed

MARGIN = 60.0
"""Seconds before its end in which a token is not used."""
LONGEST = 86400.0
"""Seconds for which one is kept, whatever the API says."""

Ask = Callable[[Mapping[str, str], bytes], Awaitable[Any]]
"""Sends headers and form to the API's token path; returns its JSON."""


class AccessToken:
    def __init__(self) -> None:
        self._for: tuple[str, str] | None = None
        self._token = ""
        self._until = 0.0

    def forget(self) -> None:
        """The API no longer accepts it."""
        self._for = None

    async def get(self, user: str, password: str, ask: Ask) -> str:
        """Return a token of these credentials. Several who need one at a time each ask for one, which is harmless."""
        if self._for == (user, password) and time.monotonic() < self._until:
            return self._token
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {
            "authorization": f"Basic {basic}",
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
        }
        answer = await ask(headers, b"grant_type=client_credentials")
        token, seconds = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not token:
            raise FetchFailed("the API answered without an access token")
        known = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        self._until = time.monotonic() + (min(seconds, LONGEST) - MARGIN if known else 0.0)
        self._for, self._token = (user, password), token
        return token
