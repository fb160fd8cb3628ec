"""One source as the intake sees it: a provider's contract, its secrets, its rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from ..model import Request
from ..providers.contract import Contract
from ..providers.fields import Body, Constant, Field, Header, Present, field
from ..providers.reading import outline
from ..providers.schemes.base import Keyring, NoKeys
from ..providers.schemes.hmac import Hmac
from ..providers.schemes.jwt import Jwt
from ..states import KeyOrigin
from .client import NO_PROXIES, Proxies
from .secrets import MISSING, Place, Secret, given_secret, is_place, read_again, text_of, text_or_none

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,255}")

_URL = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")

KeyFunction = Callable[[dict[str, object], Mapping[str, str]], object]
"""The event key from the event's content and the request's headers (names in lower case): text, a number, or a tuple
of them; None where there is none."""


class Rules(Struct, frozen=True, kw_only=True):
    """What a source decides for itself, whatever its provider is."""

    types: frozenset[str] | None = None
    """The types it takes, exact or ending in `*`; None takes all."""
    other_types: Literal["skip", "refuse"] = "skip"
    """What becomes of the rest: recorded as skipped, or answered 422."""
    key_required: bool = False
    """Refuse an event without a key, instead of making one from its content."""
    mode: Literal["run", "observe"] = "run"
    """`observe`: record and compare, run nothing."""
    on_failed: Literal["record", "retry", "alert"] = "record"
    """What a duplicate of an event in the dead letter brings about, besides its own row."""
    bounces: int = 3
    """More deliveries of one event than that while its handler fails raise an alert; 0 never does."""
    horizon: float | None = None
    """Seconds; an event that is older goes to review, never in as new. None: identities are kept for ever."""
    verify_token: str | None = None
    """What a handshake must present, for providers that ask so."""
    origins: frozenset[str] = frozenset()
    """Who may ask to deliver here, for providers that ask so."""

    def __repr__(self) -> str:
        return f"Rules({self.mode}, on_failed={self.on_failed})"  # not the token


class Endpoint(Struct, frozen=True, kw_only=True):
    """A configured source. Made by `configure`, which knows the defaults."""

    name: str
    path: str
    contract: Contract
    secrets: tuple[Secret, ...]
    rules: Rules
    tolerance: float | None
    """Seconds that the signed time may be old, and ahead if that is less than AHEAD; None where no time is signed."""
    max_body: int
    public_url: str | None
    """The URL that the provider calls, where it is part of what is signed."""
    proxies: Proxies
    """Whose word counts on the client's address, and on the URL where there is no `public_url`."""
    outline: Callable[[bytes], object] | None
    """Reads just enough of a body to identify it; None where all of it must be read."""
    key_fields: tuple[Field, ...]
    key_function: KeyFunction | None
    key_origin: KeyOrigin
    key_is_id: bool
    """Whether the key is the provider's own id and nothing else."""
    key_signed: bool
    """Whether the signature covers the whole event key."""
    backed: bool
    """Whether the body is a second identity."""
    repeatable: frozenset[str]
    repeats_all: bool
    """Whether each of them repeats without limit, also where the body may be of another: the source itself named
    them."""
    groups: dict[str, bytes]
    """The types that may share a body with others, and which ones."""
    type_unsigned: bool
    """Whether whoever captured a request can send its body as another type."""
    key_demanded: bool
    """Whether an event without a key is refused: by rule, or because what would stand for one is not signed."""
    delivered_once: bool
    """Whether a second arrival of the same content, under another delivery id, is no retry of the provider's."""
    canonical: Callable[[Request], bytes | None] | None
    """What of a request is signed, where that is not the body byte for byte."""
    token_place: str | None = None
    """Where the verify token is read from at each start: `env:NAME` or `file:/path`."""
    keyring: Keyring = NoKeys()

    def allows(self, kind: str) -> bool:
        types = self.rules.types
        return (
            types is None
            or kind in types
            or any(pattern.endswith("*") and kind.startswith(pattern[:-1]) for pattern in types)
        )

    def url(self, request: Request) -> bytes:
        """The URL as the provider called it, as far as it is signed."""
        if not self.contract.needs_public_url:
            return b""
        base = self._forwarded_url(request) if self.public_url is None else self.public_url.encode()
        return base + (b"?" + request.query if request.query else b"")

    def client(self, request: Request) -> str | None:
        """Whose request it is: the address that is kept with it and that limits count."""
        return self.proxies.client(request.remote, request.headers)

    def _forwarded_url(self, request: Request) -> bytes:
        """What a proxy says it was; only one that we trust is believed, and only if it says it once."""
        schemes, hosts = request.values(b"x-forwarded-proto"), request.values(b"x-forwarded-host")
        if not self.proxies.trusts(request.remote) or len(schemes) != 1 or len(hosts) != 1:
            return b""
        return schemes[0] + b"://" + hosts[0] + request.path.encode("latin-1", "replace")


