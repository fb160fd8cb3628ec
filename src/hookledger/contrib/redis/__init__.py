"""Run work once per key, and give duplicates its answer, with only Redis or Valkey.

    guard = Guard(Redis.from_url(URL), away="closed")

    async def order(lease: Lease) -> Answer:
        return Answer({"order": 17}, 201)

    outcome = await guard.run(order, caller=account, source="orders", key=key, fingerprint=body, repeat="safe")

A guard is less than the inbox: Redis can lose what it acknowledged, for example in a failover, and then the work runs
again. There is no ledger of effects, no evidence and no replay. docs/how-to/redis.md says what it promises.
"""

from .blocking import BlockingGuard, BlockingLease
from .errors import GuardError, GuardUnavailable, InFlight, KeyConflict, NotStored
from .guard import Guard
from .lease import Lease
from .operator import Status
from .outcome import Outcome

__all__ = [
    "BlockingGuard",
    "BlockingLease",
    "Guard",
    "GuardError",
    "GuardUnavailable",
    "InFlight",
    "KeyConflict",
    "Lease",
    "NotStored",
    "Outcome",
    "Status",
]
