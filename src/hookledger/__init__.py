"""A webhook inbox for Python: each authentic event accepted once, its handler's writes committed with its outcome."""

from .clock import Seconds
from .config import Config
from .errors import (
    ClaimLost,
    ConfigError,
    HandlerCommitted,
    HookledgerError,
    Permanent,
    Retry,
    Review,
    Skip,
    TransactionTooLong,
    Unavailable,
    Wait,
)
from .inbox import Inbox, Source
from .states import State
from .work.event import Event, SyncEvent
from .work.retry import RetryPolicy

__version__ = "0.1.0"

__all__ = [
    "ClaimLost",
    "Config",
    "ConfigError",
    "Event",
    "HandlerCommitted",
    "HookledgerError",
    "Inbox",
    "Permanent",
    "Retry",
    "RetryPolicy",
    "Review",
    "Seconds",
    "Skip",
    "Source",
    "State",
    "SyncEvent",
    "TransactionTooLong",
    "Unavailable",
    "Wait",
]
