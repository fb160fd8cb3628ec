"""Both databases refuse the same impossible rows, whoever tries to write them."""

from __future__ import annotations

import pytest

from hookledger.errors import BadData
from hookledger.ids import new_id
from hookledger.states import (
    FINAL,
    AttemptOutcome,
    CallOutcome,
    CircuitState,
    DeliveryOutcome,
    EffectKind,
    EffectState,
    KeyOrigin,
    Repeat,
    State,
)
from hookledger.store.ops.job import Cause
from hookledger.store.protocol import Store
from tests.builders import Raw

NOW = "NOW"  # replaced by the dialect's own moment
ID = "ID"

EVENT = {
    "id": ID,
    "source": "'stripe'",
    "type": "'t'",
    "key": "'k'",
    "key_origin": "'signed_id'",
    "fingerprint": ID,
    "request_id": ID,
    "item": "0",
    "received_at": NOW,
    "run_started_at": NOW,
}
STATES: dict[State, dict[str, str]] = {
    State.PENDING: {"due_at": NOW},
    State.RETRYING: {"due_at": NOW},
    State.PROCESSING: {
        "leased_until": NOW,
        "claimed_at": NOW,
        "worker": "'w'",
        "claim": "1",
        "attempts": "1",
    },
    State.PROCESSED: {"finished_at": NOW, "first_processed_at": NOW},
    State.SKIPPED: {"finished_at": NOW, "reason": "'r'"},
    State.FAILED: {"finished_at": NOW, "reason": "'r'"},
    State.NEEDS_REVIEW: {"reason": "'r'"},
    State.DISCARDED: {"finished_at": NOW, "reason": "'r'"},
}
NULL = "NULL"
OPEN = (State.PENDING, State.PROCESSING, State.RETRYING)

IMPOSSIBLE: list[tuple[State, dict[str, str]]] = [
    # each state lacks what it demands …
    *((state, {name: NULL}) for state, needs in STATES.items() for name in needs),
    *((state, {"emptied_at": NOW}) for state in STATES if state not in FINAL),
    (State.PROCESSING, {"claim": "0"}),
    (State.PROCESSING, {"attempts": "0"}),
    # … or has what belongs to another
    *((s, {"due_at": NOW}) for s in State if s not in (State.PENDING, State.RETRYING)),
    *((s, {"leased_until": NOW}) for s in State if s is not State.PROCESSING),
    *((s, {"finished_at": NOW}) for s in State if "finished_at" not in STATES[s]),
    # values that mean nothing
    (State.NEEDS_REVIEW, {"state": "'unknown'"}),  # of which nothing else is demanded
    (State.NEEDS_REVIEW, {"state": "''"}),
    (State.PENDING, {"state": NULL}),
    (State.PENDING, {"key_origin": "'guessed'"}),
    (State.PENDING, {"attempts": "-1"}),
    (State.PENDING, {"snoozes": "-1"}),
    (State.PENDING, {"crashes": "-1"}),
    (State.PENDING, {"claim": "-1"}),
    (State.PENDING, {"run": "0"}),
    (State.PENDING, {"item": "-1"}),
    (State.PENDING, {"type": f"'{'x' * 256}'"}),
    (State.PENDING, {"key": f"'{'x' * 256}'"}),
    (State.PENDING, {"attention": NULL}),
    (State.FAILED, {"alert": "''"}),
    *((s, {"alert": "'look'"}) for s in (State.PROCESSED, State.SKIPPED, State.DISCARDED)),
    # a stage has an event, a name, and a source that ends in it
    (State.PENDING, {"parent": ID}),
    (State.PENDING, {"stage": "'s'"}),
    (State.PENDING, {"parent": ID, "stage": "'s'"}),
    *((State.PENDING, {"parent": ID, "stage": f"'{s}'", "source": f"'stripe/{s}'"}) for s in ("", "a b", "x" * 65)),
    # an approval holds for a run that was begun by it and is not over
    *((s, {"approval_id": ID, "run": "2"}) for s in State if s not in OPEN),
    *((s, {"approval_id": ID}) for s in OPEN),
    *((State.PENDING, {name: NULL}) for name in EVENT),
]


