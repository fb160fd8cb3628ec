"""An HMAC of a message made from the request, as most providers sign."""

from __future__ import annotations

import base64
import hmac
import re
from functools import cached_property, lru_cache
from typing import Literal
from urllib.parse import quote

from ...errors import ConfigError, Malformed, Unauthentic
from ...model import Request
from .. import forms
from ..fields import Body, Constant, Field, Header, Present, Query
from . import message as template
from .base import Coverage, Defaults, Draft, KeyForm, Keyring, Presented, adding, key_bytes, only
from .times import Timestamp, in_body, seconds, written

_ALPHABET = {"hex": re.compile(rb"[0-9a-f]+"), "base64": re.compile(rb"[A-Za-z0-9+/]+={0,2}")}
_LENGTH = {"sha1": 20, "sha256": 32, "sha512": 64}
_PLAIN = frozenset({"body", "ts", "id", "url"})


class Hmac(Defaults, frozen=True, kw_only=True, dict=True):
    """The signature is in a header, or in a field of the body if one is named."""

    header: bytes = b""
    json: tuple[str, ...] = ()
    """The JSON field with the signature, if it is in the body."""
    json_also: tuple[str, ...] = ()
    """Another field that may hold a signature with another key: either is enough."""
    form: str = ""
    """The form field with the signature, if it is in the body."""
    numbered: bool = False
    """Whether the header's name ends in 1, 2 and so on, one for each active key."""
    repeats: bool = False
    """Whether the header may occur several times."""
    message: str = "{body}"
    """The signed message: see message.PLACEHOLDERS."""
    any_port: bool = False
    """Whether the URL may be signed with or without its scheme's default port."""
    also: str | None = None
    """An alternative message, if the provider is inconsistent."""
    never: str = ""
    """A regular expression for messages that are never accepted: a handshake signs them for anyone."""
    alg: Literal["sha1", "sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: bytes = b""
    """Text before each signature, such as `sha256=` or `v1,`; elements with another prefix are ignored."""
    prefix_optional: bool = False
    separator: bytes | None = None
    """Separator of the header's elements, if it may hold several."""
    timestamp: Timestamp | None = None
    id_header: bytes | None = None
    """The header whose value is {id}."""
    body_digest: str | None = None
    """The parameter of the signed URL with the body's SHA-256, if the message has only the URL."""
    key: KeyForm = "utf8"
    """Encoding of the key in the secret. `whsec_` does not decide it: Stripe signs with the text itself, Standard
    Webhooks with the bytes that follow it as base64."""
    key_prefix: str = ""
    """Prefix removed from the secret before it is decoded."""
    paired: bool = False
    """Whether the secret is PUBLIC:PRIVATE, and each signature names its public half: `PUBLIC|signature`."""
    min_key: int = 8

    def __post_init__(self) -> None:
        signed = template.fields(self.message)
        if sum((bool(self.header), bool(self.json), bool(self.form))) != 1:
            raise ConfigError("the signature needs exactly one place: set header, json or form")
        in_headers = self.timestamp is not None and self.timestamp.body is None
        template.check_signed(self.message, ts=in_headers, ident=self.id_header is not None)
        if self.timestamp is not None and self.timestamp.body is not None and self.coverage != "body":
            named = f"json:{'.'.join(self.timestamp.body)}"
            if named not in signed:
                raise ConfigError("the time in the body must be signed: sign the body or that field")

    @cached_property
    def name(self) -> str:
        return f"hmac-{self.alg}"

    @property
    def coverage(self) -> Coverage:
        signed = template.fields(self.message)
        if signed & {"body", "form"} or self.body_digest:
            return "body"
        return "body" if self.form and any(name.startswith("form:") for name in signed) else "nothing"

    @property
    def tolerance(self) -> float | None:
        return None if self.timestamp is None else self.timestamp.tolerance

    @property
    def signs_url(self) -> bool:
        return "url" in template.fields(self.message)

    def signs(self, field: Field) -> bool:
        signed = template.fields(self.message)
        match field:
            case Header(name):
                return name == self.id_header
            case Query():
                return self.signs_url and "form" not in signed
            case Body(path) if f"json:{'.'.join(path)}" in signed:
                return True
            case Body() | Present():
                # A form's text is signed without its boundaries: "a=1b&c=2" signs like "a=1&bc=2".
                return self.coverage == "body" and "form" not in signed
            case Constant():
                return True

    def canonical(self, request: Request) -> bytes | None:
        """Return the signed part of a request if that is not the body byte for byte."""
        for name in template.fields(self.message):
            if name == "form":
                # With the query: nothing separates it from the first field, so text can move between the two.
                query = b"?" + request.query if request.query and self.signs_url else b""
                return query + template.sorted_form(request.body)
            if name.startswith("form:"):
                return template.form_value(request.body, name[5:], "signature").rstrip(b"\n")  # see `also`
        return None

    def prepare(self, secret: str) -> bytes:
        if not self.paired:
            return key_bytes(secret.removeprefix(self.key_prefix), self.key)
        public, colon, private = secret.partition(":")
        if not (public and colon and private):
            raise ValueError("it does not have the form PUBLIC:PRIVATE")
        return public.encode() + b"\0" + key_bytes(private, self.key)

    # ── verifying ──

    def read(self, request: Request, url: bytes, keyring: Keyring) -> Presented:
        elements = self._elements(request)
        prefix = self.prefix
        signatures = [element[len(prefix) :] for element in elements if element.startswith(prefix)]
        if self.prefix_optional:
            signatures += [element for element in elements if not element.startswith(prefix)]
        event_id = b""
        if self.id_header is not None:
            event_id = template.signed_id(self.message, request.headers, self.id_header)
        raw, signed_at = b"", None
        if self.timestamp is not None and self.timestamp.body is None:
            raw = self.timestamp.read(request.headers, elements)
            signed_at = seconds(raw, self.timestamp.unit)
            if self.timestamp.first:
                signatures = signatures[1:]
        if not signatures:
            raise Malformed("signature_malformed")
        return Presented(
            candidates=tuple(signatures),
            messages=self._messages(request, url, raw, event_id, elements),
            signed_at=signed_at,
            id=event_id,
        )

    def _elements(self, request: Request) -> list[bytes]:
        if self.header:
            if self.numbered:
                presented = [value for name, value in request.headers if name.startswith(self.header)]
                if not presented:
                    raise Unauthentic("signature_missing")
                return [element.strip(b" ") for element in presented]
            if self.repeats:
                presented = request.values(self.header)
                if not any(presented):
                    raise Unauthentic("signature_missing")
                return [element.strip(b" ") for value in presented for element in value.split(b",")]
            value = only(request.headers, self.header, "signature")
        elif self.json:
            [value] = template.json_texts(request.body, [self.json], "signature")
            if self.json_also and (other := template.json_text_or_none(request.body, self.json_also)):
                return [value, other]
        else:
            value = template.form_value(request.body, self.form, "signature")
        elements = [value] if self.separator is None else value.split(self.separator)
        return [element.strip(b" ") for element in elements] if b" " in value else elements

    def _messages(
        self, request: Request, url: bytes, raw: bytes, event_id: bytes, elements: list[bytes]
    ) -> tuple[bytes, ...]:
        values = {"body": request.body, "ts": raw, "id": event_id, "url": url}
        if self._plain:
            return (template.render(self.message, values),)
        if not template.fields(self.message) <= _PLAIN:
            names = next((e[2:] for e in elements if e.startswith(b"h=")), b"")
            values |= template.other_values(self.message, request, names)
        if self.body_digest is not None:
            _check_digest(request, self.body_digest)
        first = template.render(self.message, values)
        if self.never and re.fullmatch(self.never.encode(), first):
            raise Unauthentic("signature_mismatch")
        if self.also is not None:
            return first, template.render(self.also, values)
        if self.any_port and (other := _other_port(url)):
            return first, template.render(self.message, {**values, "url": other})
        return (first,)

    @cached_property
    def _plain(self) -> bool:
        """Whether the message has one form and only common placeholders, as most do."""
        special = self.body_digest is not None or self.never or self.also is not None or self.any_port
        return not special and template.fields(self.message) <= _PLAIN

    def matches(self, key: bytes, presented: Presented) -> bool:
        for signed in presented.messages:
            expected = self._signature(key, signed)
            for candidate in presented.candidates:
                if hmac.compare_digest(expected, candidate):
                    return True
        return False

    def plausible(self, presented: Presented) -> bool:
        size = _LENGTH[self.alg]
        size = size * 2 if self.encoding == "hex" else -(-size // 3) * 4
        texts = [c.rpartition(b"|")[2] if self.paired else c for c in presented.candidates]
        return any(len(c) == size and _ALPHABET[self.encoding].fullmatch(c) for c in texts)

    def signed_at(self, presented: Presented, request: Request) -> float | None:
        if self.timestamp is None or self.timestamp.body is None:
            return presented.signed_at
        return in_body(self.timestamp.body, self.timestamp.unit, request.body)

    def _signature(self, key: bytes, signed: bytes) -> bytes:
        """Return the encoded signature without its prefix."""
        public = b""
        if self.paired:
            public, _, key = key.partition(b"\0")
            public += b"|"
        mac = _keyed(key, self.alg).copy()
        mac.update(signed)
        text = mac.hexdigest().encode() if self.encoding == "hex" else base64.b64encode(mac.digest())
        return public + text

    # ── signing ──

    def sign(self, key: bytes, draft: Draft) -> Draft:
        headers: dict[bytes, str] = {}
        timestamp, elements = b"", []
        draft = adding(draft, {}, body=self._filled(draft))
        if self.timestamp is not None and self.timestamp.body is None:
            timestamp = written(draft.now, self.timestamp.unit)
            if self.timestamp.header is not None:
                headers[self.timestamp.header] = timestamp.decode()
            else:
                elements.append((self.timestamp.prefix or b"") + timestamp)
        if self.id_header is not None:
            headers[self.id_header] = draft.id
        if self.body_digest is not None:
            joint = "&" if "?" in draft.url else "?"
            digest = template.body_digest(draft.body).decode()
            draft = adding(draft, {}, url=f"{draft.url}{joint}{quote(self.body_digest)}={digest}")
        if "headers" in template.fields(self.message):
            elements.append(b"h=content-type")
        request = _as_request(draft, headers)
        [signed, *_] = self._messages(request, draft.url.encode(), timestamp, draft.id.encode(), elements)
        elements.append(self.prefix + self._signature(key, signed))
        value = (self.separator or b"").join(elements).decode()
        if self.header:
            return adding(draft, {**headers, self.header + (b"1" if self.numbered else b""): value})
        place = self._place(draft.body, value)
        return adding(draft, headers, body=place)

    def _filled(self, draft: Draft) -> bytes:
        """Return the body with the time and the other fields that are signed by name."""
        raw = draft.body
        if self.timestamp is not None and self.timestamp.body is not None:
            moment: str | int = written(draft.now, self.timestamp.unit).decode()
            if self.timestamp.unit != "iso" and self.coverage == "body":
                moment = int(moment)
            raw = template.with_json_value(raw, self.timestamp.body, moment)
        for name in sorted(template.fields(self.message)):
            if name.startswith("json:"):
                raw = template.with_json_value(raw, tuple(name[5:].split(".")), draft.id, keep=True)
        return raw

    def _place(self, raw: bytes, value: str) -> bytes:
        """Return the body with the signature in it."""
        if self.form:
            return raw + b"&" + f"{quote(self.form)}={quote(value, safe='')}".encode()
        return template.with_json_value(raw, self.json, value)


def _as_request(draft: Draft, headers: dict[bytes, str]) -> Request:
    pairs = tuple((name, value.encode()) for name, value in {**draft.headers, **headers}.items())
    return Request(draft.method, "/", draft.url.partition("?")[2].encode(), pairs, draft.body)


def _other_port(url: bytes) -> bytes | None:
    """Return the URL with its scheme's default port added or removed; None if it has another port."""
    scheme, _, rest = url.partition(b"://")
    port = {b"https": b":443", b"http": b":80"}.get(scheme)
    host = re.split(rb"[/?#]", rest, maxsplit=1)[0]
    if port is None:
        return None
    if host.endswith(port):
        return scheme + b"://" + host[: -len(port)] + rest[len(host) :]
    return None if b":" in host else scheme + b"://" + host + port + rest[len(host) :]


def _check_digest(request: Request, parameter: str) -> None:
    try:
        given = forms.values(request.query, parameter)
    except ValueError:
        raise Malformed("query_malformed") from None
    if len(given) != 1:
        raise Malformed("body_digest_missing")
    if not hmac.compare_digest(given[0], template.body_digest(request.body)):
        raise Unauthentic("body_digest_mismatch")


@lru_cache(maxsize=1024)
def _keyed(key: bytes, alg: str) -> hmac.HMAC:
    """Return an HMAC object with the key set: creating one costs more than hashing a webhook."""
    return hmac.new(key, digestmod=alg)
