"""How often a case is repeated: a few times by scripts/test, more by scripts/soak --short, many by scripts/soak.

A test that repeats has the mark `soak`, by which scripts/soak finds it. All in tests/crash and tests/attacks have it.
"""

import os

LEVEL = {"": 0, "short": 1, "long": 2}[os.environ.get("HOOKLEDGER_SOAK", "")]
ANY = LEVEL > 0
LONG = LEVEL == 2
"""Only here may a test ask for speed: the machine is otherwise shared with other tests."""


def amount(once: int, short: int, long: int) -> int:
    """The one of this run."""
    return (once, short, long)[LEVEL]