def insert(raw: Raw, table: str, values: dict[str, str]) -> str:
    literals = {NOW: raw.now, ID: raw.ident(new_id())}
    if table == "events":  # a digest, not an id
        values = (
            values | {"fingerprint": "x'00'" if raw.now.isdigit() else "'\\x00'::bytea"}
            if (values["fingerprint"] == ID)
            else values
        )
    shown = ", ".join(literals.get(value, value) for value in values.values())
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({shown})"


async def test_every_state_has_a_possible_row(store: Store, raw: Raw) -> None:
    for state, needs in STATES.items():
        await raw.run(insert(raw, "events", EVENT | {"state": f"'{state}'"} | needs))
    assert await store.counts() == dict.fromkeys(State, 1)
    for state in OPEN:
        approved = {"run": "2", "approval_id": ID}
        await raw.run(insert(raw, "events", EVENT | {"state": f"'{state}'"} | STATES[state] | approved))


async def test_impossible_events_are_refused(raw: Raw) -> None:
    accepted = []
    for state, wrong in IMPOSSIBLE:
        try:
            await raw.run(insert(raw, "events", EVENT | {"state": f"'{state}'"} | STATES[state] | wrong))
        except BadData:
            continue
        accepted.append((state, wrong))
    assert accepted == []


async def test_no_id_twice(raw: Raw) -> None:
    row = EVENT | {"state": "'pending'", "due_at": NOW, "id": raw.ident(new_id())}
    await raw.run(insert(raw, "events", row))
    with pytest.raises(BadData):
        await raw.run(insert(raw, "events", row))


DELIVERY = {
    "request_id": ID,
    "item": "0",
    "event_id": ID,
    "source": "'s'",
    "received_at": NOW,
    "outcome": "'accepted'",
    "fingerprint": "BYTES",
}
ATTEMPT = {
    "event_id": ID,
    "claim": "1",
    "run": "1",
    "started_at": NOW,
    "ended_at": NOW,
    "outcome": "'processed'",
}
ACTION = {
    "id": ID,
    "at": NOW,
    "name": "'retry'",
    "actor": "'ada'",
    "reason": "'why'",
    "event_id": ID,
    "from_state": "'failed'",
    "to_state": "'pending'",
}
OTHERS: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("deliveries", DELIVERY, {"outcome": "'lost'"}),
    ("deliveries", DELIVERY, {"item": "-1"}),
    *(("deliveries", DELIVERY, {name: NULL}) for name in DELIVERY),
    ("attempts", ATTEMPT, {"outcome": "'released'"}),
    *(("attempts", ATTEMPT, {name: NULL}) for name in ATTEMPT),
    ("actions", ACTION, {"actor": "''"}),
    ("actions", ACTION, {"reason": "''"}),
    *(("actions", ACTION, {name: NULL}) for name in ACTION),
    ("actions", ACTION, {"event_id": NULL, "subject": NULL}),
]


async def test_impossible_evidence_is_refused(raw: Raw) -> None:
    blob = "x'00'" if raw.now.isdigit() else "'\\x00'::bytea"

    def row(good: dict[str, str], wrong: dict[str, str]) -> dict[str, str]:
        return {name: blob if value == "BYTES" else value for name, value in (good | wrong).items()}

    for table, good in (("deliveries", DELIVERY), ("attempts", ATTEMPT), ("actions", ACTION)):
        await raw.run(insert(raw, table, row(good, {})))
    accepted = []
    for table, good, wrong in OTHERS:
        try:
            await raw.run(insert(raw, table, row(good, wrong)))
        except BadData:
            continue
        accepted.append((table, wrong))
    assert accepted == []


