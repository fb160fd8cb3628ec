"""Describe a contract in words, from its data, for users who choose or debug a provider."""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import encode

from . import generic
from .contract import Contract, Grade, TypeFields
from .fields import Field, written
from .handshake import Handshake
from .schemes.adyen import AdyenItems
from .schemes.base import Scheme
from .schemes.certificate import Certificate
from .schemes.hmac import Hmac
from .schemes.jwt import Jwt
from .schemes.keyed_hash import KeyedHash
from .schemes.public_key import PublicKey
from .schemes.times import AHEAD
from .schemes.token import Token

COVERS = {
    "body": "the whole body",
    "fields": "some fields of the body",
    "checksum": "a checksum of the body, which can be forged",
    "nothing": "nothing of the body",
}
GRADES: dict[Grade, str] = {
    "run": "confirmed by running the provider's own verifier, or a published vector",
    "code": "from the provider's code",
    "docs": "from the provider's documentation",
    "quoted": "the documentation, as quoted by others",
    "memory": "unconfirmed",
    "none": "nothing to confirm",
}


class Fact(Struct, frozen=True):
    name: str
    value: str


def kind(scheme: Scheme) -> str:
    """Return the kind of signature in one or two words."""
    match scheme:
        case Hmac():
            return f"HMAC-{scheme.alg.upper().replace('SHA', 'SHA-')}"
        case PublicKey():
            return "Ed25519" if scheme.alg == "ed25519" else "ECDSA P-256"
        case Certificate():
            return "certificate"
        case Jwt():
            return f"JWT {scheme.alg}"
        case Token():
            return "password" if scheme.basic else "token"
        case KeyedHash():
            return "keyed SHA-256"
        case AdyenItems():
            return "HMAC per item"
    return scheme.name


def proof(scheme: Scheme) -> str:
    """Return how a request is authenticated."""
    match scheme:
        case Hmac():
            place = _place(scheme.header, scheme.json, scheme.form)
            form = f"{scheme.encoding}{f' after {scheme.prefix.decode()}' if scheme.prefix else ''}"
            return f"{kind(scheme)} over {scheme.message}, {form}, in {place}"
        case PublicKey():
            place = _place(scheme.header)
            return f"a signature ({kind(scheme)}) over {scheme.message}, {scheme.encoding}, in {place}"
        case Certificate():
            where = "the body's envelope" if scheme.kind == "sns" else "the headers paypal-…"
            return f"an RSA signature in {where}; Hookledger fetches its certificate from {scheme.host}"
        case Jwt():
            key = f"keys from {scheme.jwks or scheme.ask}" if scheme.jwks or scheme.ask else "the secret is its key"
            bound = f"; the claim {scheme.body_claim} binds the body" if scheme.body_claim else ""
            return f"a JSON Web Token ({scheme.alg}) in {_place(scheme.header)}; {key}{bound}"
        case Token():
            places = [_place(scheme.header)] if scheme.header else []
            places += [f"the URL's parameter {scheme.parameter}"] if scheme.parameter else []
            what = "user and password" if scheme.basic else "a secret"
            extra = "; nothing if no secret is set" if scheme.optional else ""
            return f"{what} in {' or '.join(places)}{extra}"
        case KeyedHash():
            return f"a SHA-256 of the secret and {scheme.message}, in {_place(scheme.header)}"
        case AdyenItems():
            return "an HMAC-SHA-256 of eight fields, in each item of the body"
    return scheme.name


def _place(header: bytes, json: tuple[str, ...] = (), form: str = "") -> str:
    if header:
        return f"the header {header.decode()}"
    return f"the field {'.'.join(json)} of the body" if json else f"the form field {form}"


