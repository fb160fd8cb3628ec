"""The application of the crash tests, whose workers check in many small steps: one can be killed between two."""

from hookledger.operate.consistency import check
from tests.crash.app import inbox

__all__ = ["inbox"]

check.SIZES, check.SAVE = (20, 20), 0.0
