"""No request costs more than a few readings of an ordinary body of its size, whatever is in it.

In CPU, not elapsed time, and as a ratio to what the standard library takes for ordinary JSON in the same run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from time import process_time

import pytest

from hookledger.errors import Rejected
from hookledger.providers.catalogue import contracts
from hookledger.providers.schemes.base import KeyNeeded
from tests.providers.costly import (
    MIB,
    NOW,
    authentic,
    bodies,
    bombs,
    cpu,
    forged,
    provider,
    signed,
    stranger,
    unproved,
    yardstick,
)
from tests.providers.made import FIRST, contract_of, sent

NAMES = sorted(contracts())

BEFORE = 4
"""Before the proof; measured: up to 1, and 20 to 150 while whole bodies were decoded."""
AFTER = 100
"""After it; measured: up to 30 alone and 65 on a busy machine, most of it Python's collector, for lists of empty
lists; 130 to 400 while numbers were decoded."""
SIGNED = MIB // 16
"""Bytes of a signed body: a MiB of each takes minutes, and is in `python -m benchmarks.strangers`."""
PER_EVENT = 128
"""Bytes that each event counts for besides: a request of 20 kB may hold 10,000."""


@pytest.fixture(autouse=True, scope="module")
def _only_our_own_garbage() -> Iterator[None]:
    """The collector would go over all that other tests have imported and left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", NAMES)
def test_no_request_costs_much_before_it_is_proved(name: str) -> None:
    example, contract = FIRST[name], contract_of(name)
    endpoint, most = stranger(example), BEFORE * yardstick(MIB)
    requests = [(label, forged(example, body, text)) for label, body, text in bodies(contract, MIB)]
    assert [label for label, request in requests if len(request.body) > contract.max_body] == []
    requests += bombs(endpoint, sent(example, NOW))
    costs = {label: cpu(partial(unproved, endpoint, given), most) for label, given in requests}
    assert {label: cost / yardstick(MIB) for label, cost in costs.items() if cost > most} == {}


@pytest.mark.parametrize("name", NAMES)
def test_no_authentic_request_costs_much(name: str) -> None:
    example, contract = FIRST[name], contract_of(name)
    endpoint, found, too_much = provider(example), 0, {}
    for label, body, text in bodies(contract, SIGNED):
        request = signed(example, body, text)
        if request is None:
            continue
        began = process_time()
        events = authentic(endpoint, request) or 0
        cost = process_time() - began
        most = AFTER * yardstick(SIGNED + PER_EVENT * round(events, -3))
        if cost > most and (cost := cpu(partial(authentic, endpoint, request), most)) > most:
            too_much[label] = cost / yardstick(SIGNED)
        found += events
    assert too_much == {}
    assert found > 0  # else only refusals were measured


def test_the_strangers_are_strangers() -> None:
    for name in NAMES:
        request = sent(FIRST[name], NOW)
        assert authentic(provider(FIRST[name]), request) == len(FIRST[name].expects)
        with pytest.raises((Rejected, KeyNeeded)):
            unproved(stranger(FIRST[name]), request, refuses=True)