async def test_the_constraints_know_the_same_words_as_the_code(raw: Raw) -> None:
    """Every member of each enum fits its column; the lists above show that nothing else does."""
    blob = "x'00'" if raw.now.isdigit() else "'\\x00'::bytea"
    for outcome in DeliveryOutcome:
        row = DELIVERY | {"outcome": f"'{outcome}'", "fingerprint": blob}
        await raw.run(insert(raw, "deliveries", row))
    for tried in AttemptOutcome:
        await raw.run(insert(raw, "attempts", ATTEMPT | {"outcome": f"'{tried}'"}))
    for origin in KeyOrigin:
        row = EVENT | {"state": "'pending'", "due_at": NOW, "key_origin": f"'{origin}'"}
        await raw.run(insert(raw, "events", row))


# ── what did not plainly become an event ─────────────────────────────────────

REJECTION = {
    "id": ID,
    "source": "'s'",
    "reason": "'r'",
    "received_at": NOW,
    "method": "'POST'",
    "path": "'/'",
    "query": "BYTES",
    "headers": "BYTES",
    "body": "BYTES",
}
REJECTION_COUNT = {"source": "'d'", "reason": "'r'", "count": "1", "first_at": NOW, "last_at": NOW}
IDENTITY = {"identity": "DIGEST", "kind": "'key'", "source": "'s'", "event_id": ID, "fingerprint": "BYTES"}
MESSAGE = {
    **{"id": ID, "target": "'ops'", "kind": "'dead_letter'", "topic": "'t'", "window_at": NOW, "subject": "''"},
    **{"words": "''", "count": "1", "topics": "BYTES", "follows": "FALSE", "first_at": NOW, "last_at": NOW},
    **{"state": "'waiting'", "attempts": "0", "due_at": NOW},
}
NOT_WAITING = {"due_at": NULL, "attempts": "1"}
IMPOSSIBLE_CASES: list[tuple[str, dict[str, str], dict[str, str]]] = [
    *(("alert_messages", MESSAGE, {name: NULL}) for name in MESSAGE),
    ("alert_messages", MESSAGE, {"state": "'lost'"}),
    ("alert_messages", MESSAGE, {"count": "0"}),
    ("alert_messages", MESSAGE, {"first_at": "LATER"}),
    ("alert_messages", MESSAGE, {"leased_until": NOW}),
    ("alert_messages", MESSAGE, {"sent_at": NOW}),
    ("alert_messages", MESSAGE, NOT_WAITING | {"state": "'sent'"}),
    ("alert_messages", MESSAGE, NOT_WAITING | {"state": "'sent'", "sent_at": NOW, "attempts": "0"}),
    ("alert_messages", MESSAGE, NOT_WAITING | {"state": "'failed'"}),
    ("alert_messages", MESSAGE, NOT_WAITING | {"state": "'failed'", "error": "''"}),
    ("rejections", REJECTION, {"reason": "''"}),
    ("rejections", REJECTION, {"method": f"'{'x' * 33}'"}),
    ("rejections", REJECTION, {"path": f"'{'x' * 2049}'"}),
    ("rejections", REJECTION, {"remote": f"'{'x' * 256}'"}),
    *(("rejections", REJECTION, {name: NULL}) for name in REJECTION),
    ("rejection_counts", REJECTION_COUNT, {"reason": "''"}),
    ("rejection_counts", REJECTION_COUNT, {"count": "0"}),
    ("rejection_counts", REJECTION_COUNT, {"first_at": "LATER"}),
    *(("rejection_counts", REJECTION_COUNT, {name: NULL}) for name in REJECTION_COUNT),
    ("identities", IDENTITY, {"kind": "'imported'"}),
    ("identities", IDENTITY, {"identity": "BYTES"}),
    *(("identities", IDENTITY, {name: NULL}) for name in IDENTITY),
]


