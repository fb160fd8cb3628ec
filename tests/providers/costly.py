"""Bodies that cost the most CPU to read, for every contract: alone and in its own shape, signed and forged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from time import process_time
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from hookledger.errors import Rejected
from hookledger.model import Request
from hookledger.providers.contract import Contract
from hookledger.providers.fields import Body
from hookledger.providers.schemes.base import KeyNeeded
from hookledger.providers.schemes.public_key import MAX_SIGNATURES
from hookledger.providers.schemes.testing_keys import new_test_key
from hookledger.receive.endpoint import Endpoint
from hookledger.receive.handshake import answer_signed, answer_unsigned
from hookledger.receive.identify import identify
from hookledger.receive.verify import verify
from tests.endpoints import configure
from tests.providers.example import Example
from tests.providers.made import FIRST, contract_of, sent

MIB = 1024 * 1024
NOW = 1763000000.0
HEADER = 15_000
"""Bytes of a header: the intake takes 16 KiB of them together."""
MARK = "put the costly text here"

# Half of the smallest unit above the smallest normal float: all 767 digits are needed to round it.
_HALFWAY = str((2**53 + 3) * 5**1075).encode()


def _many(part: bytes, size: int, around: bytes = b"[]") -> bytes:
    return around[:1] + b",".join([part] * (size // (len(part) + 1))) + around[1:]


@cache
def json_texts(size: int) -> dict[str, bytes]:
    """JSON values of about that many bytes."""
    half = size // 2
    return {
        "floats": _many(b"1e308", size),
        "small floats": _many(b"1e-308", size),
        "subnormal floats": _many(b"2.2250738585072011e-308", size),
        "floats of 767 digits": _many(_HALFWAY[:1] + b"." + _HALFWAY[1:] + b"e-308", size),
        "one long float": b"1" * half + b"." + b"1" * (half - 9) + b"e-9",
        "floats beyond the limits": _many(b"1e999", size),
        "integers": _many(b"7", size),
        "integers of 4300 digits": _many(b"7" * 4300, size),
        "integers of 10^5 digits": _many(b"7" * 100_000, size),
        "one integer": b"7" * size,
        "nested": b"[" * half + b"]" * half,
        "nested objects": b'{"a":' * (size // 7) + b"1" + b"}" * (size // 7),
        "nested to the limit": _many(b"[" * 120 + b"]" * 120, size),
        "nested without end": b"[" * size,
        "empty arrays": _many(b"[]", size),
        "empty objects": _many(b"{}", size),
        "empty texts": _many(b'""', size),
        "brackets in texts": _many(b'"[{"', size),
        "one text of brackets": b'"' + b"[" * size + b'"',
        "escapes": b'"' + b"\\n" * half + b'"',
        "escapes of four digits": b'"' + b"\\u00e9" * (size // 6) + b'"',
        "controls": b'"' + b"\\u0001" * (size // 6) + b'"',
        "deleted": b'"' + b"\x7f" * size + b'"',
        "surrogates": b'"' + b"\\ud83d\\ude00" * (size // 12) + b'"',
        "lone surrogates": b'"' + b"\\ud83d" * (size // 6) + b'"',
        "other letters": b'"' + "€".encode() * (size // 3) + b'"',
        "not UTF-8": b'"' + b"\xff" * size + b'"',
        "an open text of quotes": b'"' + b'\\"' * half,
        "backslashes": b'"' + b"\\" * size,
        "many keys": b"{" + b",".join([b'"%x":1' % number for number in range(size // 11)]) + b"}",
        "one key many times": _many(b'"k":1', size, b"{}"),
        "escaped keys": _many(b'"\\u0069d":1', size, b"{}"),
        "spaces": b"[1" + b" " * size + b"]",
        "NaN": _many(b"NaN", size),
        "NaN and floats": b"[NaN," + _many(b"1e308", size)[1:],
        "NaN and arrays": b"[NaN," + _many(b"[]", size)[1:],
    }


@cache
def form_texts(size: int) -> dict[str, bytes]:
    """Forms of about that many bytes."""
    fields = min(990, size // 10)  # as many as are taken
    each = size // fields - 5
    return {
        "escapes": b"a=" + b"%41" * (size // 3),
        "escapes and letters": b"a=" + b"%41a" * (size // 4),
        "percent signs": b"a=" + b"%" * size,
        "no escapes": b"a=" + b"%zz" * (size // 3),
        "fields of percent signs": b"&".join([b"a=" + b"%" * each] * fields),
        "one percent sign": b"a=" + b"%41" * (size // 3) + b"%",
        "backslashes": b"a=" + b"\\" * (size // 2) + b"%41" * (size // 6),
        "many fields": b"a=&" * (size // 3),
        "one name": b"&".join([b"a=" + b"1" * each] * fields),
        "names": b"&".join([b"%d=" % number + b"1" * each for number in range(fields)]),
        "spaces": b"a=" + b"+" * size,
        "not UTF-8": b"a=" + b"\xff" * size,
    }


@cache
def xml_texts(size: int) -> dict[str, bytes]:
    return {
        "elements": b"<a>" + b"<b/>" * (size // 4) + b"</a>",
        "nested": b"<a>" * (size // 7) + b"</a>" * (size // 7),
        "attributes": b"<a " + b" ".join([b"a%x=''" % number for number in range(size // 10)]) + b"/>",
        "references": b"<a>" + b"&#65;" * (size // 5) + b"</a>",
        "a text": b"<a>" + b"x" * size + b"</a>",
    }


# ── in the contract's own shape ──────────────────────────────────────────────


Costly = tuple[str, bytes | dict[str, Any] | list[Any], bytes]
"""Its name, the body as an example has it, and what to put there for MARK; b"" where the body is bytes already."""


def bodies(contract: Contract, size: int) -> Iterator[Costly]:
    """Of about that many bytes, or as many as the contract takes."""
    size = min(size, contract.max_body) * 99 // 100 - 200
    if contract.content == "json":
        shapes = list(_shapes(contract))
        for name, text in json_texts(size).items():
            yield f"{name} alone", text, b""
            for place, shape in shapes:
                yield f"{name} {place}", shape, text
        yield from _batches(contract, size)
        for name in sorted({field.path[0] for field in contract.body_fields if isinstance(field, Body)}):
            again = f',"{name}":1e308'.encode()
            yield f"{name} again and again", shapes[0][1], b"0" + again * (size // len(again))
    else:
        for name, text in form_texts(size).items():
            yield f"form of {name}", text, b""
            if contract.content == "braintree":
                yield f"payload of {name}", b"bt_signature=public%7C00&bt_payload=" + text[2:], b""
    if contract.form_field is not None:
        for name, text in form_texts(size).items():
            yield f"field of {name}", contract.form_field.encode() + text[1:], b""
    if contract.content == "braintree":
        for name, text in xml_texts(size * 49 // 100).items():
            yield f"XML of {name}", b"bt_payload=" + quote(base64.b64encode(text)).encode(), b""


def _shapes(contract: Contract) -> Iterator[tuple[str, Any]]:
    """The example with the costly text beside its fields, and in the place of the first one that is read."""
    beside = deepcopy(FIRST[contract.name].body)
    if isinstance(beside, bytes):
        beside = json.loads(beside)
    _event(contract, beside)["costly"] = MARK
    yield "beside", beside
    within = json.loads(json.dumps(beside))
    del _event(contract, within)["costly"]
    path = next((field.path for field in contract.body_fields if isinstance(field, Body)), None)
    if path is not None:
        place = _event(contract, within)
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = MARK
        yield "within", within
    if contract.name == "mailgun":
        yield "in the signature", {"signature": {"more": MARK}, "event-data": {}}


def _event(contract: Contract, document: Any) -> dict[str, Any]:
    """The first event of a request."""
    for name in (contract.items or ((),))[0]:
        document = (document[0] if isinstance(document, list) else document)[name]
    first = document[0] if isinstance(document, list) else document
    assert isinstance(first, dict)
    return first


def _batches(contract: Contract, size: int) -> Iterator[tuple[str, Any, bytes]]:
    """As many events as fit, tiny and whole, and few with much around them."""
    if contract.items is None:
        return
    if contract.name == "adyen_classic":  # each item has a signature of its own
        signature = b'"additionalData":{"hmacSignature":"%b="}' % (b"A" * 43)
        for item in (b"", b'"pspReference":1e308', signature, signature + b',"pspReference":1e308'):
            many = _many(b'{"NotificationRequestItem":{%b}}' % item, size - 30)
            yield f"items of {item[-12:]!r}", b'{"notificationItems":%b}' % many, b""
        return
    whole = json.loads(json.dumps(FIRST[contract.name].body))
    event = dict(_event(contract, whole))
    for name, part in (("tiny", b"{}"), ("whole", json.dumps(event).encode())):
        many = _many(part, size)
        if not contract.items[0]:
            yield f"{name} events", many, b""
        else:
            yield f"{name} events", _around(contract, MARK), many
    for name in contract.inherit:
        text = json.dumps("x" * (size // 2)).encode() + b',"more":1'
        yield f"{name} around events", _around(contract, [{}] * (size // 8), name), text


def _around(contract: Contract, events: Any, inherited: str | None = None) -> dict[str, Any]:
    """The way to the events with these at its end."""
    assert contract.items is not None
    document: dict[str, Any] = {contract.items[0][-1]: events}
    for name in reversed(contract.items[0][:-1]):
        document = {name: document}
    return document if inherited is None else {**document, inherited: MARK}


# ── signed ───────────────────────────────────────────────────────────────────


def forged(example: Example, body: bytes | dict[str, Any] | list[Any], text: bytes) -> Request:
    """A request that only its provider could have signed, for `stranger`."""
    contract = contract_of(example.contract)
    if _signs_in_body(contract) and not isinstance(body, bytes):
        request = signed(example, body, text)
        assert request is not None
        return request
    return replace(_plainly(example.contract), body=_filled(contract, body, text))


@cache
def _plainly(name: str) -> Request:
    return sent(FIRST[name], NOW)


def signed(example: Example, body: bytes | dict[str, Any] | list[Any], text: bytes) -> Request | None:
    """The request as the provider would send it; None where it could not have signed it."""
    contract = contract_of(example.contract)
    if not _signs_in_body(contract):
        body, text = _filled(contract, body, text), b""
    elif isinstance(body, bytes):
        return None
    if contract.name == "linear":  # its time is in the body already, which may be no object
        contract = replace(contract, scheme=replace(contract.scheme, timestamp=None))  # type: ignore[type-var]
    try:
        request = sent(replace(example, body=body), NOW, contract)
    except Rejected:  # the signature is of a field that it has not
        return None
    return replace(request, body=request.body.replace(json.dumps(MARK).encode(), text)) if text else request


def _signs_in_body(contract: Contract) -> bool:
    """Whether signing writes the JSON anew: the costly text is put in afterwards, where nothing is signed."""
    return contract.scheme.coverage == "fields" or bool(getattr(contract.scheme, "json", ()))


def _filled(contract: Contract, body: bytes | dict[str, Any] | list[Any], text: bytes) -> bytes:
    if isinstance(body, bytes):
        return body
    if contract.name == "linear" and isinstance(body, dict):
        body = {**body, "webhookTimestamp": int(NOW * 1000)}
    raw = json.dumps(body).encode().replace(json.dumps(MARK).encode(), text)
    if contract.form_field is None or len(raw) > MIB // 4:  # a form would be too large then
        return raw
    return f"{contract.form_field}={quote(raw)}".encode()


def provider(example: Example) -> Endpoint:
    """A source that takes the example."""
    return _source(example, contract_of(example.contract), example.secret)


@cache
def _other_key(kind: str, contract: Contract) -> bytes:
    return new_test_key(contract.scheme)  # type: ignore[arg-type]


def stranger(example: Example) -> Endpoint:
    """A source of the same contract with another secret, or another key: the example is a forgery there."""
    contract = contract_of(example.contract)
    kind = getattr(contract.scheme, "key_kind", None)
    if kind is not None:
        scheme = replace(contract.scheme, test_key=_other_key(kind, contract))  # type: ignore[type-var]
        return _source(example, replace(contract, scheme=scheme), example.secret)
    at = next(n for n in range(len(example.secret) - 6, 0, -1) if example.secret[n].isalnum())
    other = "b" if example.secret[at] != "b" else "c"
    return _source(example, contract, example.secret[:at] + other + example.secret[at + 1 :])


def _source(example: Example, contract: Contract, secret: str) -> Endpoint:
    return configure(example.contract, contract, [secret], public_url=example.url)


# ── headers and queries ──────────────────────────────────────────────────────


def bombs(endpoint: Endpoint, request: Request) -> Iterator[tuple[str, Request]]:
    """The request with as much in its signature's header, or its query, as the intake lets in."""
    scheme = endpoint.contract.scheme
    name = getattr(scheme, "header", b"")
    if name:
        prefix = getattr(scheme, "prefix", b"")
        separator = getattr(scheme, "separator", None) or b","
        for element in (b"", prefix, prefix + b"A" * 4, prefix + b"0" * 64, b"h=" + b"a " * (HEADER // 2)):
            value = (element + separator) * (HEADER // (len(element) + len(separator)))
            yield f"header of {element[:8]!r}", _with(request, name, value[:HEADER])
        several = separator.join([prefix + base64.b64encode(b"x" * 64)] * MAX_SIGNATURES)
        yield "several signatures", replace(_with(request, name, several), body=b" " * min(MIB, endpoint.max_body))
        claims = base64.urlsafe_b64encode(b'{"alg":"RS256","x":' + _many(b"1e308", 6000) + b"}").rstrip(b"=")
        yield "header of a token", _with(request, name, prefix + claims + b"." + claims[:99] + b".AAAA")
    for query, text in form_texts(HEADER).items():
        yield f"query of {query}", replace(request, query=text)


def _with(request: Request, name: bytes, value: bytes) -> Request:
    kept = tuple((n, v) for n, v in request.headers if n != name)
    return replace(request, headers=((name, value), (b"a", b"x" * 900), *kept))


# ── measuring ────────────────────────────────────────────────────────────────


def cpu(step: Callable[[], object], enough: float = 0.0) -> float:
    """Seconds of CPU, the least of three; of one where that is little enough."""
    least = float("inf")
    for _ in range(3):
        began = process_time()
        step()
        least = min(least, process_time() - began)
        if least <= enough:
            break
    return least


@cache
def yardstick(size: int) -> float:
    """What it takes to read an ordinary body of that size as JSON with the standard library."""
    event = json.dumps(FIRST["stripe"].body).encode()
    ordinary = _many(event, size)
    return min(cpu(lambda: json.loads(ordinary)) for _ in range(5))


def unproved(endpoint: Endpoint, request: Request, *, refuses: bool = False) -> None:
    """All that happens to a request until it is refused."""
    try:
        answer_unsigned(endpoint, request)
        verify(endpoint, request, NOW)
    except (Rejected, KeyNeeded):
        if refuses:
            raise
    else:
        raise AssertionError("a forgery was accepted")


def authentic(endpoint: Endpoint, request: Request) -> int | None:
    """All that happens to an authentic request until it is recorded: the number of its events, None if refused."""
    try:
        proof = verify(endpoint, request, NOW)
        answer_signed(endpoint, request)
        return len(identify(endpoint, request, proof, NOW))
    except Rejected:
        return None
