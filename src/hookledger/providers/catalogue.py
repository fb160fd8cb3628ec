"""The providers that are known by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from ..errors import ConfigError
from . import generic, github, standard_webhooks, stripe
from .contract import Contract

_CONTRACTS = {contract.name: contract for contract in (stripe.CONTRACT, github.CONTRACT, standard_webhooks.CONTRACT)}


def names() -> tuple[str, ...]:
    """Every name that `find` knows, sorted."""
    return tuple(sorted([*_CONTRACTS, generic.NAME]))


def find(name: str, options: Mapping[str, object] | None = None) -> Contract:
    """The contract of a provider; `options` describe the provider `hmac` and no other."""
    if name == generic.NAME:
        return generic.contract(options or {})
    contract = _CONTRACTS.get(name)
    if contract is None:
        close = get_close_matches(name.lower().replace("-", "_"), names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(names())}"
        raise ConfigError(f"no provider is called {name!r}: {hint}")
    if options:
        raise ConfigError(f"provider {name!r} takes no options, but was given {', '.join(sorted(options))}")
    return contract