async def test_impossible_cases_are_refused(raw: Raw) -> None:
    for table, row in (("rejections", REJECTION), ("rejection_counts", REJECTION_COUNT)):
        assert await accepted_in(raw, table, row)
    for number, given in enumerate((
        {},
        {"leased_until": NOW, "worker": "'w'", "attempts": "1"},
        NOT_WAITING | {"state": "'sent'", "sent_at": NOW},
        NOT_WAITING | {"state": "'failed'", "error": "'why'"},
    )):  # fmt: skip
        assert await accepted_in(raw, "alert_messages", MESSAGE | given | {"topic": f"'{number}'"})
    for kind in ("key", "body", "quarantine"):
        assert await accepted_in(raw, "identities", IDENTITY | {"kind": f"'{kind}'"})
    accepted = [
        (table, wrong) for table, good, wrong in IMPOSSIBLE_CASES if await accepted_in(raw, table, good | wrong)
    ]
    assert accepted == []


async def test_no_delivery_is_admitted_twice(raw: Raw) -> None:
    row = EVENT | {"state": "'pending'", "due_at": NOW, "request_id": raw.ident(new_id())}
    assert await accepted_in(raw, "events", row)
    assert await accepted_in(raw, "events", row), "an event names its first delivery, and need not be the only one"
    admitted = row | {"key_origin": "'quarantine'"}
    assert await accepted_in(raw, "events", admitted)
    assert not await accepted_in(raw, "events", admitted)
    assert await accepted_in(raw, "events", admitted | {"item": "1"})


# ── effects ──────────────────────────────────────────────────────────────────

EFFECT = {
    "identity": "DIGEST",
    "kind": "'later'",
    "source": "'s'",
    "name": "'n'",
    "key": "'k'",
    "event_id": ID,
    "claim": "1",
    "arguments": "BYTES",
    "arguments_digest": "BYTES",
    "repeat": "'safe'",
    "downstream": "'d'",
    "planned_at": NOW,
    "created_at": NOW,
    "number": "1",
}
EFFECTS: dict[EffectState, dict[str, str]] = {
    EffectState.PLANNED: {"due_at": NOW},
    EffectState.STARTED: {"leased_until": NOW, "worker": "'w'"},
    EffectState.DONE: {"finished_at": NOW},
    EffectState.FAILED: {},
    EffectState.UNKNOWN: {},
    EffectState.CANCELLED: {"finished_at": NOW},
}
CIRCUIT = {"downstream": "'d'", "state": "'closed'", "changed_at": NOW}
EFFECT_CALL = {
    "identity": "DIGEST",
    "number": "1",
    "generation": "1",
    "worker": "'w'",
    "started_at": NOW,
    "ended_at": NOW,
    "outcome": "'done'",
}
IMPOSSIBLE_EFFECTS: list[tuple[EffectState, dict[str, str]]] = [
    # each state lacks what it demands …
    *((state, {name: NULL}) for state, needs in EFFECTS.items() for name in needs),
    (EffectState.STARTED, {"number": "0"}),
    (EffectState.UNKNOWN, {"number": "0"}),
    # … or has what belongs to another
    *((s, {"due_at": NOW}) for s in EffectState if s not in (EffectState.PLANNED, EffectState.UNKNOWN)),
    *((s, {"leased_until": NOW}) for s in EffectState if s not in (EffectState.STARTED, EffectState.UNKNOWN)),
    *((s, {"finished_at": NOW}) for s in EffectState if "finished_at" not in EFFECTS[s]),
    # each kind what it cannot be
    *((s, {"kind": "'once'", "repeat": NULL}) for s in EffectState if s is not EffectState.DONE),
    (EffectState.DONE, {"kind": "'once'"}),
    (EffectState.DONE, {"repeat": NULL}),
    (EffectState.PLANNED, {"kind": "'call'"}),
    (EffectState.UNKNOWN, {"kind": "'call'", "due_at": NOW}),
    # half of a pair
    (EffectState.FAILED, {"lane": "'l'"}),
    (EffectState.FAILED, {"place": "1"}),
    (EffectState.FAILED, {"decided": "'happened'"}),
    (EffectState.FAILED, {"decided_number": "1"}),
    # values that mean nothing
    (EffectState.FAILED, {"identity": "BYTES"}),
    (EffectState.FAILED, {"state": "'pending'"}),
    (EffectState.FAILED, {"kind": "'sometimes'"}),
    (EffectState.FAILED, {"repeat": "'often'"}),
    (EffectState.FAILED, {"decided": "'perhaps'", "decided_number": "1"}),
    (EffectState.FAILED, {"name": "''"}),
    (EffectState.FAILED, {"key": "''"}),
    (EffectState.FAILED, {"key": f"'{'x' * 256}'"}),
    (EffectState.FAILED, {"generation": "0"}),
    (EffectState.FAILED, {"fence": "-1"}),
    (EffectState.FAILED, {"number": "-1"}),
    (EffectState.FAILED, {"tries": "-1"}),
    *((EffectState.FAILED, {name: NULL}) for name in EFFECT),
    (EffectState.FAILED, {"state": NULL}),
]
OTHER_LEDGER: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("effect_calls", EFFECT_CALL, {"number": "0"}),
    ("effect_calls", EFFECT_CALL, {"outcome": "'lost'"}),
    *(("effect_calls", EFFECT_CALL, {name: NULL}) for name in EFFECT_CALL),
    ("circuits", CIRCUIT, {"state": "'ajar'"}),
    ("circuits", CIRCUIT, {"failures": "-1"}),
    ("circuits", CIRCUIT, {"openings": "-1"}),
    ("circuits", CIRCUIT, {"tripped": "TRUE"}),
    ("circuits", CIRCUIT, {"state": "'open'"}),
    ("circuits", CIRCUIT, {"state": "'half_open'"}),
    ("circuits", CIRCUIT, {"state": "'half_open'", "tripped": "TRUE"}),
    ("circuits", CIRCUIT, {"state": "'open'", "tripped": "TRUE", "retry_at": NOW}),
    *(("circuits", CIRCUIT, {name: NULL}) for name in CIRCUIT),
    ("effect_lanes", {"name": "'n'", "lane": "'l'", "next": "1"}, {"next": NULL}),
    ("effect_lanes", {"name": "'n'", "lane": "'l'", "next": "1"}, {"lane": NULL}),
]


