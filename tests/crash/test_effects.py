"""Every kind of effect with every policy, killed at every point, or its call ended badly in every way.

Each row of the matrix is one installation: its worker dies when every effect has come to the same point, another
takes over until only a person can go on, then a person decides by what the sink has, and all ends well. The
installations run beside one another, once; the tests then look at what the database and the sink's own count say.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from tests.crash.effects_app import BRIEF, EFFECTS, KINDS, MATRIX, TIMEOUT
from tests.crash.effects_run import Shop, Snapshot, event_key, shop_on, until
from tests.crash.processes import Process
from tests.services.postgres import Databases
from tests.services.sink import Way
from tests.soak import amount

KEY = "k1"
BUNDLE = "b1"

# How often the sink got and performed an effect when its worker died there.
POINTS: dict[str, dict[str, tuple[int, int]]] = {
    "before started": {"call": (0, 0), "later": (0, 0)},
    "after started": {"call": (0, 0), "later": (0, 0)},
    "during": {"call": (1, 1), "later": (1, 1)},
    "during, lost": {"call": (1, 0), "later": (1, 0)},
    "after call": {"call": (1, 1), "later": (1, 1)},
    "after done": {"call": (1, 1), "later": (1, 1)},
    "before outcome": {"later": (0, 0)},  # for a call, "after done" is just that
    "after outcome": {"call": (1, 1), "later": (0, 0)},
}
IN_DOUBT = ("after started", "during", "during, lost", "after call")
LEFT_BEHIND = {
    ("before started", "call"): None,
    ("before started", "later"): "planned",
    ("before outcome", "later"): None,
    ("after done", "call"): "done",
    ("after done", "later"): "done",
    ("after outcome", "call"): "done",
    ("after outcome", "later"): "planned",
} | {(point, kind): "started" for point in IN_DOUBT for kind in KINDS}

# A call that ended badly while its worker lives on: what the sink does with the first one.
MODES: dict[str, Way | None] = {
    "timeout": "perform and hang",
    "timeout, lost": "hang",
    "reset": "perform and reset",
    "reset, lost": "reset",
    "error": "perform and fail",
    "error, lost": "fail",
    "busy": "busy",
    "refused": None,  # nobody listens
    "rejected": "reject",
}
UNKNOWN_MODES = [mode for mode in MODES if mode.split(",")[0] in ("timeout", "reset", "error")]


@dataclass
class Expected:
    """Requests and performances, before a person decides and at the end."""

    person: bool
    before: tuple[int, int]
    after: tuple[int, int]


def expected(policy: str, sent: int, happened: int, *, past_window: bool) -> Expected:
    """After an unknown outcome, when the sink had got so many requests and performed so many."""
    once_more = (sent, 1) if happened else (sent + 1, 1)
    match policy:
        case "safe" | "accept":
            repeated = (sent + 1, happened + 1)
            return Expected(False, repeated, repeated)
        case "keyed" | "brief" if policy == "keyed" or not past_window:
            return Expected(False, (sent + 1, 1), (sent + 1, 1))
        case "checked" | "ensure":
            return Expected(False, once_more, once_more)
    return Expected(True, (sent, happened), once_more)


@dataclass
class Run:
    shop: Shop
    left: Snapshot
    """What the dead worker left."""
    stopped: Snapshot
    """When nothing goes on by itself."""
    final: Snapshot
    log: str


# ── running ──────────────────────────────────────────────────────────────────


def run_point(point: str, shop: Shop) -> Run:
    if point == "before outcome":
        events, all_of_it = [("bundle", BUNDLE)], ["bundle"]
    else:
        events = [(f"{kind}.{policy}", KEY) for kind in KINDS for policy in MATRIX]
        all_of_it = list(EFFECTS)
    if point in ("before started", "after outcome"):
        events.append(("once", KEY))
        all_of_it.append("once")
    shop.deliver(*events)
    if point == "after outcome":
        shop.crash_at(point, ["nobody"])
        worker = shop.work()
        until(lambda: shop.database.states() == {"processed": len(events)}, "every outcome is committed")
        shop.crash_at("", [])
        worker.kill()
    elif point.startswith("during"):
        for effect in EFFECTS:
            shop.sink.will(effect, KEY, "hang" if "lost" in point else "perform and hang")
        worker = shop.work()
        until(lambda: len(shop.sink.requests) == len(EFFECTS), "the sink has them all", every=0.02)
        worker.kill()
    else:
        shop.crash_at(point, all_of_it)
        worker = shop.work()
        assert worker.exit_code() == -9, worker.log[-3000:]
    left = Snapshot(shop)
    return go_on(shop, left)


def run_modes(shop: Shop) -> Run:
    for effect in EFFECTS:
        for mode, way in MODES.items():
            if way is not None:
                shop.sink.will(effect, mode, way)
    shop.deliver(*((f"{kind}.{policy}", mode) for mode in MODES for kind in KINDS for policy in MATRIX))
    return go_on(shop, Snapshot(shop))


def run_any_moment(shop: Shop) -> Run:
    """Killed again and again, shortly after the sink has heard of the worker; in scripts/soak many times."""
    rounds = int(os.environ.get("HOOKLEDGER_SOAK_ROUNDS") or amount(1, 5, 50))
    chance = random.Random(seed := int(os.environ.get("HOOKLEDGER_SEED", time.time_ns())))
    for number in range(rounds):
        shop.deliver(*((f"{kind}.{policy}", f"r{number}") for kind in KINDS for policy in MATRIX))
        worker, seen = shop.work(), len(shop.sink.requests)
        until(lambda: len(shop.sink.requests) > seen, "the worker is at it", every=0.002)  # noqa: B023
        time.sleep(chance.random() * 0.1)
        worker.kill()
    try:
        return go_on(shop, Snapshot(shop))
    except BaseException as error:
        raise AssertionError(f"HOOKLEDGER_SEED={seed}") from error


def go_on(shop: Shop, left: Snapshot) -> Run:
    """Another worker, until only a person can go on; a person, until all is over."""
    worker = shop.work()
    stopped = shop.settle(worker)
    decide(shop, stopped)
    final = shop.settle(worker)
    stop(worker)
    return Run(shop, left, stopped, final, worker.log)


def decide(shop: Shop, stopped: Snapshot) -> None:
    """By what the sink has: a person looks there."""
    owners = {row["id"]: key for key, row in stopped.events.items()}
    for (effect, key), row in stopped.effects.items():
        if row["state"] != "unknown":
            continue
        happened = stopped.performed(effect, key) > 0
        result = f"{effect} {key} no. 1" if happened else None
        decision = "happened" if happened else "did_not_happen"
        shop.resolve(owners[row["event_id"]], f"{effect}:{key}", decision, result)  # type: ignore[arg-type]


def stop(worker: Process) -> None:
    worker.terminate()
    assert worker.exit_code() == 0, worker.log[-3000:]


Runs = dict[str, Future[Run]]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Every row of the matrix on one store, four installations at a time."""
    server: Databases | None = request.getfixturevalue("postgres") if request.param == "postgres" else None
    folder = tmp_path_factory.mktemp("effects")

    def run(number: int, work: Callable[[Shop], Run], concurrency: int) -> Run:
        # The lease leaves time for a heartbeat also while several processes start beside one another.
        with shop_on(server, folder / str(number), concurrency=concurrency, lease="3s") as shop:
            return work(shop)

    with ThreadPoolExecutor(4) as pool:
        found = {"modes": pool.submit(run, 0, run_modes, 24), "any moment": pool.submit(run, 1, run_any_moment, 8)}
        for number, point in enumerate(POINTS, 2):
            found[point] = pool.submit(run, number, partial(run_point, point), 8)
        yield found


