"""When to try again, and when not."""

import random

import pytest

from hookledger import ConfigError, RetryPolicy, Seconds
from hookledger.model import Kind
from hookledger.work.route import Handler, Routes

POLICY = RetryPolicy(attempts=5, initial_delay=Seconds("2s"), max_delay=Seconds("10s"), max_age=Seconds("1h"))


def test_the_delay_doubles_up_to_the_longest() -> None:
    assert [POLICY.delay(attempt, chance=1.0) for attempt in range(1, 7)] == [2, 4, 8, 10, 10, 10]
    assert POLICY.delay(10_000, chance=1.0) == 10


def test_full_jitter_spreads_over_the_whole_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hookledger.retry.random", random)
    drawn = [POLICY.delay(3) for _ in range(2000)]
    assert 0 <= min(drawn) < 1
    assert 7 < max(drawn) <= 8
    assert POLICY.delay(3, chance=0.0) == 0


# proves R23
def test_attempts_and_age_are_bounded() -> None:
    assert POLICY.exhausted(4, 3599) is None
    assert "attempts" in (POLICY.exhausted(5, 0) or "")
    assert "older" in (POLICY.exhausted(1, 3600) or "")


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"initial_delay": Seconds(0)}, {"max_delay": Seconds("1s")}, {"max_age": Seconds(0)}]
)
def test_a_policy_that_cannot_work(wrong: dict[str, Seconds]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


def test_exact_beats_a_longer_pattern() -> None:
    routes = Routes()

    async def exact(event: object) -> None: ...
    async def pattern(event: object) -> None: ...

    routes.add("s", "invoice.paid", Handler(exact))
    routes.add("s", "invoice.paid*", Handler(pattern))
    found = [routes.find(Kind("s", kind)) for kind in ("invoice.paid", "invoice.paid_late", "invoice")]
    assert [handler and handler.name.rpartition(".")[2] for handler in found] == ["exact", "pattern", None]


def test_an_object_with_an_async_call_is_async() -> None:
    class Callable:
        async def __call__(self, event: object) -> None: ...

    assert not Handler(Callable()).plain
    assert Handler(lambda event: None).plain
