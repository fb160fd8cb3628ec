"""No query on the path scans a table: looked up in the planners' own words, at 100,000 events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import apsw.ext
import pytest

from hookledger.ids import LAST_ID, new_id
from hookledger.model import Kind, Outcome, Share
from hookledger.store.postgres.ledger import PostgresLedger
from hookledger.store.postgres.session import Queries, values_of
from hookledger.store.postgres.store import PostgresStore
from hookledger.store.protocol import Store
from hookledger.store.sqlite import ledger as sqlite_ledger
from hookledger.store.sqlite.session import query
from hookledger.store.sqlite.store import SqliteStore
from tests.builders import Raw

pytestmark = pytest.mark.without_statistics

ROWS = 100_000
TABLES = {"events", "requests", "identities", "deliveries", "effects", "effect_calls", "rejections", "actions"}
TABLES |= {"guards", "guard_answers", "attempts", "answers"}

# Of 1000 events: 97 wait (20 kinds; one in ten only later), 2 wait alone, 1 is in work, 900 are finished.
STATE = """CASE WHEN n % 1000 = 1 THEN 'processing' WHEN n % 10 = 0 AND n % 20 = 0 THEN 'pending'
                WHEN n % 10 = 0 THEN 'retrying' ELSE 'processed' END"""
COLUMNS = """id, source, type, key, key_origin, fingerprint, request_id, item, received_at, run_started_at, state,
             due_at, leased_until, claimed_at, worker, claim, attempts, finished_at, first_processed_at, crashes"""
VALUES = f"""id, 's' || (n / 10 % 4), 't' || (n / 10 % 5), 'k' || n, 'signed_id', fp, rid, 0, {{t}}, {{t}}, state,
             CASE WHEN state IN ('pending', 'retrying') THEN {{t}} END,
             CASE WHEN state = 'processing' THEN {{t}} END, CASE WHEN state = 'processing' THEN {{t}} END,
             CASE WHEN state = 'processing' THEN 'w' END, 1, 1,
             CASE WHEN state = 'processed' THEN {{t}} END, CASE WHEN state = 'processed' THEN {{t}} END,
             CASE WHEN n % 500 = 0 THEN 2 ELSE 0 END
             FROM (SELECT *, {STATE} AS state FROM filling) AS f"""

# Of 1000 effects: 70 planned (half of them in lanes), 10 unknown and due, 10 failed, 10 started, 900 done.
EFFECT_STATE = """CASE WHEN n % 10 > 0 THEN 'done' WHEN n % 100 = 0 THEN 'started' WHEN n % 100 = 10 THEN 'unknown'
                       WHEN n % 100 = 20 THEN 'failed' ELSE 'planned' END"""
EFFECT_COLUMNS = """identity, kind, source, name, key, event_id, claim, arguments, arguments_digest, repeat,
                    downstream, lane, place, state, fence, number, planned_at, created_at, due_at, leased_until,
                    worker, finished_at"""
EFFECT_VALUES = f"""fp, 'later', 's', 'e' || (n / 10 % 4), 'k' || n, id, 1, {{empty}}, {{empty}}, 'safe', 'd',
                    CASE WHEN n % 20 = 0 THEN 'l' || (n / 20 % 100) END, CASE WHEN n % 20 = 0 THEN n END, state, 1, 1,
                    {{t}}, {{t}}, CASE WHEN state IN ('planned', 'unknown') THEN {{t}} END,
                    CASE WHEN state = 'started' THEN {{t}} END, 'w',
                    CASE WHEN state = 'done' THEN {{t}} END
                    FROM (SELECT *, {EFFECT_STATE} AS state FROM filling) AS f"""
CALL_COLUMNS = "identity, number, generation, worker, started_at, ended_at, outcome"
CALL_VALUES = """fp, 1, 1, 'w', {t}, CASE WHEN n % 10 > 0 THEN {t} END, CASE WHEN n % 10 > 0 THEN 'done' END
                 FROM filling"""

# Of 1000 guards: 10 with ties. Of 1000 answers: 10 stale.
GUARD_COLUMNS = """identity, source, name, key, kind, version, position, rank, received_at, event_id, event_key,
                   claim, applied_at, ties"""
GUARD_VALUES = """fp, 's', 'g', 'k' || n, 'number', '1', {empty}, 1, {t}, id, 'k', 1, {t},
                  CASE WHEN n % 100 = 0 THEN 1 ELSE 0 END FROM filling"""
ANSWER_COLUMNS = """event_id, claim, identity, name, key, kind, version, position, rank, applied, other_version,
                    other_event_id, at"""
ANSWER_VALUES = """id, 1, fp, 'g', 'k' || n, 'number', '1', {empty}, 1, n % 100 > 0,
                   CASE WHEN n % 100 = 0 THEN '2' END, CASE WHEN n % 100 = 0 THEN rid END, {t} FROM filling"""
ATTEMPTS = """INSERT INTO attempts (event_id, claim, run, worker, started_at, ended_at, outcome)
              SELECT id, 1, 1, 'w', {t}, {t}, 'processed' FROM filling"""

FILL_SQLITE = [
    f"""CREATE TABLE filling AS WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {ROWS})
        SELECT n, randomblob(16) AS id, randomblob(16) AS rid, randomblob(32) AS fp FROM c""",
    f"INSERT INTO events ({COLUMNS}) SELECT {VALUES.format(t='1700000000000000 + n * 1000000')}",
    "INSERT INTO identities SELECT fp, 'key', 's' || (n / 10 % 4), id, fp FROM filling",
    """INSERT INTO requests (id, source, received_at, query, headers, body, scheme, secret)
       SELECT rid, 's', n, x'', x'', x'7b7d', 'h', 'f' FROM filling""",
    """INSERT INTO deliveries (request_id, item, event_id, source, received_at, outcome, fingerprint)
       SELECT rid, 0, id, 's', n, 'accepted', fp FROM filling
       UNION ALL SELECT randomblob(16), 0, id, 's', n, 'duplicate', fp FROM filling WHERE n % 5 = 0
       UNION ALL SELECT randomblob(16), 0, id, 's' || (n / 10 % 4), n,
                        CASE WHEN n % 20 = 0 THEN 'conflict' ELSE 'same_body' END, fp
                 FROM filling WHERE n % 10 = 0""",
    "UPDATE events SET key_origin = 'quarantine', key = key || '~2' WHERE rowid % 100 = 7",
    """INSERT INTO rejections (id, source, reason, received_at, method, path, query, headers, body)
       SELECT id, 's' || (n % 20), 'r' || (n % 7), n, 'POST', '/', x'', x'', fp FROM filling""",
    """INSERT INTO rejection_counts SELECT 's' || (n % 20), 'r' || (n % 7), count(*), 1, 1 FROM filling
       GROUP BY 1, 2""",
    f"INSERT INTO effects ({EFFECT_COLUMNS}) SELECT " + EFFECT_VALUES.format(t="1700000000000000 + n", empty="x''"),
    f"INSERT INTO effect_calls ({CALL_COLUMNS}) SELECT " + CALL_VALUES.format(t="1700000000000000 + n"),
    """INSERT INTO actions (id, at, name, actor, reason, event_id, from_state, to_state)
       SELECT rid, n, 'retry', 'ada', 'why', id, 'failed', 'pending' FROM filling""",
    f"INSERT INTO guards ({GUARD_COLUMNS}) SELECT " + GUARD_VALUES.format(t="n", empty="x''"),
    f"INSERT INTO guard_answers ({ANSWER_COLUMNS}) SELECT " + ANSWER_VALUES.format(t="n", empty="x''"),
    "INSERT INTO answers SELECT id, 1, 200, x'', zeroblob(400), n, n + 1 FROM filling",
    ATTEMPTS.format(t="n"),
    "DROP TABLE filling",
    "ANALYZE",
]
FILL_POSTGRES = [
    f"""CREATE TABLE filling AS SELECT n, gen_random_uuid() AS id, gen_random_uuid() AS rid,
        sha256(n::text::bytea) AS fp FROM generate_series(1, {ROWS}) AS n""",
    f"INSERT INTO events ({COLUMNS}) SELECT " + VALUES.format(t="to_timestamp(1700000000 + n)"),
    "INSERT INTO identities SELECT fp, 'key', 's' || (n / 10 % 4), id, fp FROM filling",
    """INSERT INTO requests (id, source, received_at, query, headers, body, scheme, secret)
       SELECT rid, 's', now(), '', '', '{}', 'h', 'f' FROM filling""",
    """INSERT INTO deliveries (request_id, item, event_id, source, received_at, outcome, fingerprint)
       SELECT rid, 0, id, 's', now(), 'accepted', fp FROM filling
       UNION ALL SELECT gen_random_uuid(), 0, id, 's', now(), 'duplicate', fp FROM filling WHERE n % 5 = 0
       UNION ALL SELECT gen_random_uuid(), 0, id, 's' || (n / 10 % 4), now(),
                        CASE WHEN n % 20 = 0 THEN 'conflict' ELSE 'same_body' END, fp
                 FROM filling WHERE n % 10 = 0""",
    "UPDATE events SET key_origin = 'quarantine', key = key || '~2' WHERE right(key, 2) = '07'",
    """INSERT INTO rejections (id, source, reason, received_at, method, path, query, headers, body)
       SELECT id, 's' || (n % 20), 'r' || (n % 7), now(), 'POST', '/', '', '', fp FROM filling""",
    """INSERT INTO rejection_counts SELECT 's' || (n % 20), 'r' || (n % 7), count(*), now(), now() FROM filling
       GROUP BY 1, 2""",
    f"INSERT INTO effects ({EFFECT_COLUMNS}) SELECT "
    + EFFECT_VALUES.format(t="to_timestamp(1700000000 + n)", empty="''::bytea"),
    f"INSERT INTO effect_calls ({CALL_COLUMNS}) SELECT " + CALL_VALUES.format(t="to_timestamp(1700000000 + n)"),
    """INSERT INTO actions (id, at, name, actor, reason, event_id, from_state, to_state)
       SELECT rid, now(), 'retry', 'ada', 'why', id, 'failed', 'pending' FROM filling""",
    f"INSERT INTO guards ({GUARD_COLUMNS}) SELECT " + GUARD_VALUES.format(t="now()", empty="''::bytea"),
    f"INSERT INTO guard_answers ({ANSWER_COLUMNS}) SELECT " + ANSWER_VALUES.format(t="now()", empty="''::bytea"),
    """INSERT INTO answers SELECT id, 1, 200, '', convert_to(repeat('x', 400), 'UTF8'), now(),
                                  now() + interval '1 day' FROM filling""",
    ATTEMPTS.format(t="now()"),
    "DROP TABLE filling",
    *(f"ANALYZE {table}" for table in sorted(TABLES)),
]

IDENT = new_id()
IDS, CLAIMS, KINDS = [new_id() for _ in range(50)], [1] * 50, (["s1", "s2"], ["t1", "t2"], ["", "2024"])
POSTGRES: dict[str, tuple[Any, ...]] = {
    "take_identities": ([(b"\0" * 32, "key", "s", IDENT, b"f")] * 50,),
    "owners": ([bytes([n]) * 32 for n in range(50)],),
    "repoint": ([bytes([n]) * 32 for n in range(50)], IDS, [bytes(32)] * len(IDS)),
    "write": ([],),
    "add_new": ([], "w", 60.0),
    "waiting": (),
    "claim": ("w", 60.0, *KINDS, [0, 1], [16, 16]),
    "claim_alone": ("w", 60.0, *KINDS),
    "settle": (
        IDS,
        CLAIMS,
        ["complete"] * 50,
        ["processed"] * 50,
        [None] * 50,
        [0.0] * 50,
        [None] * 50,
        [None] * 50,
        [None] * 50,
        [None] * 50,
        [None] * 50,
        None,
        IDS,
        [200] * 50,
        [b""] * 50,
        [b"{}"] * 50,
        [60.0] * 50,
    ),
    "beat": (IDS, CLAIMS, 60.0),
    "known": (b"\0" * 32,),
    "adopt": (b"\0" * 32, "e", b"", "lane", "mark"),
    "newer": (b"\0" * 32, "s", "g", "k", "number", "1", b"", 1, datetime.now(UTC), IDENT, "k", 1, "mark", False),
    "stale": (b"\0" * 32, "g", "k", "number", "1", b"", 1, datetime.now(UTC), IDENT, 1, "mark"),
    "note_stale": (IDENT, 1, b"\0" * 32, "g", "k", "number", "1", b"", 1, "rank", "2", IDENT),
}
IDENTITIES = [bytes([n]) * 32 for n in range(50)]
POSTGRES_LEDGER: dict[str, tuple[Any, ...]] = {
    "start": (
        *("w", IDENTITIES, ["call"] * 50, ["s"] * 50, ["e"] * 50, ["k"] * 50, IDS, CLAIMS),
        *([b""] * 50, [b""] * 50, ["safe"] * 50, ["d"] * 50, [60.0] * 50),
    ),
    "finish_first": (IDENTITIES, [None] * 50, [None] * 50),
    "lock": (IDENTITIES,),
    "end_calls": (IDENTITIES, [1] * 50, ["done"] * 50, [None] * 50, [False] * 50),
    "calls": (IDENTITIES,),
    "move": (IDENTITIES, ["done"] * 50, [None] * 50, [None] * 50, [None] * 50, [None] * 50),
    "waiting": (["s1", None], ["effect e 'k' may have happened"] * 2),
    "lock_events": (IDS,),
    "attend": (IDS,),
    "claim": ("w", ["e1", "e2"], [8, 8], [60.0, 60.0], ["", ""]),
    "due": (["e1", "e2"],),
}
UNHANDLED = {"source": "s1", "type": "t1", "version": "v1", "older_than": 3600.0, "limit": 1000}
SHARED: dict[str, dict[str, Any]] = {
    "known_owners": {"identities": IDENTITIES},
    "count_rejections": {"numbers": [("s1", "r1", 1)]},
    "keep_rejection": {
        **{"id": IDENT, "source": "s1", "reason": "r1", "method": "POST", "path": "/"},
        **{"query": b"", "headers": b"", "body": b"", "remote": None},
    },
    "trim_rejections": {"sources": ["s1", "s2"], "most": 1000, "most_bytes": 1_000_000},
    "list_rejections": {"source": "s1", "reason": None, "before": LAST_ID, "limit": 50},
    "rejection_counts": {},
    "take_rejection": {"id": IDENT},
    "quarantine_sources": {},
    "list_quarantined": {
        "among": [("s1", "conflict"), ("s1", "same_body"), ("s2", "conflict")],
        **{"before": LAST_ID, "limit": 50},
    },
    "find_quarantined": {"first": IDENT, "last": IDENT, "item": None},
    "kept_request": {"id": IDENT},
    "borrowed_body": {"request_id": IDENT},
    "keep_body": {"request_id": IDENT},
    "quarantined": {"request_id": IDENT, "item": 0},
    "own_accepted_key": {
        **{"identity": b"\0" * 32, "source": "s1", "event_id": IDENT, "fingerprint": b"", "met": None},
    },
    "own_accepted": {"wanted": [(b"\0" * 32, "body", "s1", IDENT, b"")]},
    "accept": {
        **{"id": IDENT, "request_id": IDENT, "item": 0, "source": "s1", "key": "k7", "type": "t1"},
        **{"provider_id": None, "object_id": None, "occurred_at": None, "fingerprint": b"f", "account": None},
        **{"entity": None, "ordered": False, "order_at": None, "hold": False, "version": ""},
    },
    "count_again": {"ids": [(ident,) for ident in IDS]},
    "mark_alert": {"id": IDENT, "words": "words"},
    "state_to_warn": {"id": IDENT, "words": "words"},
    "import_keys": {
        "identities": [(identity,) for identity in IDENTITIES],
        **{"source": "s1", "action": IDENT, "nothing": b""},
    },
    "known_keys": {"identities": IDENTITIES},
    "find_events": {"first": IDENT, "last": IDENT},
    "owners_of_keys": {"identities": IDENTITIES[:5], "nothing": b"", "limit": 10},
    "find_shown": {"key": "evt_1~2"},
    "event": {"id": IDENT},
    "deliveries_of_event": {"id": IDENT, "request_id": IDENT, "item": 0},
    "attempts_of_events": {"events": IDS},
    "effects_of_events": {"events": IDS},
    "calls_of_effects": {"identities": IDENTITIES},
    "actions_of_event": {"id": IDENT},
    "answers_of_events": {"events": IDS},
    "guards": {"identities": IDENTITIES},
    "guards_with_ties": {"most": 5},
    "held": {"worker": "w"},
    "expired": {"limit": 100},
    "reclaim": {"reclaims": [(ident, 1, 0.0, "r") for ident in IDS]},
    "unhandled": UNHANDLED,
    "unhandled_alone": UNHANDLED,
    "skip_unhandled": {"events": IDS},
}
LOOKS: dict[str, dict[str, Any]] = {
    "failed_since": {"since_at": datetime.now(UTC), "most": 5000},
    "quarantined_since": {"source": "s1", "outcome": "conflict", "first": IDENT, "most": 5000},
    "causes_now": {"most": 500},
    "newest_of_cause": {"cause": "TypeError: x"},
    "in_review_now": {"most": 1000},
    "unknown_now": {"most": 1000},
    "marked_effects_now": {"most": 1000},
    "marked_now": {"most": 1000},
    "longest_due": {"late": 60.0},
}
EFFECT = {"identity": IDENTITIES[0], "fence": 1, "event_id": IDENT}
DECISIONS: dict[str, dict[str, Any]] = {
    "resolve_effect": EFFECT | {"state": "unknown", "target": "done", "decided": "happened", "result": None},
    "try_effect": EFFECT,
    "lock_effects": {"identities": IDENTITIES},
    "effects": {"identities": IDENTITIES},
    "retry": {"events": [(IDENT, "failed", None)]},
    "replay": {"events": [(ident, "processed", 1) for ident in IDS]},
    "discard": {"events": [(IDENT, "failed", None)], "reason": "why"},
    "repeat": EFFECT,
    "skip_generations": {"identity": IDENTITIES[0], "skipped": 1000},
    "supersede_once": EFFECT | {"aside": IDENTITIES[1], "error": "why"},
    "event_now": {"event_id": IDENT},
    "last_action": {"event_id": IDENT},
}
LEDGER: dict[str, dict[str, Any]] = {
    "restart_effect": EFFECT | {"worker": "w", "lease": 60.0},
    "mark_effect_unknown": EFFECT | {"due_in": 60.0},
    "conclude_effect": EFFECT | {"happened": True, "result": None, "due_in": None},
    "put_off_effect": EFFECT | {"due_in": None, "error": None},
    "release_effect": EFFECT | {"due_in": 60.0, "error": "why"},
    "remove_call": {"identity": IDENTITIES[0], "number": 1},
    "lock_effect": {"identity": IDENTITIES[0]},
    "held_effects": {"worker": "w"},
    "expired_effects": {"limit": 100},
}
NAMED = [(f"s{n}", f"entity {n}", None) for n in range(50)]
ENTITIES: dict[str, dict[str, Any]] = {
    "take_changes": {"most": 500},
    "poll_waiting": {"most": 500},
    "lock_entities": {"entities": NAMED},
    "wake": {"entities": NAMED},
    "demote": {"entities": NAMED},
    "promote": {"entities": NAMED},
    "locked_entities": {"entities": NAMED},
    "first_of_entity": {"source": "s1", "entity": "e"},
    "holding": {"source": "s1", "entity": "e", "order_at": datetime.now(UTC), "id": IDENT},
}
RESTORES: dict[str, dict[str, Any]] = {
    "mark_restored_unknown": {"identities": IDENTITIES, "error": "why"},
    "may_be_done": {"identity": IDENTITIES[0], "generation": 1, "number": 1, "restored_at": datetime.now(UTC)},
}
CHOSEN = list(zip(IDS, CLAIMS, strict=True))
PLACES = [(ident, 0) for ident in IDS]
ERASED: dict[str, dict[str, Any]] = {
    "requests_to_erase": {"events": IDS},
    "events_brought": {"requests": IDS},
    "events_met": {"requests": IDS},
    "lock_quarantined_to_erase": {"requests": IDS},
    "lock_effects_to_erase": {"events": IDS},
    "lock_events_to_erase": {"events": IDS},
    "erase_rejections": {"requests": IDS, "empty": b""},
    "erase_event": {"id": IDENT, "reason": None, "key": "k"},
    "erase_delivery_ids": {"requests": IDS},
    "erase_later_delivery_ids": {"events": IDS},
    "erase_repairs": {"events": IDS},
    "erase_job_items": {"events": IDS},
    "erase_attempts": {"events": IDS},
    "erase_effect": {"identity": IDENTITIES[0], "key": "k", "empty": b""},
    "erase_replaced": {"events": IDS},
    "lock_guards_to_erase": {"events": IDS},
    "erase_guard": {"identity": IDENTITIES[0], "key": "k", "event_key": "k"},
    "answers_to_erase": {"events": IDS},
    "erase_answer": {"event_id": IDENT, "claim": 1, "identity": IDENTITIES[0], "key": "k"},
    "stale_for_events": {"events": IDS},
    "erase_other_key": {"id": IDENT, "reason": None, "cause": None, "error": None},
    "erase_other_key_in_attempt": {"event_id": IDENT, "claim": 1, "error": None},
    "prune_answers": {"events": IDS},
    "lock_lanes_to_erase": {"lanes": [("e", "l")]},
    "erase_lanes": {"lanes": [("e", "l")]},
    "window_of_events": {"after": IDENT, "before": LAST_ID, "most": 500},
    "window_of_deliveries": {"after": IDENT, "before": LAST_ID, "most": 500},
    "lock_events_to_prune": {"chosen": CHOSEN, "quiet": 3600.0},
    "lock_effects_to_prune": {"events": IDS},
    "count_effects": {"events": IDS},
    "lock_quarantined_to_prune": {"events": IDS},
    "record_pruned": {"events": IDS},
    "prune_attempts": {"events": IDS},
    "prune_events": {"events": IDS},
    "prune_first_deliveries": {"named": PLACES},
    "prune_later_deliveries": {"events": IDS, "quiet": 3600.0},
    "prune_requests": {"requests": IDS},
    "trim_effects": {"identities": IDENTITIES, "empty": b""},
    "trim_calls": {"identities": IDENTITIES},
    "lock_events_to_empty": {"events": IDS, "older": 3600.0},
    "count_items": {"requests": IDS},
    "empty_requests": {"requests": IDS, "empty": b""},
    "empty_events": {"events": IDS},
    "forget_attempts": {"chosen": CHOSEN},
    "remembered": {"chosen": CHOSEN},
    "effects_over": {"chosen": CHOSEN},
    "prune_deliveries": {"places": PLACES, "outcomes": ["duplicate"]},
    "lock_deliveries": {"places": PLACES},
    "orphans": {"places": PLACES},
    "pruned_events": {"first": IDENT, "last": IDENT},
}
"""Queries of `store/sql/`, with their parameters."""
SQLITE = [
    *("take_identities", "owner", "repoint", "keep_requests", "add_events", "add_deliveries"),
    *("waiting", "due", "due_alone", "claim", "claimed", "settle", "beat", "known", "adopt"),
    *("guard", "set_guard", "answer", "count_tie"),
]
SQLITE_LEDGER = [
    *(
        "start",
        "call",
        "effect",
        "standing",
        "calls",
        "move",
        "end_call",
        "waiting",
        "attend",
        "due",
        "heads",
        "claim",
    ),
]

WALKS = {
    *(
        "waiting",
        "held",
        "held_effects",
        "list_rejections",
        "rejection_counts",
        "quarantine_sources",
        "erase_rejections",
        "take_changes",
        "guards_with_ties",
        *("causes_now", "in_review_now", "unknown_now", "marked_effects_now", "marked_now", "longest_due"),
    ),
}
"""Begin at one end of an index and stop at their LIMIT: 1 row per kind or source, or one page of the newest; `held`
and `held_effects` walk the index of leases, which has only what is being processed at the moment, the ledger's
`waiting` that of what waits for a person, `list_rejections` and `erase_rejections` a sample that has a budget,
`rejection_counts` a row for each source and reason, `take_changes` what workers have not looked at,
`guards_with_ties` the latest of those; the looks for alerts a row for each cause or kind, or at most a
thousand of what waits for a person. The audit of keys is not here: it reads the last events."""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans(name: str, plan: dict[str, Any]) -> list[str]:
    """Nodes that read a whole table, or a whole index, of ours."""
    bad = []
    for node in nodes(plan):
        kind, table = node["Node Type"], node.get("Relation Name")
        whole = "Index" in kind and "Index Cond" not in node and kind != "Bitmap Heap Scan"
        if (kind == "Seq Scan" and table in TABLES) or (whole and name not in WALKS):
            bad.append(f"{name}: {kind} on {table}, {node.get('Index Name')}")
    return bad


async def check_postgres(
    store: PostgresStore, render: Callable[[str], str], queries: Mapping[str, Sequence[Any]]
) -> list[str]:
    bad: list[str] = []
    async with store._use() as connection:
        for name, args in queries.items():
            sql = render(name).replace("{where}", "true")  # filters have plans of their own
            statement = await connection.prepare(sql)
            [custom] = await statement.explain(*args)
            bad += scans(name, custom["Plan"])
            # What a statement gets after its first five uses: a plan that knows no values.
            nothing = ", ".join("NULL" for _ in statement.get_parameters())
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            await connection.execute(f"PREPARE checked AS {sql}")
            run = f"checked({nothing})" if nothing else "checked"
            [generic] = json.loads(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE {run}"))
            bad += [f"{line} (generic)" for line in scans(name, generic["Plan"])]
            await connection.execute("DEALLOCATE checked; RESET plan_cache_mode")
    return bad


async def check_sqlite(store: SqliteStore, render: Callable[[str], str], queries: list[str]) -> list[str]:
    def job(connection: apsw.Connection) -> list[str]:
        bad = []
        for name in queries:
            sql = render(name).replace("{where}", "true")  # filters have plans of their own
            args = [None] * apsw.ext.query_info(connection, sql).bindings_count
            plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}", args)]
            for detail in plan:
                # A SCAN of a CTE or subquery reads what an index found. `waiting` starts at the first entry of
                # an index, LIMIT 1; `events` walks the primary key from the newest, LIMIT one page.
                ours = re.match(rf"SCAN (?:main\.)?({'|'.join(TABLES)}|[enridpvoaxflgt])\b(.*)", detail)
                if ours and not (name in WALKS and "INDEX" in ours[2]) and f"CO-ROUTINE {ours[1]}" not in plan:
                    bad.append(f"{name}: {detail}")
        return bad

    return await store._do(job)


async def check_shared(store: Store, queries: dict[str, dict[str, Any]]) -> list[str]:
    """Those of store/sql, with their parameters."""
    if isinstance(store, SqliteStore):
        return await check_sqlite(store, query, list(queries))
    assert isinstance(store, PostgresStore)
    written = Queries(store._schema, store._clock, store.sql)
    args = {name: values_of(written[name][1], given) for name, given in queries.items()}
    return await check_postgres(store, lambda name: written[name][0], args)


async def test_no_scan_at_100_000_events(store: Store, raw: Raw) -> None:
    on_sqlite = isinstance(store, SqliteStore)
    for statement in FILL_SQLITE if on_sqlite else FILL_POSTGRES:
        await raw.run(statement)
    assert await raw.count("events") == ROWS
    assert await raw.count("effects") == ROWS
    if isinstance(store, SqliteStore):
        bad = await check_sqlite(store, store.sql, SQLITE)
        bad += await check_sqlite(store, sqlite_ledger.SQL.__getitem__, SQLITE_LEDGER)
    else:
        assert isinstance(store, PostgresStore)
        bad = await check_postgres(store, store.sql, POSTGRES)
        assert isinstance(store.ledger, PostgresLedger)
        bad += await check_postgres(store, store.ledger._sql, POSTGRES_LEDGER)
    bad += await check_shared(store, SHARED | LOOKS | ERASED | DECISIONS | LEDGER | RESTORES | ENTITIES)
    assert not bad, "\n".join(bad)


WAITING_SQLITE = [
    """INSERT INTO requests (id, source, received_at, query, headers, body, scheme, secret)
       WITH RECURSIVE c (n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM c WHERE n < {end})
       SELECT unhex(printf('%032x', n)), '{source}', n, x'', x'', x'7b7d', 'h', 'f' FROM c""",
    """INSERT INTO events (id, source, type, key, key_origin, fingerprint, request_id, item, received_at,
                           run_started_at, state, due_at, version)
       WITH RECURSIVE c (n) AS (SELECT {start} UNION ALL SELECT n + 1 FROM c WHERE n < {end})
       SELECT unhex(printf('%032x', n)), '{source}', 't' || (n % {types}), 'k' || n, 'signed_id', x'',
              unhex(printf('%032x', n)), 0, n, n, 'pending', 1700000000000000 + n, '{version}' FROM c""",
]
WAITING_POSTGRES = [
    """INSERT INTO requests (id, source, received_at, query, headers, body, scheme, secret)
       SELECT lpad(to_hex(n), 32, '0')::uuid, '{source}', now(), '', '', '{{}}', 'h', 'f'
       FROM generate_series({start}, {end}) AS n""",
    """INSERT INTO events (id, source, type, key, key_origin, fingerprint, request_id, item, received_at,
                           run_started_at, state, due_at, version)
       SELECT lpad(to_hex(n), 32, '0')::uuid, '{source}', 't' || (n % {types}), 'k' || n, 'signed_id', '',
              lpad(to_hex(n), 32, '0')::uuid, 0, now(), now(), 'pending', to_timestamp(1700000000 + n), '{version}'
       FROM generate_series({start}, {end}) AS n""",
]


async def wait_in_line(
    raw: Raw, on_sqlite: bool, source: str, start: int, end: int, types: int = 1, version: str = ""
) -> None:
    for statement in WAITING_SQLITE if on_sqlite else WAITING_POSTGRES:
        await raw.run(statement.format(source=source, start=start, end=end, types=types, version=version))


async def pages(store: Store, shares: Sequence[Share]) -> list[int]:
    """How many pages a claim touches, which is then undone; with a plan that knows its values, and with one that
    does not."""
    if isinstance(store, SqliteStore):
        return [await _pages_of_sqlite(store, shares)]
    assert isinstance(store, PostgresStore)
    named = [(kind, number, share.limit) for number, share in enumerate(shares) for kind in share.kinds]
    sources, types = [kind.source for kind, *_ in named], [kind.type for kind, *_ in named]
    versions = [kind.version for kind, *_ in named]
    numbers, limits = [number for _, number, _ in named], [limit for *_, limit in named]
    run = f"checked('w', 60.0, ARRAY{sources}, ARRAY{types}, ARRAY{versions}, ARRAY{numbers}, ARRAY{limits})"
    found = []
    async with store._use() as connection:
        await connection.execute(f"PREPARE checked AS {store.sql('claim')}")
        for mode in ("force_custom_plan", "force_generic_plan"):
            await connection.execute(f"SET plan_cache_mode = {mode}")
            async with Undone(connection):
                [plan] = json.loads(
                    await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {run}")
                )
            assert plan["Plan"]["Actual Rows"] == sum(share.limit for share in shares)
            found.append(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])
        await connection.execute("DEALLOCATE checked; RESET plan_cache_mode")
    return found


class Undone:
    """A transaction that is rolled back."""

    def __init__(self, connection: Any) -> None:
        self._transaction = connection.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


async def _pages_of_sqlite(store: SqliteStore, shares: Sequence[Share]) -> int:
    def touched(connection: apsw.Connection) -> int:
        counters = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        return sum(connection.status(counter)[0] for counter in counters)

    before = await store._do(touched)
    claimed = await store.claim_shares("w", shares, 60.0)
    after = await store._do(touched)
    assert len(claimed) == sum(share.limit for share in shares)
    await store.settle([Outcome(one.id, one.claim, "release") for one in claimed])
    return after - before


async def test_a_claim_costs_the_same_whatever_waits(store: Store, raw: Raw) -> None:
    """Twenty times the backlog, or a thousand types of it: the trees may be a level higher, and that is all."""
    on_sqlite = isinstance(store, SqliteStore)
    shares = [Share((Kind("a", "t0"),), 8), Share((Kind("b", "t0"),), 8)]
    await wait_in_line(raw, on_sqlite, "b", 1, 20)
    await wait_in_line(raw, on_sqlite, "a", 1001, 2000)
    few = await pages(store, shares)
    await wait_in_line(raw, on_sqlite, "a", 2001, 21_000)
    many = await pages(store, shares)
    assert all(after < before * 1.5 for before, after in zip(few, many, strict=True)), (few, many)
    await wait_in_line(raw, on_sqlite, "c", 30_001, 40_000, types=1000)
    await raw.run("ANALYZE")
    assert max(await pages(store, shares)) < max(many) * 1.5