def in_dialect(raw: Raw, row: dict[str, str]) -> dict[str, str]:
    """A digest that no other row has, some bytes, and no word twice."""
    digest = new_id().hex * 2
    sqlite = raw.now.isdigit()
    literals = {
        "DIGEST": f"x'{digest}'" if sqlite else f"'\\x{digest}'::bytea",
        "BYTES": "x'00'" if sqlite else "'\\x00'::bytea",
        "'d'": f"'{digest}'",
        "LATER": raw.now + (" + 1" if sqlite else " + interval '1 s'"),
    }
    return {name: literals.get(value, value) for name, value in row.items()}


async def accepted_in(raw: Raw, table: str, row: dict[str, str]) -> bool:
    try:
        await raw.run(insert(raw, table, in_dialect(raw, row)))
    except BadData:
        return False
    return True


async def test_every_effect_has_a_possible_row(raw: Raw) -> None:
    for state, needs in EFFECTS.items():
        row = EFFECT | {"state": f"'{state}'"} | needs
        assert await accepted_in(raw, "effects", row), state
        for repeat in Repeat:
            assert await accepted_in(raw, "effects", row | {"repeat": f"'{repeat}'"})
    done = EFFECT | {"state": "'done'", "finished_at": NOW}
    for kind in EffectKind:
        assert await accepted_in(
            raw, "effects", done | {"kind": f"'{kind}'"} | ({"repeat": NULL} if kind == "once" else {})
        )
    unknown = EFFECT | {"state": "'unknown'"}
    for more in ({"due_at": NOW}, {"leased_until": NOW}, {"decided": "'did_not_happen'", "decided_number": "1"}):
        assert await accepted_in(raw, "effects", unknown | more)
    assert await accepted_in(raw, "effects", done | {"lane": "'l'", "place": "1"})
    assert await accepted_in(raw, "effects", EFFECT | {"state": "'planned'", "due_at": NOW, "number": "0"})
    for outcome in CallOutcome:
        assert await accepted_in(raw, "effect_calls", EFFECT_CALL | {"outcome": f"'{outcome}'"})
    assert await accepted_in(raw, "effect_calls", EFFECT_CALL | {"outcome": NULL, "ended_at": NULL})
    for circuit in CircuitState:
        retry = {} if circuit is CircuitState.CLOSED else {"retry_at": NOW}
        assert await accepted_in(raw, "circuits", CIRCUIT | {"state": f"'{circuit}'"} | retry)
    assert await accepted_in(raw, "circuits", CIRCUIT | {"state": "'open'", "tripped": "TRUE"})
    assert await accepted_in(raw, "actions", ACTION | {"event_id": NULL, "subject": "'circuit:bank'"})


