"""What strangers may have us fetch: accounts of contracts and clients, a reserve, and lots in a flood."""

from __future__ import annotations

import random

from hookledger.receive.key_budget import BUDGET, BUDGET_EACH, FOR_STRANGERS, KeyBudget

HOST = "api.paypal.com"
STRANGERS_EACH = int(BUDGET_EACH * FOR_STRANGERS)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def spent(budget: KeyBudget, times: int, provider: str = "paypal", host: str = HOST, client: str = "a") -> int:
    return sum(budget.spend(provider, host, client) for _ in range(times))


def test_a_flood_from_one_address_leaves_the_others_alone() -> None:
    clock = Time()
    budget = KeyBudget(clock)
    for _ in range(5 * 60):
        spent(budget, 100, client="flood")
        clock.now += 1
        assert budget.spend("paypal", HOST, f"paypal {clock.now // 20}")


def test_each_contract_has_its_accounts() -> None:
    budget = KeyBudget(Time())
    assert sum(spent(budget, 50, client=f"{n}") for n in range(20)) == int(BUDGET * FOR_STRANGERS)
    for provider in ("aws_sns", "plaid"):
        assert budget.spend(provider, "some.host", "a")


def test_a_part_is_reserved_for_hosts_that_worked() -> None:
    budget = KeyBudget(Time())
    budget.trust("aws_sns", "sns.eu-west-1.amazonaws.com")
    for n in range(20):
        spent(budget, 50, "aws_sns", f"sns.us-east-{n}.amazonaws.com", f"{n}")
    assert not budget.spend("aws_sns", "sns.us-east-1.amazonaws.com", "new")
    assert spent(budget, 100, "aws_sns", "sns.eu-west-1.amazonaws.com", "new") == BUDGET - int(BUDGET * FOR_STRANGERS)


def test_where_a_proxy_hides_addresses_a_flood_cannot_take_every_turn() -> None:
    """41 forged requests a minute from what looks like the provider's own address: the real one gets a turn among its
    first tries, instead of never."""
    clock, turns = Time(), random.Random(13)
    budget = KeyBudget(clock, turns.random)
    granted = []
    for _ in range(30):
        for second in range(60):
            clock.now += 1
            if second < 41:
                budget.spend("paypal", HOST, "proxy")
            if second == 50:
                granted.append(budget.spend("paypal", HOST, "proxy"))
    assert not granted[0]  # the first minute is the flood's
    assert any(granted[1:10])
    assert sum(granted) > 10


def test_lots_keep_within_the_budget() -> None:
    clock = Time()
    budget = KeyBudget(clock, random.Random(13).random)
    for _ in range(10):
        assert spent(budget, 5000) <= STRANGERS_EACH
        clock.now += 60


def test_a_flood_that_is_over_is_forgotten() -> None:
    clock = Time()
    budget = KeyBudget(clock, lambda: 1.0)
    spent(budget, 1000)
    clock.now += 60
    assert spent(budget, 1) == 0
    clock.now += 120
    assert spent(budget, STRANGERS_EACH + 5) == STRANGERS_EACH
