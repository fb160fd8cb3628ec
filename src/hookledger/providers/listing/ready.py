"""Which lister belongs to which contract."""

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
    """The ready-made lister of a provider; None where there is none, and the user gives one."""
    if settings.app_id is not None:  # whoever sends through Svix, under its headers or under the standard's
        if not isinstance(contract.id, Header):
            raise ConfigError(f"reconcile: {contract.title} has no message id in a header: app_id is Svix's")
        return SvixLister(settings, token, contract.id.name.decode("latin-1"))
    if contract.name == "svix":
        return SvixLister(settings, token)
    ready = _READY.get(contract.name)
    return None if ready is None else ready(settings, token)