# ── killed ───────────────────────────────────────────────────────────────────


# proves R28, R33
@pytest.mark.parametrize("policy", MATRIX)
@pytest.mark.parametrize(("point", "kind"), [(point, kind) for point, kinds in POINTS.items() for kind in kinds])
def test_killed(runs: Runs, point: str, kind: str, policy: str) -> None:
    run, effect = runs[point].result(), f"{kind}_{policy}"
    key = BUNDLE if point == "before outcome" else KEY
    owner = event_key("bundle" if point == "before outcome" else f"{kind}.{policy}", key)
    sent, happened = POINTS[point][kind]
    wanted = Expected(False, (1, 1), (1, 1))
    if point in IN_DOUBT:
        wanted = expected(policy, sent, happened, past_window=True)

    # The point was hit, and nothing is written that was not there yet.
    assert run.left.state(effect, key) == LEFT_BEHIND[point, kind]
    assert (len(run.left.received(effect, key)), run.left.performed(effect, key)) == (sent, happened)
    committed = (kind == "later" and point != "before outcome") or point == "after outcome"
    assert run.left.events[owner]["state"] == ("processed" if committed else "processing")
    assert run.left.business[effect, key] == (1 if committed else 0)

    check(run, kind, effect, key, owner, wanted)
    calls = run.final.outcomes(effect, key)
    if point in IN_DOUBT:
        assert calls[0] is None, "nobody lived to tell"
        again = wanted.after[0] - sent
        assert calls[1:] == ["done"] * again
        loudly = f"effect {effect} '{key}' may happen twice" in run.log
        assert loudly == (policy == "accept")
    else:
        assert calls == ["done"]


@pytest.mark.parametrize("point", ["before started", "before outcome", "after outcome"])
def test_once_killed(runs: Runs, point: str) -> None:
    run = runs[point].result()
    key = BUNDLE if point == "before outcome" else KEY
    after = point == "after outcome"
    assert run.left.state("credit", key) == ("done" if after else None)
    assert run.left.business["once", key] == (1 if after else 0)
    assert run.final.state("credit", key) == "done"
    assert run.final.business["once", key] == 1


