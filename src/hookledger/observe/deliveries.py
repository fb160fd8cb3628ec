"""Log each delivery and each processed event. Off by default: logging costs as much as the work itself.

Turn it on with `--log-deliveries` or `logging.getLogger("hookledger.deliveries").setLevel("INFO")`.
"""

from __future__ import annotations

import logging

log: logging.Logger = logging.getLogger("hookledger.deliveries")
log.setLevel(logging.WARNING)


def turn_on() -> None:
    log.setLevel(logging.INFO)


def wanted() -> bool:
    return log.isEnabledFor(logging.INFO)


def tell(message: str, *values: object) -> None:
    """Log a line; long values are cut, because senders choose them."""
    log.info(message, *(value[:200] if isinstance(value, str) else value for value in values))
