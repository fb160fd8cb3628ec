"""A webhook inbox for Python: each authentic event accepted once, its handler's writes committed with its outcome."""

from .clock import Seconds
from .config import Config
from .effects.files import write_file
from .effects.model import Effect, Happened, Op
from .errors import (
    BadArguments,
    BadResult,
    CallInTransaction,
    ChangedArguments,
    ChangedVersion,
    CircuitOpen,
    ClaimLost,
    ConfigError,
    ContentGone,
    EffectBusy,
    ForgottenAwait,
    GuardBusy,
    HandlerCommitted,
    HookledgerError,
    ListingFailed,
    NeedsDecision,
    NoTransaction,
    Permanent,
    Refused,
    Retry,
    Review,
    Skip,
    TransactionIdle,
    TransactionTooLong,
    Unavailable,
    UnknownOutcome,
    Wait,
)
from .inbox import Inbox
from .providers.listing.base import Changed, Content, Listed, ReconcileSettings
from .receive.secrets import SecretSettings
from .retry import RetryPolicy
from .source import Source
from .states import State
from .work.event import Event, SyncEvent

__version__ = "0.1.0"

__all__ = [
    "BadArguments",
    "BadResult",
    "CallInTransaction",
    "Changed",
    "ChangedArguments",
    "ChangedVersion",
    "CircuitOpen",
    "ClaimLost",
    "Config",
    "ConfigError",
    "Content",
    "ContentGone",
    "Effect",
    "EffectBusy",
    "Event",
    "ForgottenAwait",
    "GuardBusy",
    "HandlerCommitted",
    "Happened",
    "HookledgerError",
    "Inbox",
    "Listed",
    "ListingFailed",
    "NeedsDecision",
    "NoTransaction",
    "Op",
    "Permanent",
    "ReconcileSettings",
    "Refused",
    "Retry",
    "RetryPolicy",
    "Review",
    "Seconds",
    "SecretSettings",
    "Skip",
    "Source",
    "State",
    "SyncEvent",
    "TransactionIdle",
    "TransactionTooLong",
    "Unavailable",
    "UnknownOutcome",
    "Wait",
    "write_file",
]
