"""Schemas: what is refused at the start, what a break says, and that no content makes a check fail or last."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from hookledger import Inbox
from hookledger.errors import ConfigError, ContentRefused
from hookledger.providers.tolerant import decode_json
from hookledger.receive.schema_check import with_breaks
from hookledger.schemas.breaks import MAX_BREAKS, Break, in_words
from hookledger.schemas.compiled import MAX_ERRORS, Schema, is_plain
from hookledger.schemas.folder import Schemas, escaped, load, path_of
from hookledger.schemas.settings import SchemaSettings
from hookledger.store.causes import MAX_CAUSE, cause_of, masked_cause
from tests.builders import item


def schema(document: Any) -> Schema:
    return Schema("shop/order/default.json", document)


def breaks(document: Any, content: Any) -> list[tuple[str, str, str]]:
    return [(one.pointer, one.expected, one.found) for one in schema(document).check(content)]


# ── what a break says ──

LINES = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "maxLength": 5},
        "lines": {"type": "array", "items": {"properties": {"price": {"type": ["number", "null"], "minimum": 0}}}},
        "owner": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["name"]}]},
        "kind": {"enum": ["a", "b"]},
    },
}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"id": "1", "lines": [{"price": 1}], "unknown": {"what": "ever"}}, []),
        ({}, [("/id", "a value", "nothing")]),
        ([], [("", "object", "an array of 0 items")]),
        ({"id": "sk_secret_value"}, [("/id", "at most 5 characters", "a string of 15 characters")]),
        ({"id": "1", "kind": "personal"}, [("/kind", "one of 2 values", "a string of 8 characters")]),
        (
            {"id": "1", "lines": [{"price": 1}, {"price": "ten"}]},
            [("/lines/1/price", "null or number", "a string of 3 characters")],
        ),
        ({"id": "1", "lines": [{"price": -1}]}, [("/lines/0/price", "at least 0", "an integer")]),
        ({"id": "1", "owner": {"phone": "030"}}, [("/owner/name", "a value", "nothing")]),
    ],
)
def test_a_break_says_where_what_was_expected_and_what_was_found(content: Any, expected: Any) -> None:
    assert breaks(LINES, content) == expected


def test_names_that_the_schema_does_not_have_are_no_part_of_a_break() -> None:
    document = {"additionalProperties": {"properties": {"phone": {"type": "string"}}}}
    assert breaks(document, {"ada@example.com": {"phone": 30}}) == [("/*/phone", "string", "an integer")]


@pytest.mark.parametrize("name", ["0", "4111111111111111", "007", "+49"])
@pytest.mark.parametrize("more", [0, 2000])
def test_a_name_of_digits_is_no_index(name: str, more: int) -> None:
    content = {"a": {name: {"phone": 30}}, "more": [0] * more}
    phones = {"additionalProperties": {"properties": {"phone": {"type": "string"}}}}
    [found] = breaks({"properties": {"a": phones}}, content)
    assert found in [
        ("/a/*/phone", "string", "an integer"),
        ("", "content that fits the schema", "an object of 2 fields"),
    ]
    if name == "0":
        declared = {"properties": {"a": {"properties": {name: {"required": ["7"]}}}}}
        assert breaks(declared, content) == [("/a/0/7", "a value", "nothing")]


def test_a_break_has_one_cause_for_each_schema_and_place() -> None:
    def cause(name: str, pointer: str, found: str) -> str | None:
        reason, _ = in_words(name, [Break(pointer, "number", found)])
        return cause_of(reason)

    first = cause("shop/order/2024-01-01.json", "/lines/1/price", "a string of 3 characters")
    assert first == "schema break in shop/order/2024-01-01.json at /lines/*/price"
    assert cause("shop/order/2024-01-01.json", "/lines/77/price", "null") == first
    assert cause("shop/order/2025-01-01.json", "/lines/1/price", "null") != first
    assert cause("shop/order/2024-01-01.json", "/lines/1/v2", "null") != first
    long = cause("shop/" + "o" * 300 + "/default.json", "/a" * 200, "null")
    assert long is not None
    assert len(long) == MAX_CAUSE
    assert masked_cause(first) == first, "it has no words of the payload"


# ── what is refused at the start ──

DOUBLE = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(24)} | {"a24": {"type": "string"}}
DEEPER = {f"a{n}": {"allOf": [{"properties": {"x": {"$ref": f"#/$defs/a{n + 1}"}}}] * 2} for n in range(24)} | {
    "a24": {"type": "string"}
}
NESTED: Any = {"type": "string"}
for _ in range(200):
    NESTED = {"properties": {"a": NESTED}}


WORDS = [f"p{n}" for n in range(2000)]
SLOW = "^[01]*1[01]{8000}$"
TWICE = {"allOf": [{"properties": {"a": {"$ref": "#/$defs/xA"}}}] * 2}


# proves R40
@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"type": "strnig"}, "at /type: "),
        ({"properties": {"a": {"minimum": "1"}}}, "at /properties/a/minimum: "),
        ({"$ref": "#"}, "applies itself to the same value"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "not": {"$ref": "#/$defs/a"}}, "to the same value"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "to the same value"),
        ({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}, "more than once"),
        ({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"b": {"$ref": "#"}}}, "more than once"),
        ({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}, "more than once"),
        ({"$ref": "#/$defs/a0", "$defs": DOUBLE}, "applies more than 5,000 schemas to one value"),
        ({"$ref": "#/$defs/a0", "$defs": DEEPER}, "may be looked at more than 5,000 times"),
        ({"pattern": "(?=a)b"}, "at /pattern: "),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "at /properties/a/pattern: "),
        ({"pattern": "((a{1000}){1000}){1000}"}, "of limited size"),
        (NESTED, "nested too deeply"),
        ({"enum": [{"a": n} for n in range(6000)]}, "applies more than 5,000 schemas to one value, or what takes"),
        ({"dependentRequired": {f"a{n}": ["b"] for n in range(6000)}}, "or what takes as long"),
        ({"allOf": [{"pattern": SLOW}] * 6}, "or what takes as long, such as large patterns"),
        ({"allOf": [{"patternProperties": {SLOW: {}}}] * 6}, "or what takes as long, such as large patterns"),
        (
            {"$defs": {"a": {"allOf": [True] * 2000}}, "properties": {name: {"$ref": "#/$defs/a"} for name in WORDS}},
            "too many schemas to too many fields",
        ),
        ({"$schema": 5}, "at /$schema: only JSON Schema 2020-12"),
        (
            # Decoded twice, the first $ref would lead to the second schema.
            {"$ref": "#/$defs/x%2541", "$defs": {"x%41": {"$ref": "#/$defs/xA"}, "xA": TWICE}},
            "more than once",
        ),
    ],
)
def test_a_schema_without_a_bound_is_refused_at_the_start(document: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"shop/order/default\.json") as refused:
        written(tmp_path, {"shop/order/default.json": document})
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("document", "deep", "shallow"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}}}, True, True),
        ({"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"$ref": "#"}}}]}, True, True),
        (
            {"type": "object", "additionalProperties": {"$ref": "#"}, "properties": {"b": {"type": "null"}}},
            True,
            True,
        ),
        ({"type": "object", "required": ["z"], "properties": {"a": {"$ref": "#"}}}, False, False),
    ],
)
def test_a_schema_that_applies_itself_once_to_each_value_ends(document: Any, deep: bool, shallow: bool) -> None:
    content: Any = {}
    for _ in range(120):
        content = {"a": content}
    assert (not breaks(document, content)) is deep
    assert (not breaks(document, {})) is shallow


def test_large_leaves_of_a_tree_count_once() -> None:
    leaf = {"pattern": "^.{1,1000}$", "enum": [str(n) for n in range(50_000)]}
    document = {"properties": {"name": leaf, "parts": {"items": {"$ref": "#"}}}}
    assert not breaks(document, {"name": "1", "parts": [{"name": "2", "parts": []}]})
    assert breaks(document, {"parts": [{"name": "x"}]}) == [
        ("/parts/0/name", "one of 50,000 values", "a string of 1 character")
    ]


def test_patterns_take_linear_time() -> None:
    assert len(breaks({"pattern": "^(a+)+$"}, "a" * 100_000 + "b")) == 1
    assert not breaks({"pattern": "^(a|a)*$"}, "a" * 100_000)


# ── content ──


def test_content_that_is_not_quite_json_is_checked_all_the_same() -> None:
    number = schema({"properties": {"a": {"type": "number"}}})
    assert not number.check({"a": float("inf")})
    assert not number.check({"a": 10**4000})
    assert number.check({"a": float("nan")}) == [Break("/a", "a number of JSON", "NaN")]
    empty = schema({"properties": {"a": {"type": "null"}}})
    assert empty.check({"a": float("inf")}) == [Break("/a", "null", "a number")]
    text = schema({"properties": {"a": {"type": "string"}}, "maxProperties": 2})
    for plain in (False, True):
        assert not text.check({"a": "\ud800", "\ud800": 1}, plain=plain)
        assert not text.check({"a": "\0", "\0": 1}, plain=plain)
        assert text.check({"a": 1, "\ud800": 1}, plain=plain) == [Break("/a", "string", "an integer")]


@pytest.mark.parametrize(
    "number", ["1e400", "1E+400", "1" * 310 + ".0", "9" * 309 + "e0", "1" * 290 + "e99", "-1e0999", "NaN", "Infinity"]
)
def test_bytes_tell_that_content_may_not_be_json(number: str) -> None:
    raw = f' {{"a": {number}}}'.encode()
    small = schema({"properties": {"a": {"minimum": -5, "maximum": 5}}})
    assert small.check(decode_json(raw), plain=is_plain(raw))
    assert is_plain(b' {"a": [0.1, -1e5, 9999999999999999999]}')
    assert not is_plain(b"payload=%7B%22a%22:N%61N%7D")


def test_the_bytes_of_a_request_are_read_once_for_all_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Inbox().source("shop", provider="stripe", secrets=["x" * 20], schema_check="intake")
    one = schema({"required": ["id"]})
    schemas = Schemas({("shop", "order"): {"default": one}})
    looks: list[bytes] = []

    def look(raw: bytes) -> bool:
        looks.append(raw)
        return True

    monkeypatch.setattr("hookledger.receive.schema_check.is_plain", look)
    items = [item(str(n), source="shop", type="order") for n in range(100)]
    with_breaks(msgspec.structs.replace(source.endpoint, schemas=schemas), items, [{"id": 1}] * 100, b"[]")
    assert looks == [b"[]"]


def test_what_breaks_often_is_told_a_few_times() -> None:
    document = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    found = breaks(document, list(range(200_000)))
    assert found == [("/0", "string", "an integer")]
    many = breaks({"items": {"type": "string"}}, list(range(900)))
    assert len(many) == MAX_BREAKS
    late = breaks({"items": {"type": "string"}}, ["x"] * 5000 + [1])
    assert late == [("", "content that fits the schema", "an array of 5,001 items")], "where is not searched for"


class _Counting:
    """A validator that counts the errors which it collects."""

    def __init__(self, validator: Any) -> None:
        self.validator = validator
        self.errors = 0

    def is_valid(self, content: Any) -> bool:
        return bool(self.validator.is_valid(content))

    def iter_errors(self, content: Any) -> Any:
        found = list(self.validator.iter_errors(content))
        self.errors += len(found)
        return iter(found)


@pytest.mark.parametrize(
    ("document", "content"),
    [
        ({"items": {"allOf": [{"type": "string"}] * 4000}}, [1] * 900),
        ({"items": {"required": [f"a{n}" for n in range(4000)]}}, [{}] * 900),
        ({"allOf": [{"type": "integer"}] * 4000}, "x" * 100_000),
        ({"items": {"items": {"type": "string"}}}, [[1] * 10] * 50_000),
    ],
)
def test_breaks_of_any_schema_are_searched_for_in_bounded_memory(document: Any, content: Any) -> None:
    one = schema(document)
    one._validator = counting = _Counting(one._validator)
    assert one.check(content)
    assert 0 < counting.errors <= MAX_ERRORS


def test_a_break_of_a_part_is_one_of_the_whole() -> None:
    fields = {f"a{n}": n for n in range(1200)} | {"last": 1}
    document = {
        "required": ["last"],
        "properties": {"a1": {"type": "string"}, "list": {"enum": [list(range(30))], "minItems": 30}},
    }
    content = {"list": list(range(30)), **fields}
    assert breaks(document, content) == [("/a1", "string", "an integer")]
    assert breaks({"type": "integer"}, "x" * 2_000_000) == [("", "integer", "a string of 2,000,000 characters")]


# ── the folder ──


def written(root: Path, files: dict[str, Any], sources: tuple[str, ...] = ("shop",)) -> Schemas:
    for name, document in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return load(SchemaSettings(path=str(root)), sources)


def test_a_schema_is_found_by_source_type_and_version(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        {
            "shop/order/default.json": True,
            "shop/order/2024-01.json": True,
            "shop/orders%2Fcreate/1%2B.json": True,
            "other/order/default.json": {"type": "strnig"},
            "shop/order/README.md": "kept",
            "shop/.DS_Store": "kept",
            "shop/__init__.py": "kept",
            "shop/__pycache__/__init__.cpython-311.pyc": "kept",
        },
    )

    def name(*of: str | None) -> str | None:
        one = found.find(*of)  # type: ignore[arg-type]
        return None if one is None else one.name

    assert name("shop", "order", None) == "shop/order/default.json"
    assert name("shop", "order", "2024-01") == "shop/order/2024-01.json"
    assert name("shop", "order", "2024-02") == "shop/order/default.json"
    assert name("shop", "orders/create", "1+") == "shop/orders%2Fcreate/1%2B.json"
    assert name("shop", "orders/create", None) is None
    assert name("shop", "refund", None) is None
    assert name("other", "order", None) is None, "no source has this name: its files are for others to name"


@pytest.mark.parametrize("name", ["orders/create", "..", ".", "a b", "ü", "a%b", "~", "x\0y", "a.b-c_d", "COM1"])
def test_a_name_is_one_part_of_a_path_and_can_be_read_back(name: str) -> None:
    part = escaped(name)
    assert "/" not in part
    assert part not in (".", "..")
    assert path_of("shop", name).parts == ("shop", part, "default.json")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"shop/order.json": True}, "a schema is SOURCE/TYPE/VERSION.json"),
        ({"shop/a b/default.json": True}, "must be written as 'a%20b'"),
        ({"shop/order/2024-*.json": True}, "a schema is of one version"),
        ({"shop/order/2024-%2A.json": True}, "a schema is of one version"),
        ({"shop/order/default.json": "{"}, "is not JSON"),
        ({"shop/order/default.json": "[]"}, "a schema is an object"),
        ({"shop/order/default.json": {"$ref": "http://example.com/x.json"}}, "is remote, and nothing is fetched"),
        ({"shop/order/default.json": {"$ref": "file:///etc/passwd"}}, "is remote"),
        ({"shop/order/default.json": {"$ref": "//example.com/x.json"}}, "is remote"),
        ({"shop/order/default.json": {"$ref": "../../../etc/passwd"}}, "is outside"),
        ({"shop/order/default.json": {"$ref": "../../nothing.json"}}, "cannot be read"),
        ({"shop/order/default.json": {"$ref": "\0.json"}}, "cannot be read"),
        ({"shop/order/default.json": {"$ref": "#/$defs/nothing"}}, "does not exist"),
        ({"shop/order/default.json": {"$ref": "#nothing"}}, "there is no $anchor"),
        (
            {"shop/order/default.json": {"$schema": "http://json-schema.org/draft-07/schema#"}},
            "only JSON Schema 2020",
        ),
        ({"shop/order/default.json": {"$dynamicRef": "#a"}}, "at /$dynamicRef: not supported: use $ref"),
        ({"shop/order/default.json": {"items": {"$id": "http://example.com"}}}, "at /items/$id: remove it"),
    ],
)
def test_a_mistake_in_the_folder_is_told_with_its_place(files: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        written(tmp_path, files)
    assert why in str(refused.value)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text("true")
    (tmp_path / "schemas/shop/order").mkdir(parents=True)
    (tmp_path / "schemas/shop/order/default.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(ConfigError, match="is outside"):
        written(tmp_path / "schemas", {})


def test_a_circle_of_links_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "shop/order").mkdir(parents=True)
    (tmp_path / "shop/order/default.json").symlink_to("default.json")
    with pytest.raises(ConfigError, match=r"shop/order/default\.json cannot be read"):
        written(tmp_path, {})


def test_files_of_the_folder_may_name_each_other(tmp_path: Path) -> None:
    money = {"$defs": {"cents": {"$anchor": "cents", "type": "integer"}}, "$ref": "#/$defs/cents"}
    order = {
        "$id": "https://example.com/order.json",
        "properties": {
            "total": {"$ref": "../../common/money.json"},
            "tax": {"$ref": "../../common/money.json#cents"},
            "parts": {"items": {"$ref": "default.json"}},
            "const": {"const": {"$ref": "http://example.com"}},
            "$ref": {"$ref": "/common/money.json#/$defs/cents"},
        },
    }
    found = written(tmp_path, {"common/money.json": money, "shop/order/default.json": order})
    checked = found.find("shop", "order")
    assert checked is not None
    assert not checked.check({"total": 1, "tax": 2, "parts": [{"tax": 1}], "$ref": 1})
    for wrong, place in (
        ({"total": "1"}, "/total"),
        ({"tax": "1"}, "/tax"),
        ({"$ref": "1"}, "/$ref"),
        ({"parts": [{"tax": 1}, {"tax": "1"}]}, "/parts/1/tax"),
    ):
        assert [one.pointer for one in checked.check(wrong)] == [place]


@pytest.mark.parametrize("name", ["a b", "ü", "a%b", "%41", "a/b", "a~b", 'a"b', "a#b", "a^b"])
def test_a_reference_leads_to_any_name(name: str, tmp_path: Path) -> None:
    pointer = quote(name.replace("~", "~0").replace("/", "~1"))
    document = {"$ref": f"#/$defs/{pointer}", "$defs": {name: {"type": "string"}, "A": True}}
    checked = written(tmp_path, {"shop/order/default.json": document}).find("shop", "order")
    assert checked is not None
    assert checked.check(1)
    assert not checked.check("")


@pytest.mark.parametrize("name", ["default", "enum", "const", "examples"])
def test_a_field_may_be_named_as_a_keyword_is(name: str, tmp_path: Path) -> None:
    document = {"$ref": "#x", "properties": {name: {"$anchor": "x", "required": ["q"]}}}
    checked = written(tmp_path, {"shop/order/default.json": document}).find("shop", "order")
    assert checked is not None
    assert [one.pointer for one in checked.check({"q": 1, name: {}})] == [f"/{name}/q"]


def test_the_default_folder_may_be_missing_and_another_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not load(SchemaSettings(), ["shop"])
    with pytest.raises(ConfigError, match="schemes is no folder"):
        load(SchemaSettings(path="schemes"), ["shop"])


def test_a_folder_that_is_nearly_a_source_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not written(tmp_path, {"shops/order/default.json": True, "common/money.json": True})
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'shops'} is not used: no source has this name; did you mean shop?"
    ]


def test_a_schema_of_a_version_that_no_event_has_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox(schemas=tmp_path)
    inbox.source("shop", provider="stripe", secrets=["x" * 20])
    inbox.source("other", provider="stripe", secrets=["x" * 20], version="contract")
    files = [tmp_path / source / "order" / name for source in inbox.sources for name in ("1.json", "default.json")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("true")
    assert len(inbox.schemas().names) == 4
    assert [record.getMessage() for record in caplog.records] == [
        f"{files[0]} checks no new event: source 'shop' reads no versions; set its option version, or name the file "
        "default.json"
    ]


# ── several events in one request ──


@pytest.mark.parametrize("rule", ["keep", "refuse"])
def test_of_several_events_the_broken_ones_are_kept_unless_all_are(rule: Any, tmp_path: Path) -> None:
    schemas = written(tmp_path, {"shop/order/default.json": {"required": ["id"]}})
    source = Inbox().source("shop", provider="stripe", secrets=["x" * 20], schema_check="intake", schema_break=rule)
    endpoint = msgspec.structs.replace(source.endpoint, schemas=schemas)
    items = [item("a", source="shop", type="order"), item("b", source="shop", type="order"), item("c", type="other")]
    some = with_breaks(endpoint, list(items), [{}, {"id": 1}, {}], b"")
    assert [one.invalid for one in some[1:]] == [None, None]
    assert some[0].invalid == "schema break in shop/order/default.json at /id: expected a value, found nothing"
    assert [one.identity for one in some] == [one.identity for one in items]
    skipped = [msgspec.structs.replace(items[0], skip="not accepted")]
    assert with_breaks(endpoint, list(skipped), [{}], b"") == skipped
    if rule == "keep":
        assert [one.invalid is None for one in with_breaks(endpoint, items[:2], [{}, {}], b"")] == [False, False]
        return
    with pytest.raises(ContentRefused) as refused:
        with_breaks(endpoint, items[:2], [{}, {}], b"")
    assert refused.value.reason == "schema_break"
