"""How many unknown keys strangers may have us fetch.

Each contract has an account, and in it each client address. A key that has proved a request before costs nothing, and
a part is reserved for hosts whose keys have. An account that was overdrawn in the last minute draws lots, so that a
flood cannot take every turn where a proxy hides the addresses.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Callable

MINUTE = 60.0
BUDGET = 160
"""Fetches of unknown keys, a minute, for each contract."""
BUDGET_EACH = 40
"""The same, for each client address."""
FOR_STRANGERS = 0.75
"""The part of both that hosts may use whose keys have proved nothing yet."""
DRAWN = 0.75
"""The part of an account that lots are drawn for; the rest keeps a lucky minute from filling it."""
MAX_CLIENTS = 256
"""Client addresses that are remembered; the longest unheard of are forgotten."""

Chance = Callable[[], float]


class _Account:
    """What was asked for and granted in the last minute."""

    def __init__(self) -> None:
        self._granted: deque[float] = deque()
        self._asked = self._asked_before = 0
        self._since = float("-inf")

    def grants(self, now: float, limit: int, chance: Chance) -> bool:
        """Whether one more may be granted; it is counted as asked for."""
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
    """`provider` is a contract's name, so there are as many accounts of them as are configured."""

    def __init__(self, clock: Callable[[], float], chance: Chance | None = None) -> None:
        self._clock = clock
        self._chance = chance or random.SystemRandom().random
        self._providers: dict[str, _Account] = {}
        self._clients: OrderedDict[tuple[str, str], _Account] = OrderedDict()
        self._hosts: set[tuple[str, str]] = set()

    def trust(self, provider: str, host: str) -> None:
        """A key from there has proved a request: the reserved part is for this host, too."""
        self._hosts.add((provider, host))

    def spend(self, provider: str, host: str, client: str) -> bool:
        """Whether an unknown key may be fetched now."""
        now, part = self._clock(), 1.0 if (provider, host) in self._hosts else FOR_STRANGERS
        mine = self._client(provider, client)
        all_of_it = self._providers.setdefault(provider, _Account())
        # The client's own first: what is refused there must not crowd the others out.
        if not mine.grants(now, int(BUDGET_EACH * part), self._chance):
            return False
        if not all_of_it.grants(now, int(BUDGET * part), self._chance):
            return False
        mine.grant(now)
        all_of_it.grant(now)
        return True

    def _client(self, provider: str, client: str) -> _Account:
        account = self._clients.setdefault((provider, client), _Account())
        self._clients.move_to_end((provider, client))
        while len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return account
