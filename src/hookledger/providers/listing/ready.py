"""Choose the lister of a contract."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError
from ..contract import Contract
from ..fields import Header
from .base import Lister, ReconcileSettings
from .github import GitHubLister
from .shopify import ShopifyLister
from .stripe import StripeLister
from .svix import SvixLister

_READY: dict[str, Callable[[ReconcileSettings, Callable[[], str]], Lister]] = {
    "github": GitHubLister,
    "shopify": ShopifyLister,
    "stripe": StripeLister,
}


def lister(contract: Contract, settings: ReconcileSettings, token: Callable[[], str]) -> Lister | None:
    """Return the ready-made lister of a provider; None if there is none and the user must pass one."""
    if settings.app_id is not None:  # any provider that sends through Svix, with Svix's or the standard's headers
        if not isinstance(contract.id, Header):
            raise ConfigError(f"reconcile: {contract.title} has no message id in a header: remove app_id, for Svix")
        return SvixLister(settings, token, contract.id.name.decode("latin-1"))
    if contract.name == "svix":
        return SvixLister(settings, token)
    ready = _READY.get(contract.name)
    return None if ready is None else ready(settings, token)
