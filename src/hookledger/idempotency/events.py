"""A guarded request as an event: its source, its key and identity, and what of it is stored."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlencode

from msgspec import Struct

from ..errors import Unauthentic
from ..ids import identity, new_id, show
from ..model import GUARDED, Arrival, Headers, Item, Proof, Request, pack_headers
from ..providers import forms
from ..providers.behaviour import Retries
from ..providers.contract import CREDENTIALS, Confirmed, Contract
from ..providers.fields import Field
from ..providers.schemes.base import Coverage, Defaults, Draft, Keyring, Presented
from ..receive.endpoint import Endpoint
from ..source import Source
from ..states import KeyOrigin
from .routes import Route

PROOF = Proof(GUARDED, "")
_SECRET = re.compile(b"auth|cookie|token|secret|signature|passw|credential|session|csrf|apikey|accesskey|jwt")
"""What the name of a header or a parameter holds, without its punctuation, if its value may be a secret."""
_PUNCTUATION = re.compile(rb"[^a-z0-9]")


class Guarded(Struct, frozen=True):
    """One request that is guarded: authenticated, with its key and its whole body."""

    route: Route
    caller: str
    key: str
    request: Request


class Authenticated(Defaults, frozen=True):
    """The scheme of a source without deliveries: the application authenticates, and no request proves itself."""

    optional: bool = True

    @property
    def name(self) -> str:
        return GUARDED

    @property
    def coverage(self) -> Coverage:
        return "body"

    @property
    def min_key(self) -> int:
        return 0

    def signs(self, field: Field) -> bool:
        return True

    def prepare(self, secret: str) -> bytes:
        raise ValueError("a guarded source has no secrets")

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        raise Unauthentic("credential_missing")

    def matches(self, key: bytes, presented: Presented) -> bool:
        return False

    def sign(self, key: bytes, draft: Draft) -> Draft:
        return draft


CONTRACT = Contract(
    name=GUARDED,
    title="your own API",
    scheme=Authenticated(),
    retries=Retries(automatic=None, why="its callers decide"),
    confirmed=Confirmed(signature="none", event="none"),
    notes=("Requests to your own routes, guarded by Idempotency-Key: nothing is delivered to Hookledger itself.",),
)


class GuardedSource(Source):
    """A source whose events are the application's own requests: it receives no deliveries."""

    delivered = False

    def advice(self) -> list[str]:
        return []


def arrival(endpoint: Endpoint, guarded: Guarded) -> Arrival:
    """Return what to record of a request, under new ids and without secrets."""
    request, event_id = guarded.request, new_id()
    return Arrival(
        event_id,
        endpoint.name,
        safe_query(request.query),
        pack_headers(safe_headers(request.headers)),
        request.body,
        endpoint.client(request),
        PROOF,
        (_item(endpoint.name, guarded),),
        (event_id,),
    )


def _item(source: str, guarded: Guarded) -> Item:
    caller, key = guarded.caller.encode("utf-8", "surrogatepass"), guarded.key.encode()
    route = guarded.route.shape.encode()
    return Item(
        show(caller + b":" + key),
        KeyOrigin.COMPOSITE,
        identity(source, b"guarded", caller, route, key),
        fingerprint(guarded.request),
        guarded.route.name,
        account=show(caller),
        delivery_id=None,
    )


def fingerprint(request: Request) -> bytes:
    """Return the digest of what a repetition must not change: path, query, media type and body. Its length goes
    before each part, so that no other request comes to the same."""
    media = (request.value(b"content-type") or b"").partition(b";")[0].strip().lower()
    path = request.path.encode("utf-8", "surrogatepass")
    parts = (path, request.query, media, request.body)
    return sha256(b"".join([b"%d:%b" % (len(part), part) for part in parts])).digest()


def safe_headers(headers: Headers) -> Headers:
    """Return the headers without those that may hold a secret."""
    return tuple((name, value) for name, value in headers if name not in CREDENTIALS and not _is_secret(name))


def safe_query(query: bytes) -> bytes:
    """Return the query without parameters that may hold a secret."""
    try:
        pairs = forms.pairs(query)
    except ValueError:
        return b""
    kept = [(name, value) for name, value in pairs if not _is_secret(name)]
    return query if len(kept) == len(pairs) else urlencode(kept).encode()


def _is_secret(name: bytes) -> bool:
    return _SECRET.search(_PUNCTUATION.sub(b"", name.lower())) is not None