# ── alive ────────────────────────────────────────────────────────────────────


# proves R31, R32
@pytest.mark.parametrize("policy", MATRIX)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", UNKNOWN_MODES)
def test_unknown_outcome_follows_policy(runs: Runs, mode: str, kind: str, policy: str) -> None:
    run, effect = runs["modes"].result(), f"{kind}_{policy}"
    happened = 0 if "lost" in mode else 1
    wanted = expected(policy, 1, happened, past_window=mode.startswith("timeout"))
    if policy == "brief" and not wanted.person:
        first, *again = run.stopped.received(effect, mode)
        if again:  # not when it had to wait for too long, on a busy machine
            assert again[0].at - first.at < BRIEF - TIMEOUT + 0.5
        else:
            wanted = expected(policy, 1, happened, past_window=True)
    check(run, kind, effect, mode, event_key(f"{kind}.{policy}", mode), wanted)
    calls = run.final.outcomes(effect, mode)
    assert calls == ["unknown", *["done"] * (wanted.after[0] - 1)], run.final.calls[effect, mode]


@pytest.mark.parametrize("policy", MATRIX)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["busy", "refused"])
def test_not_sent_or_refused_is_tried_again(runs: Runs, mode: str, kind: str, policy: str) -> None:
    run, effect = runs["modes"].result(), f"{kind}_{policy}"
    requests = (2 if mode == "busy" else 1, 1)
    check(run, kind, effect, mode, event_key(f"{kind}.{policy}", mode), Expected(False, requests, requests))
    assert run.final.outcomes(effect, mode) == ["refused", "done"], run.final.calls[effect, mode]


@pytest.mark.parametrize("policy", MATRIX)
@pytest.mark.parametrize("kind", KINDS)
def test_rejected_for_good(runs: Runs, kind: str, policy: str) -> None:
    run, effect = runs["modes"].result(), f"{kind}_{policy}"
    event = run.final.events[event_key(f"{kind}.{policy}", "rejected")]
    assert run.final.state(effect, "rejected") == "failed"
    assert run.final.outcomes(effect, "rejected") == ["refused"]
    assert [r.answered for r in run.final.received(effect, "rejected")] == [422]
    assert (event["state"], bool(event["attention"])) == (
        ("failed", False) if kind == "call" else ("processed", True)
    )
    assert run.final.business[effect, "rejected"] == (0 if kind == "call" else 1)


# ── for every run ────────────────────────────────────────────────────────────


def check(run: Run, kind: str, effect: str, key: str, owner: str, wanted: Expected) -> None:
    for snapshot, (requests, performed) in ((run.stopped, wanted.before), (run.final, wanted.after)):
        got = snapshot.received(effect, key)
        assert (len(got), snapshot.performed(effect, key)) == (requests, performed)
        assert len({request.operation for request in got}) <= 1, "repeated under another key"
    stopped, final = run.stopped.events[owner], run.final.events[owner]
    if wanted.person:
        assert run.stopped.state(effect, key) == "unknown"
        assert stopped["state"] == ("needs_review" if kind == "call" else "processed")
        assert stopped["attention"]
    assert run.final.state(effect, key) == "done"
    assert (final["state"], bool(final["attention"])) == ("processed", False)
    assert run.final.business[effect, key] == 1
    if kind == "call":
        assert run.final.results[effect, key] == f"{effect} {key} no. {wanted.after[1]}"


# proves R30
@pytest.mark.parametrize("row", ["modes", *POINTS])
def test_one_key_for_each_effect(runs: Runs, row: str) -> None:
    requests = runs[row].result().final.requests
    operations, effects = {r.operation for r in requests}, {(r.effect, r.key) for r in requests}
    assert len({(r.operation, r.effect, r.key) for r in requests}) == len(operations) == len(effects) > 0


# ── at any moment ────────────────────────────────────────────────────────────


# proves R29
def test_killed_at_any_moment(runs: Runs) -> None:
    run = runs["any moment"].result()
    assert len(run.final.effects) == len(run.final.events) > 0
    for (effect, key), row in run.final.effects.items():
        got, policy = run.final.received(effect, key), effect.split("_")[1]
        assert row["state"] == "done", row
        assert len({request.operation for request in got}) == 1
        if policy not in ("safe", "accept"):
            assert run.final.performed(effect, key) == 1, (effect, key, run.final.outcomes(effect, key))
        if policy == "never" and run.stopped.state(effect, key) == "unknown":
            assert len(run.stopped.received(effect, key)) <= 1
    assert set(run.final.business.values()) == {1}
    states = {(row["state"], bool(row["attention"])) for row in run.final.events.values()}
    assert states == {("processed", False)}
