"""Exit codes; scripts may rely on them."""

OK = 0
ERROR = 1
"""Internal error; the message says what."""
USAGE = 2
"""Wrong usage (click's own code)."""
CONFIG = 3
"""The configuration is wrong."""
UNAVAILABLE = 4
"""The database cannot be reached or written."""
SCHEMA = 5
"""The schema version does not fit this release: run `hookledger migrate`."""
NOT_FOUND = 6
"""No such event, delivery or rejected request."""
NOT_ALLOWED = 7
"""Not allowed in this state, or it changed; `rejections recheck`: no request would be accepted."""
STUCK = 10
"""`work`: a handler blocked the event loop beyond every timeout."""
UNEXPECTED_ANSWER = 8
"""`send`: the receiver gave an unexpected answer; `alerts test`: a target did not take the message."""
DEMO_FAILED = 9
"""`demo --exit`: something did not happen exactly once."""
PROBLEM = 11
"""`doctor`: there is a problem, or a warning with `--fail-on warn`. `schemas check`: an event breaks its schema."""
NOT_PROCESSED = 12
"""`replay --dry-run`: the event would not be processed or skipped, or that is not known: the dry run stopped."""
DIFFERENCES = 20
"""`reconcile`: an event was missing, failed, unknown or not importable; the report says what was done about it."""
PROVIDER = 21
"""`reconcile`: the provider's log could not be read to its end."""