async def test_impossible_effects_are_refused(raw: Raw) -> None:
    tried: list[tuple[str, dict[str, str]]] = [
        *(("effects", EFFECT | {"state": f"'{s}'"} | EFFECTS[s] | wrong) for s, wrong in IMPOSSIBLE_EFFECTS),
        *((table, good | wrong) for table, good, wrong in OTHER_LEDGER),
    ]
    accepted = [(table, row) for table, row in tried if await accepted_in(raw, table, row)]
    assert accepted == []


# ── bulk work and pauses ─────────────────────────────────────────────────────

JOB = {
    **{"id": ID, "name": "'replay'", "filter": "'{}'", "actor": "'ada'", "reason": "'why'", "per_second": "100"},
    **{"state": "'planned'", "total": "10", "created_at": NOW},
}
FROZEN = JOB | {"frozen_at": NOW}
RUNNING = FROZEN | {"state": "'running'", "started_at": NOW, "fence": "1", "worker": "'w'"}
OVER = RUNNING | {"state": "'done'", "done": "9", "not_allowed": "1", "position": ID, "finished_at": NOW}
CANCELLED = FROZEN | {"state": "'cancelled'", "finished_at": NOW, "cancelled_by": "'bob'", "cancel_reason": "'no'"}
JOB_ITEM = {"job_id": ID, "event_id": ID, "seen_state": "'failed'", "seen_claim": "2"}
NOT_ALLOWED = JOB_ITEM | {"outcome": "'not_allowed'", "cause": "'changed'", "reason": "'w'", "ended_at": NOW}
RESOLVE = JOB | {"name": "'resolve'", "effect": "'e'", "decision": "'happened'", "effects": "10"}
JOB_EFFECT = {"job_id": ID, "event_id": ID, "identity": "DIGEST", "fence": "2"}
PAUSE = {"source": "'s'", "pattern": "'*'", "since": NOW, "actor": "'ada'", "reason": "'why'"}

