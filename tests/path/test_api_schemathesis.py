"""The API against its own description, by schemathesis: over HTTP, on a database with a long past."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from hookledger import Inbox
from hookledger.cli.api import OperatorListener
from hookledger.ids import operation_key
from hookledger.ledger import Effect
from hookledger.operate.api.auth import Role
from hookledger.operate.api.call import Call
from hookledger.operate.api.table import CALLS
from hookledger.states import EffectState, State
from hookledger.store.history import EventRow
from hookledger.store.ops.consistency import ConsistencyReport
from tests.builders import Raw
from tests.operators import CHANGING, SETTINGS, TOKENS, give_past, make_inbox
from tests.soak import amount

EXAMPLES = amount(1, 2, 10)
"""Requests of each kind for each call, besides those at the edges of its parameters."""
SEED = 20
TRIED = [call for call in CALLS if call.path != "/openapi.json"]  # which it asks for, and does not try


@contextmanager
def served(database: str) -> Iterator[tuple[str, Inbox]]:
    """Behind the listener that `hookledger receive` has, with a past in which everything happened."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inbox = make_inbox(database, {**SETTINGS, "operator": {**SETTINGS["operator"], "port": port}})
    asyncio.run(_prepare(inbox))
    listener = OperatorListener(inbox)
    thread = threading.Thread(target=lambda: asyncio.run(listener.serve()))
    thread.start()
    try:
        _wait(f"http://127.0.0.1:{port}/healthz")
        yield f"http://127.0.0.1:{port}/api/v1", inbox
    finally:
        listener.stop()
        thread.join(30)
    assert not thread.is_alive()


async def _prepare(inbox: Inbox) -> None:
    await inbox.migrate()
    await give_past(inbox, steps=1200, states=[*State, EffectState.UNKNOWN, EffectState.DONE])


def _wait(url: str) -> None:
    for _ in range(1200):
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.HTTPError:
            threading.Event().wait(0.05)
    raise AssertionError("the listener does not answer")


class Known:
    """What there is, so that calls are not only about what there is not."""

    def __init__(self, inbox: Inbox) -> None:
        self.events: list[EventRow] = []
        self.names: dict[str, list[str]] = {"source": ["stripe"], "provider": ["github"], "downstream": ["mail"]}
        self.effects: dict[str, Effect] = {}
        asyncio.run(self._read(inbox))

    async def _read(self, inbox: Inbox) -> None:
        async with inbox.opened() as store:
            self.events = await store.search.events(limit=1000)
            for row in self.events:
                history = await store.history(row.id)
                assert history is not None
                unknown_last = sorted(history.effects, key=lambda known: known.effect.state is EffectState.UNKNOWN)
                self.effects |= {str(row.id): known.effect for known in unknown_last}
            odd = await store.quarantine.quarantined(limit=50)
            self.names["delivery"] = [f"{one.request_id}:{one.item}" for one in odd]
            self.names["rejection"] = [str(one.id) for one in await store.rejections.sample()]
            assert {effect.state for effect in self.effects.values()} >= {EffectState.UNKNOWN, EffectState.DONE}

    def point(self, case: Any, chance: random.Random) -> None:
        """Make it about something, and the decision one on how that was: it may be another by now."""
        for name in case.path_parameters or {}:
            if self.names.get(name):
                case.path_parameters[name] = chance.choice(self.names[name])
        if "reference" not in (case.path_parameters or {}):
            return
        row = chance.choice(self.events)
        case.path_parameters["reference"] = str(row.id)
        expected = case.body.get("expected") if isinstance(case.body, dict) else None
        effect = self.effects.get(str(row.id))
        if "effect" in case.path_parameters and effect is not None:
            # A name may fit several.
            case.path_parameters["effect"] = operation_key(effect.identity, effect.generation)
            if isinstance(expected, dict):
                expected |= {"state": effect.state.value, "fence": effect.fence}
        elif isinstance(expected, dict) and "effect" not in case.path_parameters:
            expected |= {"state": row.state.value, "claim": row.claim}
            expected.pop("preview", None)


Answered = Counter[tuple[str, int]]


