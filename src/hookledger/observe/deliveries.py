"""A line in the log for each delivery and each processed event. Off by default: it costs as much as the work itself.

`--log-deliveries` turns it on, and so does `logging.getLogger("hookledger.deliveries").setLevel("INFO")`.
"""

from __future__ import annotations

import logging

log = logging.getLogger("hookledger.deliveries")
log.setLevel(logging.WARNING)


def turn_on() -> None:
    log.setLevel(logging.INFO)


def wanted() -> bool:
    return log.isEnabledFor(logging.INFO)


def tell(words: str, *values: object) -> None:
    """What strangers sent is cut short."""
    log.info(words, *(value[:200] if isinstance(value, str) else value for value in values))
