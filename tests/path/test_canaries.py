"""No output of answers, schemas and guarded routes holds a secret, a payload, an argument or an answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hookledger import Answer, Event, Inbox, Op, Permanent
from hookledger.cli import cli
from hookledger.operate.alerts.words import alert
from hookledger.store.ops.alert_looks import AlertKind
from hookledger.store.ops.alert_messages import Watch
from tests.asgi_client import Site, stripe_event
from tests.path.conftest import MakeSite
from tests.path.test_guard_signals import charts
from tests.path.test_idempotent import Shop
from tests.path.test_log_lines import CANARIES, FORMS, HIDDEN, LISTINGS, canaries_in, printed
from tests.path.test_traces import exporter  # noqa: F401 - a fixture

SECRET, CREDENTIAL, BODY = CANARIES["secret"], CANARIES["credential"], CANARIES["body"]
ARGUMENT, RESULT, SIGNATURE = CANARIES["argument"], CANARIES["result"], CANARIES["signature"]
ANSWERED = ("typed", "model", "checked", "answered", "answered.bug", "answered.no", "answered.dead", "answered.unfit")
OURS = {"receive", "process", "effect"}
"""What our spans are called: the application's framework has spans of its own."""
HEADERS = [("Authorization", f"Bearer {CREDENTIAL}"), ("Cookie", CREDENTIAL), ("X-Request-Id", "req-1")]


class Typed(msgspec.Struct):
    note: Literal["of ours"]


class Model(pydantic.BaseModel):
    note: str

    @pydantic.field_validator("note")
    @classmethod
    def of_ours(cls, value: str) -> str:
        raise ValueError(f"{value} is not ours")


SCHEMA = {"properties": {"note": {"enum": ["of ours"]}}, "patternProperties": {"^canary": {"type": "integer"}}}


def declare(inbox: Inbox, folder: Path) -> None:
    for source in ("shop", "strict"):
        path = folder / source / "checked" / "default.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(SCHEMA))
    shop = inbox.source("shop", provider="stripe", secrets=[SECRET])
    strict = {"schema_check": "intake", "schema_break": "refuse"}
    inbox.source("strict", provider="stripe", secrets=[SECRET], **strict).on("checked")(handled)  # type: ignore[arg-type]

    @inbox.effect(repeat="never")
    async def post(op: Op, note: str) -> str:
        return RESULT

    @shop.on("typed", body=Typed)
    async def typed(event: Event) -> None: ...

    @shop.on("model", body=Model)
    async def model(event: Event) -> None: ...

    shop.on("checked")(handled)

    @shop.answer("answered", deadline=20)
    async def answered(event: Event) -> Answer:
        await event.call(post, "k", note=ARGUMENT)
        return Answer(RESULT, 200, {"X-Note": RESULT})

    @shop.answer("answered.bug", deadline=20)
    async def bug(event: Event) -> Answer:
        raise KeyError("plan" if event.json["note"] else "")

    @shop.answer("answered.no", deadline=20)
    async def no(event: Event) -> Answer:
        return Answer(RESULT, 422)

    @shop.answer("answered.dead", deadline=20, failed=Answer(RESULT))
    async def dead(event: Event) -> Answer:
        raise Permanent("unknown plan")

    @shop.answer("answered.unfit", deadline=20)
    async def unfit(event: Event) -> Answer:
        return Answer(RESULT, 200, {"X-Note": RESULT + "\r\n"})


async def handled(event: Event) -> None: ...


async def provoke(site: Site, folder: Path) -> None:
    """Answers, breaks of schemas and guarded requests of every end, with a canary in each secret place."""
    inbox = site.inbox
    declare(inbox, folder)
    for _ in range(2):
        for kind in ANSWERED:
            event = stripe_event(f"evt_{kind}", kind, note=BODY, **{BODY: BODY})
            await site.deliver(event, source="shop", headers=HEADERS)
    await site.deliver(stripe_event("evt_strict", "checked", note=BODY), source="strict", headers=HEADERS)
    await site.deliver(stripe_event("evt_answered", "answered", note=BODY + "2"), source="shop", headers=HEADERS)
    shop = Shop(str(inbox.database))
    shop.inbox = inbox
    guard = shop.guard("POST /orders", "POST /bug", "POST /no", "POST /cookie")

    @shop.route()
    async def order(event: Event) -> Any:
        return {"note": RESULT}

    @shop.route("/bug")
    async def breaks(event: Event) -> Any:
        raise KeyError("plan")

    @shop.route("/no")
    async def refuses(event: Event) -> Any:
        raise Permanent("unknown plan")

    @shop.app.post("/cookie")
    async def cookie() -> Any:
        raise Permanent("unknown plan")

    for path in ("/orders", "/bug", "/no", "/cookie"):
        for body in (BODY, BODY, BODY + "2"):
            try:
                secret = [("X-Api-Key", CREDENTIAL), ("Cookie", CREDENTIAL), ("X-Signature", SIGNATURE)]
                given = {"headers": secret, "query": f"token={CREDENTIAL}".encode()}
                await shop.post(f'"{path[1:]}"', {"note": body}, path=path, who="acme", **given)
            except KeyError:
                pass
    await guard.stop()
    await site.work()
    await site.work(later=3600)


async def told(inbox: Inbox) -> str:
    """What alerts, charts and metrics say."""
    async with inbox.operating() as context:
        watch = Watch("ops", frozenset(AlertKind), unproved=(), signature_failures=5)
        await context.store.alert_looks.look(watch)
        messages = await context.store.alert_messages.page(limit=500)
        assert messages
        words = [repr(alert(one, "shop")) + repr(one) for one in messages]
    return "".join([*words, repr(await charts(inbox)), inbox.metrics()])


@pytest.fixture
async def site(site_on: MakeSite, sqlite_url: str, tmp_path: Path) -> Site:
    return await site_on(sqlite_url, {"schemas": {"path": str(tmp_path / "of-schemas")}})


# proves R26
@pytest.mark.parametrize("form", FORMS)
async def test_no_line_span_alert_or_metric_holds_a_secret_a_payload_or_an_answer(
    site: Site,
    form: str,
    exporter: InMemorySpanExporter,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "of-schemas").mkdir()
    with printed(monkeypatch, **FORMS[form]) as screen:
        await provoke(site, tmp_path / "of-schemas")
    shown = screen.getvalue()
    assert all(word in shown for word in ("evt_answered.bug", "KeyError", "partner", "POST /no"))
    assert canaries_in(shown) == []
    assert canaries_in(await told(site.inbox)) == []
    spans = [one for one in exporter.get_finished_spans() if one.name.split()[0] in OURS]
    assert {"receive shop", "process shop", "receive partner", "process partner"} <= {one.name for one in spans}
    assert canaries_in("".join(one.to_json() for one in spans)) == []
    await site.inbox.asgi.stop()
    database = ("--database", str(site.inbox.database))

    async def run(*arguments: str) -> str:
        ended = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, *database])
        assert ended.output, arguments
        return ended.output

    for name in (*LISTINGS, "alerts"):
        assert canaries_in(await run(name)) == [], name
        assert canaries_in(await run(name, "--json")) == [], name
    for event in await site.events():
        assert canaries_in(await run("show", str(event.id)), *HIDDEN) == []
        assert canaries_in(await run("show", str(event.id), "--json"), *HIDDEN) == []
