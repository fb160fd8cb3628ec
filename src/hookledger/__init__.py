"""A webhook inbox for Python: each authentic event accepted once, its handler's writes committed with its outcome."""

from .answer import Answer
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
    FetchFailed,
    ForgottenAwait,
    GuardBusy,
    HandlerCommitted,
    HookledgerError,
    ListingFailed,
    NeedsDecision,
    NotGuarded,
    NoTicket,
    NoTransaction,
    Permanent,
    Refused,
    Retry,
    Review,
    SchemaBreak,
    Skip,
    TransactionIdle,
    TransactionTooLong,
    Unavailable,
    UnknownOutcome,
    Wait,
)
from .idempotency.guard import Idempotent, current_event
from .inbox import Inbox
from .operate.alerts.words import Alert
from .providers.fetching.settings import CurrentSettings
from .providers.listing.base import Changed, Content, Listed, ReconcileSettings
from .receive.secrets import SecretSettings
from .retry import RetryPolicy
from .source import Source
from .states import State
from .store.ops.reviews import Approval
from .store.protocol import Statements
from .work.event import Event, SyncEvent
from .work.statements import SyncStatements

__version__ = "0.1.0"

__all__ = [
    "Alert",
    "Answer",
    "Approval",
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
    "CurrentSettings",
    "Effect",
    "EffectBusy",
    "Event",
    "FetchFailed",
    "ForgottenAwait",
    "GuardBusy",
    "HandlerCommitted",
    "Happened",
    "HookledgerError",
    "Idempotent",
    "Inbox",
    "Listed",
    "ListingFailed",
    "NeedsDecision",
    "NoTicket",
    "NoTransaction",
    "NotGuarded",
    "Op",
    "Permanent",
    "ReconcileSettings",
    "Refused",
    "Retry",
    "RetryPolicy",
    "Review",
    "SchemaBreak",
    "Seconds",
    "SecretSettings",
    "Skip",
    "Source",
    "State",
    "Statements",
    "SyncEvent",
    "SyncStatements",
    "TransactionIdle",
    "TransactionTooLong",
    "Unavailable",
    "UnknownOutcome",
    "Wait",
    "current_event",
    "write_file",
]
