"""Our own verdict on a delivery, to be held against an oracle's."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from hookledger.errors import Rejected
from hookledger.model import Request
from hookledger.providers.catalogue import contracts, with_options
from hookledger.providers.schemes.base import KeyNeeded, Keyring
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.secrets import Secret
from hookledger.receive.verify import verify
from tests.endpoints import configure
from tests.oracles.delivery import Delivery

OPTIONS: dict[str, dict[str, object]] = {
    "google_pubsub": {"email": "push@example-project.iam.gserviceaccount.com"},
}


def endpoint(name: str, secrets: Sequence[str | Secret], url: str, keyring: Keyring | None = None) -> Endpoint:
    contract = with_options(contracts()[name], OPTIONS.get(name, {}))
    public = url.partition("?")[0] if contract.needs_public_url else None
    return configure(name, contract, list(secrets), public_url=public, keyring=keyring)


def request(delivery: Delivery) -> Request:
    url = urlsplit(delivery.url)
    headers = tuple((name.lower().encode(), value.encode("latin-1")) for name, value in delivery.headers.items())
    return Request(delivery.method, url.path, url.query.encode(), headers, delivery.body)


def refusal(where: Endpoint, delivery: Delivery, now: float) -> str | None:
    """Why it is refused; None if it is accepted."""
    try:
        verify(where, request(delivery), now)
    except Rejected as error:
        return error.reason
    except KeyNeeded:  # the intake asks once more, and then refuses
        return "key_unknown"
    return None


def accepts(
    name: str, delivery: Delivery, secrets: Sequence[str], now: float, keyring: Keyring | None = None
) -> bool:
    return refusal(endpoint(name, secrets, delivery.url, keyring), delivery, now) is None