GOOD_WORK = [
    *(("jobs", row) for row in (JOB, FROZEN, RUNNING, RUNNING | {"leased_until": NOW}, OVER, CANCELLED)),
    *(("jobs", JOB | {"name": f"'{name}'"}) for name in ("retry", "replay", "discard")),
    (
        "jobs",
        RUNNING | {"state": "'cancelled'", "finished_at": NOW, "cancelled_by": "'bob'", "cancel_reason": "'no'"},
    ),
    *(("job_items", row) for row in (JOB_ITEM, JOB_ITEM | {"outcome": "'done'", "ended_at": NOW}, NOT_ALLOWED)),
    *(("job_items", NOT_ALLOWED | {"cause": f"'{cause}'"}) for cause in Cause),
    *(("jobs", RESOLVE | right) for right in ({}, {"decision": "'did_not_happen'"}, {"effects": "11"})),
    ("job_effects", JOB_EFFECT),
    ("pauses", PAUSE),
]
IMPOSSIBLE_WORK = [
    *(("jobs", RESOLVE | {name: NULL}) for name in ("effect", "decision", "effects")),
    *(("jobs", RESOLVE | wrong) for wrong in ({"decision": "'cancel'"}, {"effect": "''"}, {"effects": "9"})),
    *(("jobs", RESOLVE | {"name": f"'{name}'"}) for name in ("retry", "replay", "discard")),
    *(("jobs", JOB | {name: RESOLVE[name]}) for name in ("effect", "decision", "effects")),
    *(("job_effects", JOB_EFFECT | {name: NULL}) for name in JOB_EFFECT),
    *(("job_effects", JOB_EFFECT | wrong) for wrong in ({"identity": "BYTES"}, {"fence": "-1"})),
    *(("jobs", JOB | {name: NULL}) for name in JOB),
    *(("jobs", JOB | wrong) for wrong in ({"name": "'erase'"}, {"state": "'lost'"}, {"total": "0"}, {"actor": "''"})),
    *(("jobs", JOB | wrong) for wrong in ({"reason": "''"}, {"per_second": "-1"}, {"started_at": NOW})),
    *(
        ("jobs", JOB | wrong)
        for wrong in ({"done": "1"}, {"position": ID}, {"leased_until": NOW}, {"finished_at": NOW})
    ),
    *(
        ("jobs", FROZEN | wrong)
        for wrong in ({"started_at": NOW}, {"cancelled_by": "'bob'", "cancel_reason": "'no'"})
    ),
    *(("jobs", RUNNING | {name: NULL}) for name in ("frozen_at", "started_at", "worker")),
    *(("jobs", RUNNING | wrong) for wrong in ({"fence": "0"}, {"done": "11", "position": ID}, {"finished_at": NOW})),
    *(("jobs", OVER | wrong) for wrong in ({"done": "8"}, {"finished_at": NULL}, {"position": NULL})),
    *(("jobs", row) for row in (JOB | {"fence": "-1"}, OVER | {"leased_until": NOW})),
    *(
        ("jobs", CANCELLED | wrong)
        for wrong in ({"cancelled_by": NULL}, {"cancel_reason": NULL}, {"cancelled_by": "''"})
    ),
    *(("job_items", JOB_ITEM | {name: NULL}) for name in JOB_ITEM),
    *(("job_items", JOB_ITEM | wrong) for wrong in ({"outcome": "'done'"}, {"ended_at": NOW}, {"reason": "'w'"})),
    *(("job_items", NOT_ALLOWED | {name: NULL}) for name in ("cause", "reason", "ended_at")),
    *(("job_items", NOT_ALLOWED | wrong) for wrong in ({"outcome": "'done'"}, {"outcome": "'lost'"})),
    ("job_items", NOT_ALLOWED | {"cause": "'mood'"}),
    *(("pauses", PAUSE | {name: NULL}) for name in PAUSE),
    *(("pauses", PAUSE | {name: "''"}) for name in ("source", "pattern", "actor", "reason")),
]


async def test_impossible_jobs_and_pauses_are_refused(raw: Raw) -> None:
    refused = [(table, row) for table, row in GOOD_WORK if not await accepted_in(raw, table, row)]
    assert refused == []
    await raw.run("DELETE FROM pauses")
    accepted = [(table, row) for table, row in IMPOSSIBLE_WORK if await accepted_in(raw, table, row)]
    assert accepted == []


async def test_no_effect_and_no_call_twice(raw: Raw) -> None:
    for table, row in (
        ("effects", EFFECT | {"state": "'failed'"}),
        ("effect_calls", EFFECT_CALL),
        ("circuits", CIRCUIT),
    ):
        same = insert(raw, table, in_dialect(raw, row))
        await raw.run(same)
        with pytest.raises(BadData):
            await raw.run(same)


