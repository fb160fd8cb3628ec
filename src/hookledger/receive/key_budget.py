"""Limit how many unknown keys unverified requests can make the receiver fetch.

Each contract has a budget, and each client address a part of it. A key that has verified a request before costs
nothing, and a part is reserved for hosts of such keys. A budget that was exceeded in the last minute grants fetches
at random, so that a flood cannot use all of it where a proxy hides the addresses.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable

MINUTE = 60.0
BUDGET = 160
"""Fetches of unknown keys per minute and contract."""
BUDGET_EACH = 40
"""Fetches of unknown keys per minute and client address."""
FOR_STRANGERS = 0.75
"""The part of both for hosts whose keys have verified nothing yet."""
DRAWN = 0.75
"""The part of a budget that is granted at random; the rest is a reserve against a run of luck."""
MAX_CLIENTS = 256
"""Client addresses that are remembered; the least recently seen is forgotten first."""

Chance = Callable[[], float]


class _Budget:
    """The requested and granted fetches of the last minute."""

    def __init__(self) -> None:
        self._granted: deque[float] = deque()
        self._asked = self._asked_before = 0
        self._since = float("-inf")

    def grants(self, now: float, limit: int, chance: Chance) -> bool:
        """Whether one more fetch may be granted; counts the request."""
        if now - self._since >= MINUTE:
            self._asked_before = self._asked if now - self._since < 2 * MINUTE else 0
            self._asked, self._since = 0, now
        self._asked += 1
        while self._granted and self._granted[0] <= now - MINUTE:
            self._granted.popleft()
        if len(self._granted) >= limit:
            return False
        return self._asked_before <= limit or chance() < DRAWN * limit / self._asked_before

    def grant(self, now: float) -> None:
        self._granted.append(now)


class KeyBudget:
    """The budgets of all contracts. `provider` is a contract's name, so their number is bounded."""

    def __init__(self, clock: Callable[[], float], chance: Chance | None = None) -> None:
        self._clock = clock
        self._chance = chance or random.SystemRandom().random
        self._providers: dict[str, _Budget] = {}
        self._clients: OrderedDict[tuple[str, str], _Budget] = OrderedDict()
        self._hosts: set[tuple[str, str]] = set()

    def trust(self, provider: str, host: str) -> None:
        """Let this host use the reserved part: a key from it has verified a request."""
        self._hosts.add((provider, host))

    def spend(self, provider: str, host: str, client: str) -> bool:
        """Whether an unknown key may be fetched now."""
        now, part = self._clock(), 1.0 if (provider, host) in self._hosts else FOR_STRANGERS
        mine = self._client(provider, client)
        all_of_it = self._providers.setdefault(provider, _Budget())
        # The client's own budget first: a client that exceeded it must not use up the common one.
        if not mine.grants(now, int(BUDGET_EACH * part), self._chance):
            return False
        if not all_of_it.grants(now, int(BUDGET * part), self._chance):
            return False
        mine.grant(now)
        all_of_it.grant(now)
        return True

    def _client(self, provider: str, client: str) -> _Budget:
        account = self._clients.setdefault((provider, client), _Budget())
        self._clients.move_to_end((provider, client))
        while len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return account
