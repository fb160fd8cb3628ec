"""A worker stopped in the middle of calls, beyond every lease: how they ended is recorded when it goes on, nothing is
called twice that a person did not ask for, and what contradicts a decision is told.
"""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.crash.checker import Row
from tests.crash.effects_app import plain
from tests.crash.effects_run import Shop, Snapshot, event_key, shop_on, until
from tests.crash.processes import ROOT, process_state
from tests.crash.test_freeze import freeze_without_lock
from tests.services.postgres import Databases

NEVER = [("call", "never"), ("call", "stubborn"), ("later", "never"), ("later", "stubborn")]
"""Of each kind, one whose function is async and one that is plain; both declared `repeat="never"`."""
PATIENT = ("call", "patient")
"""Its time-out is longer than the freeze: only the event's lease runs out."""


def resolve_by_command(shop: Shop, event: str, effect: str) -> None:
    command = [sys.executable, "-m", "hookledger", "resolve", event, effect, "--did-not-happen"]
    command += ["--reason", "the customer says so", "--actor", "ada", "--database", shop.database.url]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)


def owner(kind: str, policy: str, key: str) -> str:
    return event_key(f"{kind}.{policy}", key)


def frozen_during_calls(shop: Shop) -> None:
    keys = ("alone", "decided")
    frozen_in = [(kind, policy, key) for kind, policy in NEVER for key in keys] + [(*PATIENT, "alone")]
    for kind, policy, key in frozen_in:
        shop.sink.will(f"{kind}_{policy}", key, "perform and hang")
    shop.deliver(*((f"{kind}.{policy}", key) for kind, policy, key in frozen_in))
    frozen = shop.work()
    until(lambda: len(shop.sink.requests) == len(frozen_in), "every call is on its way", every=0.02)
    freeze_without_lock(frozen, shop.database.url)

    # Another worker takes over: it repeats nothing, and asks for a person.
    second = shop.work()
    until(lambda: given_up(shop), "nobody believes in these calls any more")
    stopped = Snapshot(shop)
    assert len(stopped.requests) == len(frozen_in)
    for kind, policy in NEVER:
        for key in keys:
            event = stopped.events[owner(kind, policy, key)]
            assert event["state"] == ("needs_review" if kind == "call" else "processed")
            assert event["attention"]
    patient = stopped.events[owner(*PATIENT, "alone")]
    assert stopped.state("call_patient", "alone") == "started"
    assert (patient["crashes"], patient["attempts"]) == (1, 1), "waiting for a call under way costs no attempt"

    # A person is wrong about one of each two: it is called again, once.
    for kind, policy in NEVER:
        place = owner(kind, policy, "decided"), f"{kind}_{policy}"
        if kind == "call":
            resolve_by_command(shop, *place)
        else:
            shop.resolve(*place, "did_not_happen")
    until(lambda: all_decided_done(shop), "what was decided is done")
    decided = Snapshot(shop)
    for kind, policy in NEVER:
        assert len(decided.received(f"{kind}_{policy}", "decided")) == 2
        assert len(decided.received(f"{kind}_{policy}", "alone")) == 1
        assert not decided.events[owner(kind, policy, "decided")]["attention"]

    # The answers are there when it goes on.
    shop.sink.gate.set()
    frozen.thaw()
    until(lambda: all_told(shop), "how the first calls ended is recorded")
    shop.retry(owner(*PATIENT, "alone"))  # it would wait for as long as the call might have taken
    until(
        lambda: Snapshot(shop).events[owner(*PATIENT, "alone")]["state"] == "processed", "the rescued event is done"
    )
    final = Snapshot(shop)
    assert len(final.requests) == len(decided.requests)
    assert final.outcomes("call_patient", "alone") == ["done"]
    for kind, policy in NEVER:
        name = f"{kind}_{policy}"
        alone, twice = final.effects[name, "alone"], final.effects[name, "decided"]
        assert final.outcomes(name, "alone") == ["done"]
        assert (alone["state"], alone["alert"]) == ("done", None)
        assert not final.events[owner(kind, policy, "alone")]["attention"]
        assert final.outcomes(name, "decided") == ["done", "done"]
        assert_alert(twice, final.events[owner(kind, policy, "decided")])
        assert f"ALERT effect {bytes(twice['identity']).hex()[:12]}" in frozen.log, plain(kind, policy)

    # What waited for a person goes on by itself, with the result that came late.
    end = shop.settle(second)
    assert len(end.requests) == len(final.requests)
    for kind, policy in NEVER:
        assert end.business[f"{kind}_{policy}", "alone"] == end.business[f"{kind}_{policy}", "decided"] == 1
    assert {row["state"] for row in end.events.values()} == {"processed"}
    for worker in (frozen, second):
        worker.terminate()
        assert worker.exit_code() == 0