def facts(contract: Contract) -> list[Fact]:
    """Return what a user may want to know, each in a line or two."""
    scheme, found = contract.scheme, []

    def add(name: str, value: str) -> None:
        if value:
            found.append(Fact(name, value))

    add("authenticated by", proof(scheme))
    add("which covers", COVERS[scheme.coverage] + (", and the URL" if scheme.signs_url else ""))
    add("signed time", _time(scheme.tolerance))
    if scheme.tolerance is not None:
        add("signs each attempt", _signs_each_attempt(contract))
    own = contract.name == generic.NAME
    add("secrets contain", "the secret that you share with the sender" if own else contract.secret)
    add("options needed", "header; the others describe the rest" if own else ", ".join(contract.options))
    add("event key", key(contract))
    add("type", _type(contract))
    add("first types", ", ".join(contract.first_types))
    add("last types", ", ".join(contract.last_types))
    add("object", " or ".join(map(written, contract.object_id)))
    times = () if contract.occurred_at is None else (contract.occurred_at, *contract.occurred_else)
    add("occurred", " or ".join(map(written, times)))
    for known in contract.per_type:
        add(", ".join(known.types), _of_type(known))
    add("account", " or ".join(map(written, contract.account)))
    add("delivery id", written(contract.delivery_id) if contract.delivery_id else "")
    add("retry", ", ".join(map(written, contract.retry)))
    add("version", written(contract.version) if contract.version else "")
    add("webhook", written(contract.hook_id) if contract.hook_id else "")
    add("volatile", ", ".join(map(written, contract.volatile)))
    for group in contract.shared:
        add("share a body", ", ".join(sorted(group.types)))
    for said in (one for group in contract.shared for one in group.says):
        value = "anything but null" if said.value is None else said.value
        add(f"a known body as {said.type}", f"{written(said.field)}: {value}")
    add("shown by the body", ", ".join(sorted({name for shape in contract.shown for name in shape.types})))
    add("repeatable", ", ".join(sorted(contract.repeatable)))
    add("proves one event", ", ".join(map(written, contract.tokens)))
    add("items", _items(contract))
    add("body", f"{contract.content}, up to {contract.max_body / (1024 * 1024):g} MiB")
    add("answer", _answer(contract))
    add("deadline", f"{contract.deadline:g} s" if contract.deadline is not None else "unknown")
    for handshake in contract.handshakes:
        add("handshake", handshake_words(handshake))
    add("retries", "set by retry_hours" if own else retries(contract))
    add("may be redelivered", "" if own else redelivery_window(contract))
    add("can be listed", contract.lister.list + (f"; {contract.lister.enable}" if contract.lister.enable else ""))
    add("redelivered by", contract.lister.redeliver)
    if contract.fetcher is not None:
        add("can be fetched", contract.fetcher.kinds)
        add("fetched with", contract.fetcher.token)
    add("advice", contract.retries.advice)
    for note in contract.notes:
        add("note", note)
    return found


def _type(contract: Contract) -> str:
    if not contract.type:
        return "none"
    unsigned = contract.body_authenticated and not contract.type_authenticated
    fields = [written(field) for field in contract.type]
    if contract.type_names:
        fields[0] += f" ({', '.join(f'{value} is {name}' for value, name in contract.type_names)})"
    return " + ".join(fields) + " (not signed)" * unsigned


def key(contract: Contract) -> str:
    """Return what identifies an event."""
    if contract.hint:
        return "none: it only says that something changed, so each arrival is an event"
    if not contract.key_fields:
        named = ", ".join(map(written, contract.immutable))
        return f"none: a digest of {named or 'type and content'} identifies the event"
    signed = "signed" if contract.id_authenticated else "not signed"
    words = f"{' + '.join(map(written, contract.key_fields))} ({signed})"
    if contract.backed_by_body:
        words += "; the signed body also identifies the event"
    return (
        words
        + {
            "yes": "",
            "no": "; differs on each redelivery",
            "unknown": "; unknown whether a redelivery has the same",
        }[contract.stable]
    )


def id_signed(contract: Contract) -> str:
    """Return whether the key is signed, for a table."""
    if not contract.key_fields:
        return "none"
    return "signed" if contract.id_authenticated else "unsigned"


def retries(contract: Contract) -> str:
    told = contract.retries
    disables = f"; {told.disables}" if told.disables else ""
    if told.automatic is False:
        return (told.schedule or "none") + disables
    span = "unknown how long" if told.hours is None else f"for {hours(told.hours)}"
    return f"{span}{f': {told.schedule}' if told.schedule else ''}{disables}"


def retry_window(contract: Contract) -> str:
    """Return how long the provider retries, for a table."""
    told = contract.retries
    if told.automatic is False:
        return "none"
    return "?" if told.hours is None else hours(told.hours)


def redelivery_window(contract: Contract) -> str:
    """Return how long the provider may redeliver an event."""
    if contract.horizon is None:
        return "for an unknown time: Hookledger never deletes identities"
    return f"within {hours(contract.horizon * 24)}"


