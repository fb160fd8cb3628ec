"""Dropbox: which accounts have changes."""

from __future__ import annotations

from ..contract import Confirmed, Contract, Lister, Retries
from ..fields import Constant, query
from ..handshake import Handshake
from ..schemes.hmac import Hmac

CONTRACTS = (
    Contract(
        name="dropbox",
        title="Dropbox",
        scheme=Hmac(header=b"x-dropbox-signature"),
        secret="the app's secret, as text",
        hint=True,  # the same body after every change
        type=(Constant("list_folder"),),
        deadline=10,
        handshakes=(
            Handshake(method="GET", when=((query("challenge"), None),), value=query("challenge"), text="{value}"),
        ),
        retries=Retries(automatic=True, schedule="with backoff"),
        lister=Lister(list="POST /2/files/list_folder/continue, from the cursor you kept"),
        confirmed=Confirmed(
            signature="run",
            event="memory",
            handshake="code",
            response="quoted",
            retry="memory",
            reconcile="memory",
            sources=("hapi-dropbox-webhooks: a test vector", "Dropbox's documentation, quoted by others"),
        ),
        notes=(
            "A notification only names accounts: let the handler call list_folder/continue for each, from the "
            "cursor that it stored.",
            "Each arrival is a separate event, also a retry: from the cursor, the second one finds nothing.",
        ),
    ),
)
