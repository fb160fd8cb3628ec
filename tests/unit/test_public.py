"""The public surface is a list."""

import apsw
import pytest

import hookledger
from hookledger.errors import ConfigError
from hookledger.store.sqlite.connection import check_version


def test_the_list() -> None:
    assert sorted(hookledger.__all__) == [
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
    assert all(hasattr(hookledger, name) for name in hookledger.__all__)


VERSIONS = [("3.51.2", False), ("3.45.0", False), ("3.51.3", True), ("4.0.0", True)]


@pytest.mark.parametrize(("version", "fits"), VERSIONS)
def test_an_sqlite_that_can_corrupt_its_database_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, fits: bool
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    if fits:
        check_version()
    else:
        with pytest.raises(ConfigError, match=r"3\.51\.3"):
            check_version()
