"""Endpoints for tests: configured as `Inbox.source` does it, without an inbox."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hookledger.config import source_settings
from hookledger.providers.contract import Contract
from hookledger.providers.schemes.base import Keyring
from hookledger.receive import endpoint as product
from hookledger.receive.client import NO_PROXIES, Proxies
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.secrets import Secret


def configure(
    name: str,
    contract: Contract,
    secrets: Sequence[str | Secret],
    *,
    proxies: Proxies = NO_PROXIES,
    keyring: Keyring | None = None,
    key: Any = None,
    **options: Any,
) -> Endpoint:
    """A source of this contract. Keys that a provider published as bytes are given as `Secret`."""
    texts = [given if isinstance(given, str) else "env:NOT_READ" for given in secrets]
    function = key if callable(key) else None
    given = {"key": key or ()} if function is None else {}
    options = {option: value for option, value in options.items() if value is not None}
    settings = source_settings(name, {"provider": contract.name, "secrets": texts, **given, **options})
    made = product.configure(name, contract, settings, key_function=function, proxies=proxies, keyring=keyring)
    ready = [own if isinstance(own, Secret) else read for own, read in zip(secrets, made.secrets, strict=True)]
    return msgspec.structs.replace(made, secrets=tuple(ready))