def hours(value: float) -> str:
    if value < 1:
        return f"{value * 60:.0f} min" if value * 60 >= 1 else "a moment"
    return f"{round(value, 1):g} h" if value < 96 else f"{round(value / 24, 1):g} days"


def confirmed(contract: Contract) -> list[Fact]:
    """Return each group of facts, and how it was confirmed."""
    grades = contract.confirmed
    names = ("signature", "event", "handshake", "response", "retry", "reconcile", "fetch")
    return [Fact(name, GRADES[getattr(grades, name)]) for name in names if getattr(grades, name) != "none"]


def weakest(contract: Contract) -> str:
    """Return the weakest grade of signature and event, the most important facts, for a table."""
    grades = (contract.confirmed.signature, contract.confirmed.event)
    order: tuple[Grade, ...] = ("memory", "quoted", "docs", "code", "run")
    found = next((grade for grade in order if grade in grades), "none")
    return {"memory": "no", "none": "-"}.get(found, found)


def _time(tolerance: float | None) -> str:
    return (
        "none: a captured request stays valid, and only its event key stops a replay"
        if tolerance is None
        else f"at most {hours(tolerance / 3600)} old, and {hours(min(tolerance, AHEAD) / 3600)} ahead of the receiver"
    )


def _signs_each_attempt(contract: Contract) -> str:
    words = {
        "yes": "yes",
        "no": "no: a retry keeps the first time, so the window is as long as the retries",
        "unknown": "unknown, which counts as no: the window is as long as the retries",
    }[contract.retries.signs_each_attempt]
    return f"{words}; {contract.retries.why}" if contract.retries.why else words


def _of_type(known: TypeFields) -> str:
    about = " + ".join(map(written, known.object_id))
    times = " or ".join(map(written, known.occurred_at))
    return "; occurred ".join(filter(None, (about or "the object as above", times)))


def _items(contract: Contract) -> str:
    if contract.items is None:
        return "one event per request"
    ways = [".".join(way) or "the body itself" for way in contract.items]
    return f"several events per request: in {', '.join(ways)}"


def _answer(contract: Contract) -> str:
    answer = contract.answer
    body = "" if answer.body is None else f" with {answer.body.decode('utf-8', 'replace')!r}"
    rejected = f"; {contract.rejection} for unauthentic requests" if contract.rejection else ""
    return f"{answer.status}{body}{rejected}"


def handshake_words(handshake: Handshake) -> str:
    """Return a description of one handshake."""
    when = " and ".join(_when(field, value) for field, value in handshake.when)
    words = f"{'signed ' if handshake.signed else ''}{handshake.method}{f' with {when}' if when else ''}"
    if handshake.token is not None:
        words += f", the verify_token in {written(handshake.token)}"
    if handshake.fetch is not None:
        words += f"; Hookledger fetches {written(handshake.fetch)}"
    elif handshake.value is not None:
        words += f"; answered with {'the HMAC of its challenge' if handshake.mac else 'its challenge'}"
    return words


def _when(field: Field, value: str | None) -> str:
    return written(field) if value is None else f"{written(field)} = {value}"


def example(contract: Contract, source: str | None = None) -> str:
    """Return a table for hookledger.toml that works once its variables are set."""
    name = source or contract.name
    variable = name.upper().replace("-", "_")
    lines = [f"[sources.{name}]", f'provider = "{contract.name}"', f'secrets = ["env:{variable}_WEBHOOK_SECRET"]']
    if contract.needs_public_url:
        lines.append(f'public_url = "https://hooks.example.com/{name}"')
    if any(handshake.token is not None for handshake in contract.handshakes):
        lines.append(f'verify_token = "env:{variable}_VERIFY_TOKEN"')
    if any(handshake.origins for handshake in contract.handshakes):
        lines.append('origins = ["provider.example.com"]')
    options = [(option, _placeholder(contract, option)) for option in contract.options]
    if contract.name == generic.NAME:
        options = [("header", '"X-Signature"'), ("id", '"body:id"'), ("type", '["body:type"]')]
    if options:
        lines += ["", f"[sources.{name}.options]", *(f"{option} = {value}" for option, value in options)]
    return "\n".join(lines) + "\n"


def _placeholder(contract: Contract, option: str) -> str:
    """Return an example value of the option's type."""
    value = getattr(contract.scheme, option, "")
    made_up = f"your-{option.rstrip('s').replace('_', '-')}"
    return encode(value or ([made_up] if isinstance(value, tuple) else made_up)).decode()
