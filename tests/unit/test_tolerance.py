"""The window for the signed time, at both its edges, for every contract that signs one."""

from __future__ import annotations

import time

import pytest

from hookledger.errors import Rejected
from hookledger.providers.catalogue import contracts, find
from hookledger.providers.contract import Contract
from hookledger.providers.schemes.times import AHEAD
from hookledger.providers.sign import sign
from hookledger.providers.words import facts
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.verify import verify
from tests.endpoints import configure
from tests.providers.made import FIRST, endpoint_of, sent
from tests.unit.test_app import BODY, SECRET, intake, post, whole

NOW = 1_763_000_000.0
TIMED = {name: contract for name, contract in contracts().items() if contract.scheme.tolerance is not None}


def verdict(where: Endpoint, name: str, offset: float) -> str | None:
    """Of a request that was signed so many seconds before now, or after."""
    try:
        verify(where, sent(FIRST[name], NOW + offset), NOW)
    except Rejected as refusal:
        return refusal.reason
    return None


@pytest.mark.parametrize("name", sorted(TIMED))
def test_the_window_of_every_contract(name: str) -> None:
    where = endpoint_of(FIRST[name])
    back = where.tolerance
    assert back is not None
    ahead = min(back, 300)
    offsets = {-back - 2: "timestamp_stale", -back: None, 0.0: None, ahead: None, ahead + 2: "timestamp_future"}
    assert {offset: verdict(where, name, offset) for offset in offsets} == offsets


@pytest.mark.parametrize("name", sorted(TIMED))
def test_a_window_is_narrow_only_where_each_attempt_is_signed_again(name: str) -> None:
    contract = TIMED[name]
    retries = contract.retries
    assert retries.why, "how that is known"
    if retries.signs_each_attempt == "yes":
        return
    assert retries.hours is not None
    assert contract.scheme.tolerance is not None
    assert contract.scheme.tolerance >= retries.hours * 3600 + 240, "the last retry would be refused"


def test_what_is_undocumented_counts_as_not_signed_again() -> None:
    grades = {name: contract.retries.signs_each_attempt for name, contract in TIMED.items()}
    assert {name for name, anew in grades.items() if anew == "no"} == {"aws_sns", "linear", "mailgun"}
    unknown = {name for name, anew in grades.items() if anew == "unknown"}
    assert {"slack_events", "hubspot", "openai", "bigcommerce", "anthropic"} <= unknown
    assert {"stripe", "svix", "standard_webhooks"} <= {name for name, anew in grades.items() if anew == "yes"}


@pytest.mark.parametrize(("name", "late"), [("slack_events", 360), ("hubspot", 86400), ("linear", 25200)])
def test_the_last_retry_is_not_refused(name: str, late: float) -> None:
    assert verdict(endpoint_of(FIRST[name]), name, -late) is None


@pytest.mark.parametrize(("tolerance", "ahead"), [(60, 60), (300, 300), (90_000, 300)])
def test_a_source_changes_how_far_back_it_reaches(tolerance: float, ahead: float) -> None:
    example = FIRST["stripe"]
    where = configure("stripe", find("stripe"), [example.secret], tolerance=tolerance)
    offsets = {-tolerance - 1: "timestamp_stale", -tolerance: None, ahead: None, ahead + 1: "timestamp_future"}
    assert {offset: verdict(where, "stripe", offset) for offset in offsets} == offsets


def shown(contract: Contract) -> dict[str, str]:
    return {fact.name: fact.value for fact in facts(contract)}


def test_each_contract_says_which_it_is_and_why() -> None:
    assert shown(find("linear"))["signed time"] == "at most 7.2 h old, and 5 min ahead of the receiver"
    assert shown(find("linear"))["signs each attempt"].startswith("no: ")
    assert "unknown, which counts as no" in shown(find("slack_events"))["signs each attempt"]
    assert shown(find("stripe"))["signs each attempt"] == "yes; Stripe's documentation of replay attacks says so"
    assert "signs each attempt" not in shown(find("github"))


async def test_a_time_ahead_of_a_host_whose_clock_is_wrong_is_no_reason_to_refuse() -> None:
    ahead = sign(find("stripe"), SECRET, BODY, now=time.time() + AHEAD + 60)
    assert await post(intake(skew=lambda: 0.0), ahead, whole()) == (401, 1)
    assert await post(intake(skew=lambda: 120.0), ahead, whole()) == (503, 1)
