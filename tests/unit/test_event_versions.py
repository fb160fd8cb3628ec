"""How the version of an event is read, and which handler it selects."""

from __future__ import annotations

from typing import Any

import pytest

from hookledger import ConfigError, Inbox
from hookledger.model import Kind, Pattern
from hookledger.providers.catalogue import find
from hookledger.receive.advice import advice
from hookledger.receive.endpoint import Endpoint
from hookledger.source import Source
from hookledger.work.route import Handler, Routes
from tests.endpoints import configure
from tests.unit.test_identify import EVENT, SECRET, items, one


def stripe(version: str | None, **options: Any) -> Endpoint:
    return configure("stripe", find("stripe"), [SECRET], version=version, **options)


# ── at intake ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "given", "version"),
    [
        ("contract", {"api_version": "2024-06-20"}, "2024-06-20"),
        ("body:data.schema", {"data": {"schema": 3, "object": {"id": "in_1"}}}, "3"),
        ("header:X-Version", {}, "7"),
        ("text:v1", {}, "v1"),
        ("query:version", {}, ""),
        ("contract", {}, ""),
        ("contract", {"api_version": None}, ""),
        ("contract", {"api_version": "  "}, ""),
        ("contract", {"api_version": {"year": 2024}}, ""),
        ("contract", {"api_version": 1.5}, ""),
        ("contract", {"api_version": True}, ""),
        ("contract", {"api_version": "v" * 500}, "v" * 64),
        ("contract", {"api_version": "a\x00b\n\ud83d"}, "a\ufffdb\ufffd\ufffd\ufffd\ufffd"),
    ],
)
def test_where_the_version_is_read(rule: str, given: dict[str, object], version: str) -> None:
    assert one(stripe(rule), EVENT | given, x_version="7").version == version


def test_only_sources_that_ask_have_versions() -> None:
    assert one(stripe(None), EVENT | {"api_version": "2024-06-20"}).version == ""


def test_the_version_is_no_part_of_what_makes_an_event_new() -> None:
    """Whoever repeats a captured body under another unsigned version repeats the event."""
    endpoint = stripe("header:X-Version")
    first, second = (one(endpoint, EVENT, x_version=version) for version in ("1", "2"))
    assert (first.version, second.version) == ("1", "2")
    assert (first.identity, first.fingerprint) == (second.identity, second.fingerprint)


def test_an_unreadable_body_has_the_version_of_its_header() -> None:
    item = one(stripe("header:X-Version"), b"{", x_version="1")
    assert (item.invalid is None, item.version) == (False, "1")


def test_each_item_of_a_request_has_its_own() -> None:
    endpoint = configure("acme", find("hmac", {"header": "X-Sig", "items": "events"}), [SECRET], version="body:v")
    found = items(endpoint, {"events": [{"v": "1"}, {"v": "2"}, {}]})
    assert [item.version for item in found] == ["1", "2", ""]


def test_shopify_names_it_in_a_header() -> None:
    endpoint = configure("shopify", find("shopify"), [SECRET], version="contract")
    assert (
        one(endpoint, {"id": 1}, x_shopify_api_version="2026-07", x_shopify_topic="orders/paid").version == "2026-07"
    )


def test_an_unsigned_version_is_advised_against() -> None:
    def said(rule: str) -> list[str]:
        return [line for line in advice(stripe(rule), reconciled=True) if "version" in line]

    assert said("contract") == said("text:v1") == []
    [line] = said("header:X-Version")
    assert line.startswith("source 'stripe': header:x-version is not signed: anyone who holds a delivery back")


@pytest.mark.parametrize(
    ("provider", "rule", "words"),
    [
        (
            "github",
            "contract",
            "source 's': it is unknown where GitHub names the version of an event: set version to",
        ),
        ("stripe", "api_version", "'api_version' is not a field: write header:NAME"),
        ("stripe", "text:" + "v" * 65, "version must have at most 64 characters, not 65"),
    ],
)
def test_rules_that_cannot_work(provider: str, rule: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure("s", find(provider), [SECRET], version=rule)
    assert words in str(caught.value)


# ── routes ───────────────────────────────────────────────────────────────────


async def handler(event: object) -> None: ...


def routes(*patterns: tuple[str, str | None]) -> Routes:
    """A handler of each type pattern and version."""
    made = Routes()
    for pattern, version in patterns:
        made.add("s", pattern, named(f"{pattern} {version}"), version=version)
    return made


def named(name: str) -> Handler:
    async def run(event: object) -> None: ...

    run.__qualname__ = name
    return Handler(run)


def found(made: Routes, kind: str, version: str = "") -> str | None:
    handler = made.find(Kind("s", kind, version))
    return None if handler is None else handler.name


def test_the_type_decides_before_the_version() -> None:
    made = routes(("*", "2024-06-20"), ("invoice.*", None), ("invoice.paid", "2024-*"), ("invoice.paid", "2024-06-*"))
    assert found(made, "invoice.paid", "2024-06-20") == "invoice.paid 2024-06-*"
    assert found(made, "invoice.paid", "2024-01-01") == "invoice.paid 2024-*"
    assert found(made, "invoice.paid", "2023-01-01") == found(made, "invoice.paid") == "invoice.* None"
    assert found(made, "invoice.made", "2024-06-20") == "invoice.* None"
    assert found(made, "charge.made", "2024-06-20") == "* 2024-06-20"
    assert found(made, "charge.made", "2024-06-21") is found(made, "charge.made") is None


def test_an_exact_version_beats_a_longer_pattern() -> None:
    made = routes(("t", "2024"), ("t", "2024*"), ("t", "*"))
    assert [found(made, "t", version) for version in ("2024", "2024-1", "1", "")] == [
        "t 2024",
        "t 2024*",
        "t *",
        "t *",
    ]


def test_two_handlers_of_one_version_are_a_mistake() -> None:
    made = routes(("t", "2024-*"), ("t", None))
    with pytest.raises(ConfigError, match=r"handle 't' in version '2024-\*'"):
        made.add("s", "t", Handler(handler), version="2024-*")
    with pytest.raises(ConfigError, match=r"handle 't'$"):
        made.add("s", "t", Handler(handler), version="*")


def test_stages_are_those_of_the_version() -> None:
    made = routes(("t", None))
    made.add("s", "t", Handler(handler), "mail", "2024-*")
    made.add("s", "*", Handler(handler), "crm")
    stages = {
        version: getattr(made.find(Kind("s", "t", version)), "stages", None) for version in ("2024-1", "2023", "")
    }
    assert stages == {"2024-1": ("crm", "mail"), "2023": ("crm",), "": ("crm",)}
    assert made.find(Kind("s/mail", "t", "2023")) is None
    assert Pattern("s", "t", "2024-*") in made.handles(), "who has a stage takes its events, too"


@pytest.fixture
def source() -> Source:
    return Inbox().source("stripe", provider="stripe", secrets=[SECRET], version="contract")


@pytest.mark.parametrize("version", ["", "a*b", "v" * 65, 2024])
def test_what_is_no_version(source: Source, version: Any) -> None:
    with pytest.raises(ConfigError, match=r"source 'stripe': .* is not a version: use text of 1 to 64 characters"):
        source.on("invoice.paid", version=version)


def test_a_source_without_versions_has_no_handlers_of_versions() -> None:
    plain = Inbox().source("stripe", provider="stripe", secrets=[SECRET])
    with pytest.raises(
        ConfigError, match="reads no versions, so no event would reach a handler with version=: set its"
    ):
        plain.on("invoice.paid", version="2024-*")