def whole(value: Any) -> Any:
    """JSON Schema takes 1.0 for an integer; this API does not, and no description can say so."""
    if isinstance(value, dict):
        return {name: whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return [whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def explore(
    base: str,
    role: str | None,
    *,
    phases: dict[str, Any],
    known: Known | None = None,
    calls: Sequence[Call] = TRIED,
    mode: str = "all",
) -> Answered:
    """How often each call was answered with each status. Fails with all that schemathesis finds wrong."""
    reads = {"Authorization": f"Bearer {TOKENS['viewer']}"}
    config = SchemathesisConfig.from_dict(
        {
            "seed": SEED,
            "headers": {} if role is None else {"Authorization": f"Bearer {TOKENS[role]}"},
            "generation": {"max-examples": EXAMPLES, "mode": mode, "database": "none", "no-shrink": True},
            "phases": phases,
            # A request that fits the description may be refused for what it is about; 5xx never is an answer.
            "checks": {
                "positive_data_acceptance": {"expected-statuses": ["2xx", 401, 403, 404, 409, 422]},
                **({} if role else {"ignored_auth": {"enabled": False}, "unsupported_method": {"enabled": False}}),
            },
        }
    )
    described = schemathesis.openapi.from_url(f"{base}/openapi.json", config=config, headers=reads)
    schema = described.include(operation_id=[call.name for call in calls])
    chance = random.Random(SEED)
    if known is not None:

        @schema.hook
        def map_case(context: Any, case: Any) -> Any:
            del context
            valid = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
            if valid and chance.random() < 0.7:
                known.point(case, chance)
            if valid and isinstance(case.body, dict | list):
                case.body = whole(case.body)
            return case

    answered: Answered = Counter()
    wrong: list[str] = []
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            answered += _statuses(event)
            wrong += _failures(event)
        elif isinstance(event, events.NonFatalError | events.FatalError):
            wrong.append(repr(event))
    assert not wrong, "\n".join(wrong[:10])
    return answered


def _statuses(event: events.ScenarioFinished) -> Answered:
    recorder = event.recorder
    found: Answered = Counter()
    for ident, interaction in recorder.interactions.items():
        case = recorder.cases[ident].value
        if interaction.response is not None:
            found[f"{case.method} {case.operation.path}", interaction.response.status_code] += 1
    return found


def _failures(event: events.ScenarioFinished) -> list[str]:
    return [
        f"{event.recorder.label}: {check.name}: {check.failure_info.failure}\n{check.failure_info.code_sample}"
        for checks in event.recorder.checks.values()
        for check in checks
        if check.failure_info is not None
    ]


ALL = {"examples": {"enabled": False}}
FITTING = {name: {"enabled": False} for name in ("examples", "stateful")}
EDGES = {name: {"enabled": False} for name in ("examples", "fuzzing", "stateful")}


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_no_call_fails_or_says_what_it_did_not_announce(database_url: str) -> None:
    # What does not fit the description is refused before any store hears of it: once is enough.
    phases, mode = (ALL, "all") if database_url.startswith("sqlite") else (FITTING, "positive")
    with served(database_url) as (base, inbox):
        answered = explore(base, "admin", phases=phases, known=Known(inbox), mode=mode)
        assert not [found for found in answered if found[1] >= 500]
        asked = {call for call, _ in answered}
        assert asked >= {f"{call.method} {call.path}" for call in TRIED}
        done = {call for call, status in answered if status == 200}
        changing = {f"{call.method} {call.path}" for call in CALLS if call.method == "POST"}
        assert len(done & changing) >= 6, f"only {done & changing} were ever done"
        accounts = asyncio.run(_accounts(inbox))
        assert not accounts.imbalances, "whatever was done, everything is accounted for"


@pytest.mark.timeout(400)
def test_no_call_is_answered_without_its_role(sqlite_url: str) -> None:
    with served(sqlite_url) as (base, inbox):
        before = asyncio.run(_snapshot(inbox))
        for role in (None, "viewer", "operator"):
            barred = [call for call in TRIED if role is None or not Role(role).covers(call.role)]
            answered = explore(base, role, phases=EDGES, calls=barred, mode="positive")
            for call in barred:
                name = f"{call.method} {call.path}"
                statuses = {status for found, status in answered if found == name}
                assert statuses, name
                allowed = {401} if role is None else {401, 403, 404, 405}
                assert statuses <= allowed, (role, name, statuses)
        assert asyncio.run(_snapshot(inbox)) == before, "nothing was changed"


async def _accounts(inbox: Inbox) -> ConsistencyReport:
    async with inbox.opened() as store:
        return await store.consistency.report(limit=30.0)


async def _snapshot(inbox: Inbox) -> dict[str, Any]:
    async with inbox.opened() as store:
        return {table: await Raw(store).all(table) for table in CHANGING}