def frozen_just_before_calls(shop: Shop) -> None:
    names = [f"{kind}_{policy}" for kind, policy in NEVER]
    shop.crash_at("stopped when started", names)
    shop.deliver(*((f"{kind}.{policy}", "k1") for kind, policy in NEVER))
    frozen = shop.work()
    until(lambda: process_state(frozen.pid) == "T", "it has the right to call, and stops")

    # Nobody knows, a person finds out that nothing happened, and it is done.
    second = shop.work()
    stopped = shop.settle(second)
    assert [stopped.state(name, "k1") for name in names] == ["unknown"] * 4
    assert stopped.requests == []
    for kind, policy in NEVER:
        shop.resolve(owner(kind, policy, "k1"), f"{kind}_{policy}", "did_not_happen")
    done = shop.settle(second)
    assert [done.performed(name, "k1") for name in names] == [1] * 4

    # The right to call is an old one now.
    frozen.thaw()
    until(lambda: all_told(shop), "the first calls are accounted for")
    time.sleep(1.0)
    final = shop.settle(second)
    assert [len(final.received(name, "k1")) for name in names] == [1] * 4
    assert [final.outcomes(name, "k1")[-1] for name in names] == ["done"] * 4
    assert {final.calls[name, "k1"][0]["outcome"] for name in names} == {"refused"}
    assert {effect["alert"] for effect in final.effects.values()} == {None}
    assert {(row["state"], bool(row["attention"])) for row in final.events.values()} == {("processed", False)}
    assert set(final.business.values()) == {1}


def given_up(shop: Shop) -> bool:
    found = Snapshot(shop)
    unknown = all(
        found.state(f"{kind}_{policy}", key) == "unknown" for kind, policy in NEVER for key in ("alone", "decided")
    )
    reviewed = all(
        found.events[owner("call", policy, key)]["state"] == "needs_review"
        for _, policy in NEVER[:2]
        for key in ("alone", "decided")
    )
    return unknown and reviewed and found.events[owner(*PATIENT, "alone")]["snoozes"] > 0


def all_decided_done(shop: Shop) -> bool:
    found = Snapshot(shop)
    return all(
        found.state(f"{kind}_{policy}", "decided") == "done"
        and found.events[owner(kind, policy, "decided")]["state"] == "processed"
        for kind, policy in NEVER
    )


def all_told(shop: Shop) -> bool:
    return all(calls[0]["outcome"] is not None for calls in Snapshot(shop).calls.values())


def assert_alert(effect: Row, event: Row) -> None:
    assert effect["state"] == "done"
    assert "after it was decided that it had not happened" in effect["alert"]
    assert "may have been done twice" in effect["alert"]
    assert event["state"] == "processed"
    assert event["attention"]


# ── each on both stores, all four beside one another: they mostly wait ──

Runs = dict[tuple[str, Callable[[Shop], None]], Future[None]]


@pytest.fixture(scope="module")
def runs(postgres: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("frozen")

    def run(store: str, scenario: Callable[[Shop], None]) -> None:
        server = postgres if store == "postgres" else None
        with shop_on(server, folder / f"{store}-{scenario.__name__}", lease="2s") as shop:
            scenario(shop)

    with ThreadPoolExecutor(4) as pool:
        places = itertools.product(("sqlite", "postgres"), (frozen_during_calls, frozen_just_before_calls))
        yield {place: pool.submit(run, *place) for place in places}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_worker_frozen_during_calls(runs: Runs, store: str) -> None:
    runs[store, frozen_during_calls].result()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_worker_frozen_just_before_calls(runs: Runs, store: str) -> None:
    runs[store, frozen_just_before_calls].result()