# ── guards ───────────────────────────────────────────────────────────────────

GUARD = {
    "identity": "DIGEST",
    "source": "'s'",
    "name": "'n'",
    "key": "'k'",
    "kind": "'number'",
    "version": "'1'",
    "position": "BYTES",
    "rank": "1",
    "received_at": NOW,
    "event_id": ID,
    "event_key": "'e'",
    "claim": "1",
    "applied_at": NOW,
}
ANSWER = {
    "event_id": ID,
    "claim": "1",
    "identity": "DIGEST",
    "name": "'n'",
    "key": "'k'",
    "kind": "'number'",
    "version": "'1'",
    "position": "BYTES",
    "rank": "1",
    "applied": "TRUE",
    "at": NOW,
}
OTHER_GUARD = {"replaced_version": "'0'", "replaced_event_id": ID}
OTHER_ANSWER = {"other_version": "'0'", "other_event_id": ID}
WRONG = (
    *({"name": "''"}, {"key": "''"}, {"key": f"'{'x' * 256}'"}, {"kind": "''"}, {"version": "''"}),
    *({"version": f"'{'x' * 256}'"}, {"rank": "3"}, {"rank": "-1"}, {"tie": "'chance'"}, {"identity": "BYTES"}),
)
IMPOSSIBLE_GUARDS: list[tuple[str, dict[str, str]]] = [
    *(("guards", GUARD | wrong) for wrong in WRONG),
    *(("guards", GUARD | {name: NULL}) for name in GUARD),
    ("guards", GUARD | {"ties": "-1"}),
    ("guards", GUARD | {"event_key": f"'{'x' * 256}'"}),
    ("guards", GUARD | {"replaced_version": "'0'"}),
    ("guards", GUARD | {"replaced_event_id": ID}),
    ("guards", GUARD | {"tie": "'rank'"}),
    *(("guard_answers", ANSWER | OTHER_ANSWER | wrong) for wrong in WRONG),
    *(("guard_answers", ANSWER | {name: NULL}) for name in ANSWER),
    ("guard_answers", ANSWER | {"applied": "FALSE"}),
    ("guard_answers", ANSWER | {"tie": "'id'"}),
    ("guard_answers", ANSWER | {"other_version": "'0'"}),
    ("guard_answers", ANSWER | {"other_event_id": ID}),
]


async def test_impossible_guards_are_refused(raw: Raw) -> None:
    for tie in ("rank", "arrival", "id"):
        assert await accepted_in(raw, "guards", GUARD | OTHER_GUARD | {"tie": f"'{tie}'"})
        assert await accepted_in(
            raw, "guard_answers", ANSWER | OTHER_ANSWER | {"tie": f"'{tie}'", "applied": "FALSE"}
        )
    assert await accepted_in(raw, "guards", GUARD)
    assert await accepted_in(raw, "guard_answers", ANSWER)
    assert [row for row in IMPOSSIBLE_GUARDS if await accepted_in(raw, *row)] == []


KEPT_ANSWER = {"event_id": ID, "run": "1", "status": "200", "headers": "BYTES", "body": "BYTES"}
KEPT_ANSWER |= {"answered_at": NOW, "expires_at": "LATER"}
IMPOSSIBLE_ANSWERS: list[dict[str, str]] = [
    *(KEPT_ANSWER | {name: NULL} for name in KEPT_ANSWER),
    *(KEPT_ANSWER | {"status": status} for status in ("199", "302", "500", "0")),
    KEPT_ANSWER | {"run": "0"},
    KEPT_ANSWER | {"expires_at": NOW},
]


async def test_impossible_answers_are_refused(raw: Raw) -> None:
    for status in ("201", "422"):
        assert await accepted_in(raw, "answers", KEPT_ANSWER | {"status": status})
    assert [row for row in IMPOSSIBLE_ANSWERS if await accepted_in(raw, "answers", row)] == []
