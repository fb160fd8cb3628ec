"""Sources take turns: how a claim's room is shared, what starts next, and which handlers a dedicated worker has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookledger.errors import ConfigError
from hookledger.ids import new_id
from hookledger.model import REPAIR, Claimed, Kind, covers
from hookledger.work.route import Handler, Routes
from hookledger.work.slots import Limited, Slots
from hookledger.work.turns import KINDS, Asked, Due, Flow, Hand


class Pool:
    """A library with so many connections."""

    plain = False

    def __init__(self, size: int | None) -> None:
        self.size = size

    def adapter(self) -> Any:
        raise NotImplementedError


def event(source: str, kind: str = "t", key: str = "") -> Claimed:
    given: dict[str, Any] = dict.fromkeys(Claimed.__struct_fields__)
    return Claimed(**given | {"id": new_id(), "source": source, "type": kind, "key": key, "version": ""})


def flow(source: str, library: Any = None, batch: int = 1) -> Flow:
    return Flow(source, library, batch)


class Backlog:
    """A store that has so many events due, and what a worker knows of it."""

    def __init__(self, weights: Mapping[str, int], waiting: Mapping[Kind, int], batches: Mapping[str, int]) -> None:
        self.due = Due(weights)
        self.waiting = Counter(dict(waiting))
        self.batches = batches
        self.got: Counter[str] = Counter()

    def look(self) -> None:
        flows: dict[Flow, list[Kind]] = {}
        for kind, count in self.waiting.items():
            if count:
                flows.setdefault(self._flow(kind), []).append(kind)
        self.due.found(flows)

    def _flow(self, kind: Kind) -> Flow:
        return flow(kind.source, batch=self.batches.get(kind.source, 1))

    def claim(self, room: int, limits: Mapping[Limited, int] = {}) -> Counter[str]:
        """Events by source."""
        asked = self.due.ask(room, limits)
        claimed = [one for each in asked for one in self._take(each)]
        self.due.took(asked, claimed)
        got = Counter(one.source for one in claimed)
        self.got += got
        return got

    def _take(self, asked: Asked) -> list[Claimed]:
        """Of the kind with the most left, as if all had come at the same rate."""
        taken: list[Claimed] = []
        while len(taken) < asked.share.limit and (kind := max(asked.share.kinds, key=self.waiting.__getitem__)):
            if not self.waiting[kind]:
                break
            self.waiting[kind] -= 1
            taken.append(event(kind.source, kind.type))
        return taken


def backlog(weights: Mapping[str, int] | None = None, /, **waiting: int) -> Backlog:
    made = Backlog(weights or {}, {Kind(source, "t"): count for source, count in waiting.items()}, {})
    made.look()
    return made


def runs(asked: Sequence[Asked]) -> int:
    return sum(one.flow.runs(one.share.limit) for one in asked)


# ── sharing ──────────────────────────────────────────────────────────────────


def test_equal_shares() -> None:
    assert backlog(a=1000, b=1000, c=1000).claim(30) == {"a": 10, "b": 10, "c": 10}


def test_shares_by_weight() -> None:
    inbox = backlog({"a": 3}, a=1000, b=1000)
    assert inbox.claim(40) == {"a": 30, "b": 10}
    assert sum((inbox.claim(1) for _ in range(40)), Counter()) == {"a": 30, "b": 10}


def test_what_one_does_not_need_goes_to_the_others_in_the_next_claim() -> None:
    inbox = backlog(a=1000, b=1)
    assert inbox.claim(20) == {"a": 10, "b": 1}
    assert inbox.claim(9) == {"a": 9}, "without another look"


def test_all_room_is_for_the_only_source() -> None:
    assert backlog(a=1000).claim(80) == {"a": 80}


def test_a_source_that_had_nothing_due_is_next() -> None:
    """However small its weight is, and however little room there is."""
    inbox = backlog({"a": 100}, a=10_000)
    for _ in range(50):
        inbox.claim(7)
    inbox.waiting[Kind("b", "t")] = 1
    inbox.look()
    assert inbox.claim(1) == {"b": 1}


def test_coming_and_going_saves_no_turns() -> None:
    """A source that was away while the others were served is level with them, not ahead."""
    inbox = backlog(a=10_000, b=1)
    for _ in range(50):
        inbox.claim(10)
    inbox.waiting[Kind("b", "t")] = 1000
    inbox.look()
    assert inbox.claim(20) == {"a": 10, "b": 10}


def test_a_source_that_its_limit_stops_saves_no_turns() -> None:
    """As while a library rests: later it must not keep the others waiting until it has caught up."""
    inbox = backlog(a=10_000, b=10_000)
    for _ in range(50):
        assert inbox.claim(10, {"b": 0}) == {"a": 10}
    assert inbox.claim(20) == {"a": 10, "b": 10}


def test_room_of_a_limited_source_goes_to_the_others_in_the_same_claim() -> None:
    assert backlog(a=1000, b=1000).claim(40, {"b": 3}) == {"a": 37, "b": 3}
    assert backlog(a=1000, b=1000).claim(40, {"a": 0, "b": 3}) == {"b": 3}
    assert backlog(a=1000).claim(40, {"a": -2}) == {}


def test_a_librarys_limit_is_for_all_its_sources_together() -> None:
    pool = Pool(2)
    due = Due({})
    due.found({flow(name, pool): [Kind(name, "t")] for name in "abc"} | {flow("d"): [Kind("d", "t")]})
    asked = due.ask(40, {pool: 6})
    assert {one.flow.source: one.share.limit for one in asked} == {"a": 2, "b": 2, "c": 2, "d": 34}


def test_flows_of_one_source_share_its_turns() -> None:
    """A source with plain and async handlers, and some that take several, gets no more than one with one handler."""
    due = Due({})
    mine = {
        flow("a"): [Kind("a", "t1")],
        flow("a", Pool(9)): [Kind("a", "t2")],
        flow("a", None, 5): [Kind("a", "t3")],
    }
    due.found(mine | {flow("b"): [Kind("b", "t")]})
    limits = {one.flow: one.share.limit for one in due.ask(12, {})}
    assert [limits[one] for one in mine] == [2, 2, 10]
    assert limits[flow("b")] == 6


def test_a_batch_is_one_turn() -> None:
    made = Backlog({}, {Kind("a", "t"): 10_000, Kind("b", "t"): 10_000}, {"a": 50})
    made.look()
    assert made.claim(20) == {"a": 500, "b": 10}
    assert made.claim(1) + made.claim(1) == {"a": 50, "b": 1}


def test_a_source_with_many_types_keeps_none_out() -> None:
    """Neither another source nor its own types."""
    waiting = {Kind("a", f"t{n}"): 50 for n in range(1000)} | {Kind("b", "t"): 1}
    made = Backlog({}, waiting, {})
    made.look()
    assert made.claim(10)["b"] == 1
    for _ in range(1000):
        made.claim(10)
    assert {made.waiting[Kind("a", f"t{n}")] < 50 for n in range(1000)} == {True}, "without another look"


def test_a_share_names_few_kinds() -> None:
    due = Due({})
    kinds = [Kind("a", f"t{n}") for n in range(100)]
    due.found({flow("a"): kinds})
    [asked] = due.ask(3, {})
    assert asked.share.kinds == tuple(kinds[:3]), "three events cannot be of more kinds"
    [asked] = due.ask(80, {})
    assert asked.share.kinds == tuple(kinds[:KINDS])


def test_kinds_that_brought_less_are_not_asked_again() -> None:
    due = Due({})
    kinds = [Kind("a", f"t{n}") for n in range(20)]
    due.found({flow("a"): kinds})
    asked = due.ask(80, {})
    due.took(asked, [event("a", "t0")])
    [again] = due.ask(80, {})
    assert again.share.kinds == tuple(kinds[KINDS:])
    due.took([again], [])
    assert not due
    assert due.ask(80, {}) == []


SOURCES = "abcdef"
WEIGHTS = st.dictionaries(st.sampled_from(SOURCES), st.integers(1, 1000))
LIMITS = st.dictionaries(st.sampled_from(SOURCES), st.integers(-1, 30))


@given(
    weights=WEIGHTS,
    batches=st.dictionaries(st.sampled_from(SOURCES), st.integers(1, 50)),
    waiting=st.dictionaries(
        st.builds(Kind, st.sampled_from(SOURCES), st.sampled_from("tuvwxyz")), st.integers(0, 99)
    ),
    steps=st.lists(st.tuples(st.integers(0, 60), LIMITS, st.booleans()), max_size=30),
)
def test_totals_never_exceed_room_and_limits_and_no_room_is_left(
    weights: dict[str, int],
    batches: dict[str, int],
    waiting: dict[Kind, int],
    steps: list[tuple[int, dict[Limited, int], bool]],
) -> None:
    made = Backlog(weights, waiting, batches)
    for room, limits, looks in steps:
        if looks:
            made.look()
        due, asked = made.due.sources, made.due.ask(room, limits)
        assert runs(asked) <= room
        each = {one.flow.source: runs([one]) for one in asked}
        assert all(0 < number <= limits.get(source, room) for source, number in each.items())
        if any(source not in limits for source in due):
            assert runs(asked) == room
        else:
            assert runs(asked) == min(room, sum(max(0, limits[source]) for source in due))
        made.claim(room, limits)


@given(
    weights=WEIGHTS,
    rooms=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    newcomers=st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True),
)
def test_no_source_waits_more_than_one_claim_for_its_first_event(
    weights: dict[str, int], rooms: list[int], newcomers: list[str]
) -> None:
    made = Backlog(weights, {Kind(s, "t"): 10**6 for s in SOURCES if s not in newcomers}, {})
    made.look()
    for room in rooms:
        made.claim(room)
    made.waiting.update({Kind(source, "t"): 1 for source in newcomers})
    made.look()
    assert {source: made.claim(len(newcomers))[source] for source in newcomers[:1]} == {newcomers[0]: 1}


@given(rooms=st.lists(st.integers(6, 60), min_size=1, max_size=60))
def test_with_equal_weights_every_claim_has_something_of_each(rooms: list[int]) -> None:
    made = backlog(**dict.fromkeys(SOURCES, 10**6))
    for room in rooms:
        assert set(made.claim(room)) == set(SOURCES)


@given(weights=WEIGHTS, rooms=st.lists(st.integers(0, 60), max_size=100), looks=st.lists(st.booleans(), max_size=100))
def test_weights_are_kept_in_the_long_run(weights: dict[str, int], rooms: list[int], looks: list[bool]) -> None:
    """No source is ever more than one turn ahead of another, however the room comes."""
    made = backlog(weights, **dict.fromkeys(SOURCES, 10**6))
    for number, room in enumerate(rooms):
        if looks[number : number + 1] == [True]:
            made.look()
        made.claim(room)
        turns = {source: made.got[source] / weights.get(source, 1) for source in SOURCES}
        longest = {source: 1 / weights.get(source, 1) for source in SOURCES}
        assert all(turns[a] - turns[b] <= longest[a] + longest[b] + 1e-6 for a in SOURCES for b in SOURCES)


# ── the hand ─────────────────────────────────────────────────────────────────


def always(_: Flow) -> bool:
    return True


def started(hand: Hand, number: int) -> list[str]:
    found = []
    for _ in range(number):
        following = hand.next(always)
        assert following is not None
        found.append(following[1][0].source)
    return found


def test_an_event_does_not_wait_behind_those_of_another_source() -> None:
    hand = Hand(lambda kind: flow(kind.source))
    hand.add([event("a") for _ in range(80)])
    started(hand, 5)
    hand.add([event("b")])
    assert "b" in started(hand, 2)


def test_three_sources_take_turns() -> None:
    hand = Hand(lambda kind: flow(kind.source))
    hand.add([*(event("a") for _ in range(4)), *(event("b") for _ in range(2)), event("c")])
    assert started(hand, 7) == ["a", "b", "c", "a", "b", "a", "a"]
    assert not hand
    assert hand.next(always) is None


def test_the_order_within_a_source_is_that_of_the_claim() -> None:
    hand = Hand(lambda kind: flow(kind.source))
    hand.add([event("a", f"t{n % 3}", str(n)) for n in range(9)])
    found = [hand.next(always) for _ in range(9)]
    assert [one[1][0].key for one in found if one] == [str(n) for n in range(9)]


def test_what_a_limit_stops_lets_others_pass() -> None:
    hand = Hand(lambda kind: flow(kind.source, batch=1 if kind.type == "t" else 2))
    hand.add([event("a"), event("b"), event("a", "u")])
    stopped = flow("a")
    assert [one.type for _ in range(2) for one in hand.next(lambda f: f != stopped)[1]] == ["t", "u"]  # type: ignore[index]
    assert hand.next(lambda f: f != stopped) is None
    assert started(hand, 1) == ["a"]


def test_a_batch_has_one_kind_and_leaves_the_others_in_order() -> None:
    hand = Hand(lambda kind: flow(kind.source, batch=3))
    hand.add([event("a", kind, str(n)) for n, kind in enumerate("tuttutu")])
    found = [hand.next(always) for _ in range(3)]
    assert [[one.key for one in following[1]] for following in found if following] == [
        ["0", "2", "3"],
        ["1", "4", "6"],
        ["5"],
    ]


def test_runs_count_batches_by_source_and_library() -> None:
    pool = Pool(3)
    hand = Hand(lambda kind: flow(kind.source, pool if kind.type == "u" else None, 4 if kind.type == "u" else 1))
    hand.add([*(event("a", "u") for _ in range(9)), event("a"), event("b")])
    total, each = hand.runs()
    assert (total, each) == (5, {"a": 4, "b": 1, pool: 3, None: 2})


def test_remove_and_clear() -> None:
    hand = Hand(lambda kind: flow(kind.source))
    first, second, other = event("a"), event("a"), event("b")
    hand.add([first, second, other])
    assert hand.remove(other.id) == other
    assert hand.remove(other.id) is None
    assert list(hand) == [first, second]
    assert hand.clear() == [first, second]
    assert not hand


# ── limits ───────────────────────────────────────────────────────────────────


def test_a_source_and_a_library_limit_together() -> None:
    pool = Pool(3)
    slots = Slots(10, {"a": 2})
    assert (slots.free("a"), slots.free("b"), slots.free(pool), slots.free(None)) == (2, 10, 3, 10)
    slots.take("a", pool)
    slots.take("a", None)
    assert (slots.free("a"), slots.free(pool), slots.left) == (0, 2, 8)
    slots.release("a", pool)
    assert (slots.free("a"), slots.free(pool), slots.left) == (1, 3, 9)
    assert slots.room(4.0) == 49
    assert slots.limits(["a", "b", pool, None], 4.0) == {"a": 9, pool: 15}


def test_a_limit_beyond_the_concurrency_is_none() -> None:
    slots = Slots(4, {"a": 9})
    assert slots.limits(["a", Pool(9), Pool(None)], 4.0) == {}
    for _ in range(4):
        slots.take("a", None)
    assert slots.free("a") == 0


def test_nothing_is_claimed_for_a_library_that_rests() -> None:
    pool = Pool(None)
    slots = Slots(4, {})
    slots.rest(pool)
    assert (slots.limits([pool], 4.0), slots.free(pool)) == ({pool: 0}, 0)


# ── dedicated workers ────────────────────────────────────────────────────────

HANDLERS = {name: Handler(lambda event: None) for name in ("all", "invoices", "paid", "push", "repair")}


@pytest.fixture
def routes() -> Routes:
    made = Routes()
    made.add("stripe", "*", HANDLERS["all"])
    made.add("stripe", "invoice.*", HANDLERS["invoices"])
    made.add("stripe", "invoice.paid", HANDLERS["paid"])
    made.add("stripe", REPAIR, HANDLERS["repair"])
    made.add("github", "push", HANDLERS["push"])
    return made


@pytest.mark.parametrize(
    ("sources", "types", "handles"),
    [
        ([], [], {"stripe: *", "stripe: invoice.*", "stripe: invoice.paid", f"stripe: {REPAIR}", "github: push"}),
        (["github"], [], {"github: push"}),
        (["stripe"], [], {"stripe: *", "stripe: invoice.*", "stripe: invoice.paid", f"stripe: {REPAIR}"}),
        ([], ["push"], {"stripe: push", "github: push"}),
        (["stripe"], ["invoice.*"], {"stripe: invoice.*", "stripe: invoice.paid"}),
        (["stripe"], ["inv*"], {"stripe: inv*", "stripe: invoice.*", "stripe: invoice.paid"}),
        ([], ["invoice.paid", "invoice.voided"], {"stripe: invoice.paid", "stripe: invoice.voided"}),
        (["github", "stripe"], ["p*"], {"stripe: p*", "github: push"}),
        ([], [REPAIR], {f"stripe: {REPAIR}"}),
    ],
)
def test_a_dedicated_worker_registers_what_it_works_on(
    routes: Routes, sources: list[str], types: list[str], handles: set[str]
) -> None:
    assert {f"{one.source}: {one}" for one in routes.only(sources, types).handles()} == handles


def test_the_same_handler_runs_in_a_dedicated_worker(routes: Routes) -> None:
    kinds = [
        *(Kind("stripe", name) for name in ("invoice.paid", "invoice.made", "charge.made", "inv", "push", REPAIR)),
        *(Kind("github", name) for name in ("push", "pull")),
    ]
    for types in ([], ["invoice.*"], ["inv*"], ["invoice.paid"], ["push", "c*"], ["*"], [REPAIR]):
        only = routes.only(["stripe"], types)
        told = only.handles()
        for kind in kinds:
            handled = any(one.source == kind.source and _covers(one.type, kind) for one in told)
            assert only.find(kind) == (routes.find(kind) if handled else None), (types, kind)


def _covers(pattern: str, kind: Kind) -> bool:
    return covers(pattern, kind.type)


@pytest.mark.parametrize(
    ("sources", "types", "what"),
    [
        (["gitlab"], [], "source 'gitlab'"),
        (["stripe", "gitlab"], [], "source 'gitlab'"),
        (["github"], ["invoice.paid"], "source 'github'"),
        (["github"], ["push", "pull"], "type 'pull'"),
        (["stripe", "github"], ["invoice.*"], "source 'github'"),
    ],
)
def test_what_nothing_matches_is_an_error(routes: Routes, sources: list[str], types: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be dedicated to {what}: no handler matches; .*github: push, str"):
        routes.only(sources, types)


@pytest.mark.parametrize("pattern", ["", "a*b", "*a"])
def test_what_is_no_pattern_is_an_error(routes: Routes, pattern: str) -> None:
    with pytest.raises(ConfigError, match="is not an event type"):
        routes.only([], [pattern])
