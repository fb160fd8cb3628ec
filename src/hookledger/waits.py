"""What handlers may say of a wait: how long, and for what. `clock.py` raises errors, and these are below errors."""

from __future__ import annotations


def delay(after: float) -> float:
    """Return a number of seconds; TypeError for anything else, or for more than a year."""
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not 0 <= after <= 366 * 86400:
        raise TypeError(f"after must be a number of seconds, at most a year, not {after!r}")
    return float(after)


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(given: float | str) -> float:
    """Return the seconds of a number, or of text such as `30s`, `15m`, `1h`, `2d`."""
    if not isinstance(given, str):
        return delay(given)
    try:
        return delay(float(given[:-1]) * _SECONDS[given[-1:]])
    except (KeyError, ValueError):
        raise TypeError(f"a duration is a number of seconds, or text such as 30s, 15m or 1h, not {given!r}") from None


def entity(given: object) -> str:
    """Return the entity as text; empty where a payload has none, which is no bug of the handler's."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return ""
    if isinstance(given, bool) or not isinstance(given, str | int):  # no event has such an entity
        raise TypeError(f"for_entity must be a text or a whole number, not {given!r}")
    return str(given)
