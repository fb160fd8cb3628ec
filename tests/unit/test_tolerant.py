"""What is picked out of a body is what reading all of it finds; forms and floats are read as the libraries do."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from msgspec.structs import replace

from hookledger.errors import Malformed, Unauthentic, UnreadableError
from hookledger.ids import MAX_TEXT, show
from hookledger.model import Proof, Request
from hookledger.providers import forms
from hookledger.providers.reading import MAX_SHARED, contents, decode
from hookledger.providers.schemes.sns import MAX_UNKNOWN, envelope
from hookledger.providers.tolerant import MAX_FALLBACK, Picker, Tree, decode_json, decode_plain
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from tests.providers.costly import NOW, provider, signed
from tests.providers.made import FIRST, contract_of

TREE: Tree = {"a": None, "b": {"a": None, "c": {"a": None}}, "n": [{"a": {"b": None}}]}
NAMES = ['"a"', '"b"', '"c"', '"n"', '"\\u0061"', '"x"', '" "']
ATOMS = ["1", "-0", "1.5", "1e308", "1e400", "7" * 40, '"t"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', "true", "null"]
ODD = ["NaN", "-Infinity", '"\\ud800"', '"\\udc00x"', "tru", '"\x01"', "01", "7" * 5000, "1.", "[1,]", '{"a"}', '"']


def made(dice: random.Random, depth: int) -> str:
    """JSON, nearly always: names come twice, and are written in two ways."""
    kind = dice.random()
    if depth == 0 or kind < 0.25:
        return dice.choice(ODD) if dice.random() < 0.02 else dice.choice(ATOMS)
    space = dice.choice(["", " ", "\n"])
    if kind < 0.8:
        pairs = [f"{dice.choice(NAMES)}:{space}{made(dice, depth - 1)}" for _ in range(dice.randrange(5))]
        return "{" + f",{space}".join(pairs) + space + "}"
    return "[" + ",".join([made(dice, depth - 1) for _ in range(dice.randrange(4))]) + "]"


def kept(document: Any, tree: Any) -> Any:
    """The fields of the tree, and nothing in arrays and objects beside."""
    if isinstance(document, dict):
        return {name: kept(document[name], tree[name]) for name in document if name in tree} if tree else {}
    if isinstance(document, list):
        return [kept(element, tree[0]) for element in document] if isinstance(tree, list) else []
    return "NaN" if isinstance(document, float) and math.isnan(document) else document


def test_what_is_picked_is_what_all_of_it_says() -> None:
    dice, both, pick = random.Random(13), 0, Picker(TREE)
    for _ in range(40_000):
        raw = made(dice, 4).encode()
        try:
            whole = decode_json(raw)
        except UnreadableError:
            whole = None
        try:
            picked = pick(raw)
        except UnreadableError:
            continue
        if whole is not None:
            tree = TREE if isinstance(picked, dict) else None
            assert kept(picked, tree) == kept(whole, tree), raw
            both += 1
    assert both > 20_000


def test_floats_are_those_of_both_libraries() -> None:
    dice = random.Random(14)
    for _ in range(20_000):
        text = f"{dice.randrange(10**17)}.{dice.randrange(10**6)}e{dice.randrange(-340, 320)}".encode()
        value = decode_plain(text)
        assert value == json.loads(text)
        if math.isfinite(value):
            assert value == msgspec.json.decode(text)


def test_forms_are_read_as_by_the_standard_library() -> None:
    dice = random.Random(15)
    parts = [b"a", b"%", b"4", b"1", b"+", b"&", b"=", b"\\", b"x", b"\xff", b"\n", b"%41", b"%e9", b"%2", b"\\x41"]
    parts += [b";", b" ", b"\0", b"N{DASH}", b"u0041", b"%25", b"%5C"]
    for _ in range(50_000):
        raw = b"".join(dice.choices(parts, k=dice.randrange(14)))
        expected = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
        assert forms.pairs(raw) == [(n.encode("latin-1"), v.encode("latin-1")) for n, v in expected], raw


@pytest.mark.parametrize("raw", [b"a=&" * 1001, b"a=%" + b"%41" * 30_000])
@pytest.mark.parametrize("read", [forms.pairs, partial(forms.values, name="a")])
def test_forms_with_too_much_are_none(raw: bytes, read: Callable[[bytes], object]) -> None:
    with pytest.raises(ValueError, match=r"too many|invalid percent escape"):
        read(raw)


def test_values_of_one_name_are_those_among_all() -> None:
    dice = random.Random(16)
    parts = [b"a", b"%", b"b", b"+", b"&", b"=", b"%61", b"%62", b"%6", b"%e9", b"\\", b"\xff"]
    for _ in range(20_000):
        raw = b"".join(dice.choices(parts, k=dice.randrange(14)))
        for name in ("a", "ab", "", "%", "é"):
            assert forms.values(raw, name) == [v for n, v in forms.pairs(raw) if n == name.encode()], (raw, name)


# ── odd JSON ─────────────────────────────────────────────────────────────────


def mailgun(filler: int) -> Request:
    text = b'{"odd":[NaN,"\\ud800"],"filler":"' + b"x" * filler + b'"}'
    request = signed(FIRST["mailgun"], {"signature": {}, "event-data": {"id": "e", "costly": "here"}}, b"")
    assert request is not None
    return replace(request, body=request.body.replace(b'"here"', text))


def test_unusual_json_is_proved_up_to_a_size() -> None:
    endpoint = provider(FIRST["mailgun"])
    [item] = identify(endpoint, mailgun(100), verify(endpoint, mailgun(100), NOW), NOW)
    assert item.invalid is None and item.provider_id == "e"
    with pytest.raises(Malformed, match="body malformed"):
        verify(endpoint, mailgun(MAX_FALLBACK), NOW)


def test_unusual_json_that_is_proved_may_be_large() -> None:
    body = {**FIRST["linear"].body, "costly": "put the costly text here"}  # type: ignore[dict-item]
    request = signed(FIRST["linear"], body, b"[NaN]" + b" " * MAX_FALLBACK)
    assert request is not None
    endpoint = provider(FIRST["linear"])
    [item] = identify(endpoint, request, verify(endpoint, request, NOW), NOW)
    assert item.invalid is None and item.object_id is not None


def test_what_events_share_is_bounded_and_kept() -> None:
    contract = contract_of("meta")
    many = {"entry": [{"id": "x" * 1000, "changes": [{"field": "feed", "value": number} for number in range(9000)]}]}
    raw = json.dumps(many).encode()
    with pytest.raises(UnreadableError, match="share are too large"):
        contents(contract, decode(contract, raw))
    assert MAX_SHARED < 9000 * 1000
    request = Request("POST", "/meta", b"", (), raw)
    [item] = identify(provider(FIRST["meta"]), request, Proof("hmac-sha256", "", NOW), NOW)
    assert item.invalid == "the fields that its events share are too large"


@pytest.mark.parametrize("value", ["\x7f" * 5000, "\ud800" * 5000, "€" * 5000, "😀" * 300, "a" * 255, "é" * 256])
def test_a_long_text_is_shown_as_before(value: str) -> None:
    raw = value.encode("utf-8", "surrogatepass")
    whole = raw.decode("utf-8", "replace")
    shown = show(raw)
    assert len(shown) <= MAX_TEXT
    head = shown.partition("…")[0]
    assert head == whole[: len(head)].replace("\x7f", "\ufffd")


# ── SNS ──────────────────────────────────────────────────────────────────────

ENVELOPE = {"Type": "Notification", "MessageId": "m", "TopicArn": "t", "Message": 'say "x"', "Timestamp": "now"}


def test_an_envelope_may_have_new_fields() -> None:
    new = {"New": {"Type": "x"}, "Number": 1e308, "Nothing": None}
    attributes = {str(number): {"Type": "String", "Value": "v"} for number in range(999)}
    assert envelope(json.dumps({**ENVELOPE, **new, "MessageAttributes": attributes}).encode()) == ENVELOPE


@pytest.mark.parametrize(
    "more",
    [
        ',"Type":"Notification"}',
        ',"\\u0054ype":"Notification"}',
        ',"x":1,"x":1}',
        ',"\\"":1,"\\"":1}',
        "," + ",".join([f'"k{number}":1' for number in range(MAX_UNKNOWN)]) + "}",
        ',"x":"\xff"}',
    ],
)
def test_an_envelope_that_readers_may_read_in_two_ways_is_refused(more: str) -> None:
    raw = json.dumps(ENVELOPE).encode()[:-1] + more.encode("latin-1")
    with pytest.raises((Malformed, Unauthentic)):
        envelope(raw)
