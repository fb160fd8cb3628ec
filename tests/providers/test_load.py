"""Contract files are read strictly, one at a time, and shared keys reach every contract of a file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hookledger.errors import ConfigError
from hookledger.providers.catalogue import contracts, find
from hookledger.providers.contract import WHOLE, Contract
from hookledger.providers.fields import Present, body, header
from hookledger.providers.load import load, parse, stems
from hookledger.providers.schemes.certificate import Certificate
from hookledger.providers.schemes.hmac import Hmac
from hookledger.providers.schemes.token import Token

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
ACME = """
title = "Acme"
id = "body:id"

[scheme]
kind = "hmac"
header = "X-Acme-Signature"
"""


def test_the_example_for_contributors_is_a_contract() -> None:
    [text] = re.findall(r"```toml\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    [acme] = parse("acme", text).values()
    assert (acme.name, acme.id, acme.type) == ("acme", body("id"), (body("kind"),))
    assert acme.scheme == Hmac(header=b"x-acme-signature", encoding="base64")
    assert acme.retries.hours == 24


def test_a_table_is_read_as_the_type_of_its_field() -> None:
    text = """
    title = "Acme"
    type = ["present:created deleted", "header:X-Kind"]
    volatile = ["meta.sent"]
    items = [[]]
    answer = { status = 200, body = "ok" }
    repeatable = " a b  c "
    shown = [{ types = "a", exact = { "" = "id kind", meta = "sent" }, says = { kind = true } }]

    [scheme]
    kind = "sns"
    host = "a"
    path = "b"

    [[handshakes]]
    method = "GET"
    when = { "query:mode" = "subscribe", "query:challenge" = "*" }
    """
    acme = parse("acme", text)["acme"]
    assert acme.type == (Present(("created", "deleted")), header("x-kind"))
    assert (acme.volatile, acme.items, acme.answer.body) == ((body("meta.sent"),), ((),), b"ok")
    assert acme.repeatable == {"a", "b", "c"}
    [shape] = acme.shown
    assert dict(shape.exact) == {WHOLE: {"id", "kind"}, body("meta"): {"sent"}}
    assert shape.says == ((body("kind"), True),)
    assert acme.scheme == Certificate(kind="sns", host="a", path="b")
    assert [expected for _, expected in acme.handshakes[0].when] == ["subscribe", None]


def test_contracts_of_a_file_share_what_is_outside_their_tables() -> None:
    text = """
    deadline = 5
    [scheme]
    kind = "hmac"
    header = "x-sig"
    message = "{ts}.{body}"
    timestamp = { header = "x-time", tolerance = 300 }
    [[contract]]
    name = "acme"
    title = "Acme"
    [[contract]]
    name = "acme_slow"
    title = "Acme, slow"
    deadline = 60
    scheme.timestamp.tolerance = 900
    """
    fast, slow = parse("acme", text).values()
    assert [(one.name, one.deadline, one.scheme.tolerance) for one in (fast, slow)] == [
        ("acme", 5, 300),
        ("acme_slow", 60, 900),
    ]
    assert isinstance(slow.scheme, Hmac)
    assert slow.scheme.header == b"x-sig"


MISTAKES = [
    ("title = ", "acme.toml: Invalid value"),
    ("title = 'Acme'", "acme.toml: scheme is missing: add it"),
    ("colour = 1\n" + ACME, "acme.toml: unknown key colour: the known keys are name, title"),
    ("deadlines = 1\n" + ACME, "acme.toml: unknown key deadlines: did you mean deadline?"),
    ("deadline = '5'\n" + ACME, "acme.toml: deadline: Expected `float`, got `str`"),
    ("max_body = 1.5\n" + ACME, "acme.toml: max_body: Expected `int`, got `float`"),
    ("stable = 'perhaps'\n" + ACME, "acme.toml: stable: Invalid enum value 'perhaps'"),
    ("type = 'body:kind'\n" + ACME, "acme.toml: type: Expected `array`, got `str`"),
    ("type = ['kind']\n" + ACME, "acme.toml: type[0]: 'kind' is not a field: write header:NAME"),
    ("types = ['a']\n" + ACME, "acme.toml: types: Expected `str`, got `array`"),
    ("name = 'other'\n" + ACME, "acme.toml: name: 'other' is taken or does not begin with 'acme'"),
    ("hint = true\n" + ACME, "acme.toml: each arrival of a hint is a separate event: remove its key"),
    (ACME + "heder = 'a'", "acme.toml: unknown key scheme.heder: did you mean header?"),
    (ACME + "prefix = 'é'", "acme.toml: scheme.prefix: 'é' must be ASCII"),
    (ACME + "timestamp = 5", "acme.toml: scheme.timestamp: Expected `object`, got `int`"),
    (ACME + "timestamp = {}", "acme.toml: scheme.timestamp: the signed time needs exactly one place"),
    (ACME + "message = '{ts}'", "acme.toml: scheme: {ts} must be both in the signed message and in the request"),
    (ACME.replace('"hmac"', '["hmac"]'), "acme.toml: scheme.kind: ['hmac'] is not a kind of scheme"),
    (ACME.replace("hmac", "rot13"), "acme.toml: scheme.kind: 'rot13' is not a kind of scheme: write one of"),
    (ACME + "[[handshakes]]\nmethod = 'GET'", "acme.toml: handshakes[0].when is missing: add it"),
    (ACME + "[confirmed]\nsignature = 'docs'", "acme.toml: confirmed.event is missing: add it"),
    (ACME + "[[contract]]\nname = 'acme'\n[[contract]]", "acme.toml: contract[1].name is missing: add it"),
    (ACME + "[[contract]]\nname = 'acme'\n" * 2, "acme.toml: contract[1].name: 'acme' is taken"),
    (ACME + "[contract]\nname = 'acme'", "acme.toml: contract: Expected `array`, got `object`"),
]


@pytest.mark.parametrize(("text", "problem"), MISTAKES, ids=[problem for _, problem in MISTAKES])
def test_a_mistake_is_named_with_file_and_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse("acme", text)


def test_every_file_is_found_by_the_names_of_its_contracts() -> None:
    assert len(stems()) == 58
    assert sum(len(load(stem)) for stem in stems()) == len(contracts())
    for stem in stems():
        assert not any(other.startswith(f"{stem}_") for other in stems()), "two files would claim one name"


def test_one_provider_reads_one_file() -> None:
    code = (
        "from hookledger.providers import catalogue, load\n"
        "found = catalogue.find('slack_events')\n"
        "print(found.name, load.load.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "slack_events 1\n"


def test_a_contract_in_python_needs_no_file() -> None:
    acme = Contract(name="acme", title="Acme", scheme=Token(header=b"x-token"))
    assert acme.name not in contracts()
    with pytest.raises(ConfigError, match="unknown provider 'acme'"):
        find("acme")
