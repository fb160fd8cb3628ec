"""Which rule would fit what came: figures from made-up deliveries."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from hookledger.operate.keys.fit import Fit, Observation, fit, repeated, values_of
from hookledger.providers.fields import exact

TYPE = ("body:type",)


def came(
    content: dict[str, Any], headers: dict[str, str] | None = None, *, own: str = "id", volatile: str = ""
) -> Observation:
    """A delivery whose source takes the field `own` for the key."""
    less = {name: value for name, value in content.items() if name != volatile}
    digest = sha256(msgspec.json.encode(less, order="sorted")).digest()
    key = exact((headers or {}).get(own) or content.get(own)) or b""
    values = values_of(content, (headers or {}).items(), hidden=frozenset({"x-sig"}))
    return Observation(str(content.get("type", "")), digest, key, values)


def by_rule(found: list[Fit]) -> dict[tuple[str, ...], Fit]:
    return {one.rule: one for one in found}


def test_fields_and_headers_that_may_be_keys() -> None:
    content = {
        "id": 7,
        "data": {"object": {"id": "in_1", "deeper": {"id": "no"}}},
        "list": [1],
        "flag": True,
        "ratio": 0.5,
        "blank": " ",
        "a.b": "cannot be named",
    }
    headers = [("X-Event-Id", "e1"), ("X-Sig", "s"), ("X-Acme-Signature", "s"), ("Content-Type", "json")]
    headers += [("X-Forwarded-For", "a"), ("X-Request-Id", "r"), ("webhook-timestamp", "1")]
    found = values_of(content, headers, hidden=frozenset({"x-sig"}))
    assert set(found) == {"body:id", "body:data.object.id", "header:x-event-id"}
    assert values_of([content], [], hidden=frozenset()) == {}
    assert len(values_of({str(n): n for n in range(5000)}, [], hidden=frozenset())) == 300


def test_a_rule_that_fits() -> None:
    events = [came({"id": f"evt_{n}", "type": "paid", "object": f"in_{n % 3}"}) for n in range(9)]
    found = fit([*events, events[0]], TYPE, known=("body:id",))
    own = found[0]
    assert (own.own, own.rule, own.fits) == (True, (), True)
    assert (own.keys, own.contents, own.applies) == (9, 9, 10)
    wide = by_rule(found)[("body:object",)]
    assert (wide.fits, wide.wide, wide.keys) == (False, 3, 3)
    assert ("body:id",) not in by_rule(found), "that is the source's own"


def test_an_id_that_changes_on_redelivery_is_too_narrow() -> None:
    orders = [{"order_id": n, "type": "paid"} for n in range(5)]
    events = [
        came(order, {"x-id": f"{attempt}-{n}", "x-sig": "s"}, own="x-id")
        for n, order in enumerate(orders)
        for attempt in "ab"
    ]
    own, best, *_ = fit(events, TYPE, known=("header:x-id",))
    assert (own.fits, own.narrow, own.wide, own.keys, own.contents) == (False, 5, 0, 10, 5)
    assert (best.rule, best.fits) == (("body:order_id",), True)
    assert repeated(events) == 5


def test_an_object_id_for_a_key_is_too_wide() -> None:
    events = [
        came({"uid": f"u{n}{kind}", "type": kind, "object": {"id": f"in_{n}"}, "id": f"in_{n}"})
        for n in range(4)
        for kind in ("created", "paid")
    ]
    found = fit(events, TYPE, known=("body:id",))
    assert (found[0].fits, found[0].wide, found[0].narrow) == (False, 4, 0)
    rules = by_rule(found)
    assert rules[("body:uid",)].fits
    assert rules[("body:type", "body:id")].fits, "the type tells them apart, too"
    assert not rules.get(("body:object.id",), found[0]).fits


def test_what_looks_like_an_id_comes_before_what_happens_to_be_unique() -> None:
    events = [came({"created": n, "text": f"words {n}", "event_id": f"e{n}", "type": "x"}) for n in range(4)]
    assert [one.rule for one in fit(events, TYPE)[1:4]] == [("body:event_id",), ("body:text",), ("body:created",)]


def test_a_field_that_only_some_have() -> None:
    events = [came({"id": n, "type": "x", **({"ref": f"r{n}"} if n else {})}) for n in range(3)]
    [ref] = [one for one in fit(events, TYPE) if one.rule == ("body:ref",)]
    assert (ref.missing, ref.applies, ref.fits) == (1, 2, False)


def test_volatile_fields_make_no_content() -> None:
    twice = [came({"id": 1, "type": "x", "pending": n}, volatile="pending") for n in (2, 1)]
    assert fit(twice, TYPE)[0].fits
    assert not fit([came({"id": 1, "type": "x", "pending": n}) for n in (2, 1)], TYPE)[0].fits


def test_nothing_is_learnt_from_nothing() -> None:
    assert fit([]) == []
    assert fit([came({"id": 1})]) == []
    assert repeated([came({"id": 1}), came({"id": 2})]) == 0