def configure(
    name: str,
    contract: Contract,
    secrets: Iterable[str | Place | Secret],
    *,
    rules: Rules | None = None,
    verify_token: str | None = None,
    path: str | None = None,
    tolerance: float | None = None,
    max_body: int | None = None,
    public_url: str | None = None,
    proxies: Proxies = NO_PROXIES,
    key: Sequence[str] | KeyFunction | None = None,
    repeatable: Iterable[str] | None = None,
    keyring: Keyring | None = None,
) -> Endpoint:
    """Check everything that can be wrong with a source before the inbox starts: all but what `env:` and `file:` name,
    which `with_secrets` reads then. `verify_token`: such a place, or the token itself.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} cannot name a source: at most 64 letters, digits, '.', '_' and '-'")
    path = f"/{name}" if path is None else path
    if _PATH.fullmatch(path) is None:
        raise ConfigError(f"source {name!r}: a path begins with / and has no query, unlike {path!r}")
    loaded = tuple(s if isinstance(s, Secret) else given_secret(s, contract) for s in secrets)
    if not loaded and not getattr(contract.scheme, "optional", False):
        raise ConfigError(f"source {name!r} has no secret, so nothing it receives could be verified")
    contract = _bound(contract, loaded)
    rules = rules or Rules()
    if verify_token is not None:
        unread = is_place(verify_token)  # nobody presents what stands for it until then
        token = os.urandom(16).hex() if unread else text_of(verify_token, "verify token")[0]
        rules = msgspec.structs.replace(rules, verify_token=token)
    _check_rules(name, contract, rules)
    _check_url(name, public_url)
    if contract.needs_public_url and not (public_url or proxies):
        raise ConfigError(f"source {name!r}: {contract.title} signs the URL: set public_url")
    function = key if callable(key) else None
    fields = contract.key_fields if key is None or callable(key) else tuple(map(field, key))
    _check_key(name, contract, rules, fields, function)
    signed = function is None and bool(fields) and all(map(contract.scheme.signs, fields))
    return Endpoint(
        name=name,
        path=path,
        contract=contract,
        secrets=loaded,
        rules=rules,
        tolerance=_tolerance(name, contract, tolerance),
        max_body=_max_body(name, contract, max_body),
        public_url=public_url if contract.needs_public_url else None,
        proxies=proxies,
        outline=None if function else outline(contract, fields),
        key_fields=fields,
        key_function=function,
        key_origin=_origin(function, fields, signed),
        key_is_id=function is None and fields == (contract.id,),
        key_signed=signed,
        backed=bool(fields or function) and contract.body_authenticated and not signed,
        repeatable=contract.repeatable if repeatable is None else frozenset(repeatable),
        repeats_all=repeatable is not None,
        groups=contract.groups,
        type_unsigned=contract.body_authenticated and not contract.type_authenticated,
        key_demanded=rules.key_required or (contract.scheme.coverage == "fields" and bool(fields)),  # else unsigned
        delivered_once=(
            contract.retries.automatic is False
            and isinstance(contract.delivery_id, Header)
            and contract.body_authenticated
        ),
        canonical=_canonical(contract),
        keyring=keyring or NoKeys(),
        token_place=verify_token if verify_token is not None and is_place(verify_token) else None,
    )


def with_secrets(endpoint: Endpoint, *, required: bool = True) -> Endpoint:
    """The endpoint with its secrets as they stand now in the environment and in files.

    ConfigError names the source and the place of one that is missing. `required=False`: what is missing proves
    nothing, for those who only look and decide.
    """
    try:
        secrets = tuple(read_again(secret, endpoint.contract, required=required) for secret in endpoint.secrets)
        rules = endpoint.rules
        if endpoint.token_place is not None:
            token = text_or_none(endpoint.token_place, "verify token", required=required)
            rules = rules if token is None else msgspec.structs.replace(rules, verify_token=token)
    except ConfigError as error:
        raise ConfigError(f"source {endpoint.name!r}: {error}") from None
    contract = _bound(endpoint.contract, secrets)
    return msgspec.structs.replace(endpoint, secrets=secrets, rules=rules, contract=contract)


def require_secrets(endpoint: Endpoint) -> None:
    """ConfigError for a secret that was not read: without it nothing can be verified here."""
    if any(secret.expires_at == MISSING for secret in endpoint.secrets):
        with_secrets(endpoint)


def _bound(contract: Contract, secrets: Sequence[Secret]) -> Contract:
    if not isinstance(contract.scheme, Jwt):
        return contract
    scheme = contract.scheme.bound(tuple(secret.key for secret in secrets))
    return msgspec.structs.replace(contract, scheme=scheme)


def _canonical(contract: Contract) -> Callable[[Request], bytes | None] | None:
    return contract.scheme.canonical if contract.content != "json" and isinstance(contract.scheme, Hmac) else None


def _check_key(
    name: str, contract: Contract, rules: Rules, fields: tuple[Field, ...], function: KeyFunction | None
) -> None:
    if contract.hint and (fields or function):
        raise ConfigError(f"source {name!r}: {contract.title} only says that something changed: there is no key")
    if rules.key_required and not (fields or function):
        raise ConfigError(f"source {name!r}: {contract.title} has no event id: key_required would refuse everything")
    if fields and all(isinstance(given, Constant) for given in fields):
        raise ConfigError(f"source {name!r}: a key of fixed words alone would make all events one")
    if fields and contract.items is not None and not any(isinstance(given, Body | Present) for given in fields):
        raise ConfigError(f"source {name!r}: {contract.title} sends several events at once: a key needs a body field")


def _check_url(name: str, url: str | None) -> None:
    if url is not None and (_URL.fullmatch(url) is None):
        raise ConfigError(f"source {name!r}: public_url is http(s)://host/path without a query, unlike {url!r}")


def _check_rules(name: str, contract: Contract, rules: Rules) -> None:
    needs_token = any(handshake.token is not None for handshake in contract.handshakes)
    if rules.verify_token is not None and not (needs_token and rules.verify_token.strip()):
        why = "it is blank" if needs_token else f"{contract.title} asks for none"
        raise ConfigError(f"source {name!r}: no verify_token: {why}")
    if rules.bounces < 0:
        raise ConfigError(f"source {name!r}: bounces is a number of deliveries, not {rules.bounces}")
    if rules.horizon is None:
        return
    days = rules.horizon / 86400
    if contract.scheme.tolerance is None:
        raise ConfigError(
            f"source {name!r}: {contract.title} signs no time, so a captured request would work again after the "
            "horizon: leave it out"
        )
    if contract.occurred_at is None or not contract.scheme.signs(contract.occurred_at):
        raise ConfigError(f"source {name!r}: {contract.title} signs no time of the event: leave the horizon out")
    if contract.horizon is None:
        raise ConfigError(
            f"source {name!r}: how long {contract.title} may deliver an event again is not known: leave the horizon "
            "out"
        )
    if days < contract.horizon:
        raise ConfigError(
            f"source {name!r}: {contract.title} may deliver an event again for {contract.horizon:g} days: the "
            "horizon must not be shorter"
        )


def _tolerance(name: str, contract: Contract, given: float | None) -> float | None:
    default = contract.scheme.tolerance
    if given is None:
        return default
    if default is None:
        raise ConfigError(f"source {name!r}: {contract.title} signs no time to be tolerant of")
    if isinstance(contract.scheme, Jwt) and given > default:
        raise ConfigError(f"source {name!r}: a token of {contract.title} ends when it says: at most {default:g} s")
    if not 0 < given < float("inf"):
        raise ConfigError(f"source {name!r}: a tolerance is a number of seconds above 0, not {given}")
    return given


def _max_body(name: str, contract: Contract, given: int | None) -> int:
    if given is not None and given < 1:
        raise ConfigError(f"source {name!r}: max_body is a number of bytes above 0, not {given}")
    return contract.max_body if given is None else given


def _origin(function: KeyFunction | None, fields: tuple[Field, ...], signed: bool) -> KeyOrigin:
    if function is not None:
        return KeyOrigin.FUNCTION
    if len(fields) > 1:
        return KeyOrigin.COMPOSITE
    return KeyOrigin.SIGNED_ID if signed else KeyOrigin.UNSIGNED_ID
