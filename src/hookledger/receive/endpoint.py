"""One source in the intake: the provider's contract, its secrets and its settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from ..answer import AnswerRule
from ..errors import ConfigError
from ..model import MAX_VERSION, Kind, Request
from ..observe.metrics.counts import SourceCounts
from ..providers.contract import Contract
from ..providers.fields import Body, Constant, Field, Header, Present, field
from ..providers.reading import outline
from ..providers.schemes.base import Keyring, NoKeys
from ..providers.schemes.hmac import Hmac
from ..providers.schemes.jwt import Jwt
from ..schemas.folder import Schemas
from ..states import KeyOrigin
from .client import NO_PROXIES, Proxies
from .entities import EntityRule, entity_rule
from .secrets import MISSING, Secret, given_secret, is_place, read_again, text_of, text_or_none
from .settings import KeyFunction, SourceSettings, naming

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,255}")

FROM_CONTRACT = "contract"
"""In `version`: as the provider's contract says."""

_URL = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")


class Endpoint(Struct, frozen=True, kw_only=True):
    """A configured source. Created by `configure`, which applies the defaults."""

    name: str
    path: str
    contract: Contract
    secrets: tuple[Secret, ...]
    settings: SourceSettings
    """As given; the fields below resolve the provider's defaults."""
    verify_token: str | None
    """The token that a handshake must present, read from where `settings.verify_token` says."""
    tolerance: float | None
    """How many seconds the signed time may differ from the receiver's clock, ahead of it at most AHEAD; None where
    no time is signed."""
    max_body: int
    proxies: Proxies
    """Trusted for the client's address, and for the URL without a `public_url`."""
    outline: Callable[[bytes], object] | None
    """Reads only the fields that identify the event; None where the whole body must be read."""
    key_fields: tuple[Field, ...]
    key_function: KeyFunction | None
    key_origin: KeyOrigin
    key_is_id: bool
    """Whether the key is exactly the provider's id."""
    key_signed: bool
    """Whether the signature covers the whole event key."""
    backed: bool
    """Whether the body also identifies the event."""
    repeatable: frozenset[str]
    type_unsigned: bool
    """Whether an attacker who captured a request can send its body as another type."""
    key_demanded: bool
    """Whether an event without a key is rejected: by setting, or because a key made from its content would not be
    signed."""
    delivered_once: bool
    """Whether the same content with another delivery id is a new event, because the provider does not retry."""
    canonical: Callable[[Request], bytes | None] | None
    """Returns the signed part of a request, if that is not the body byte for byte."""
    entities: EntityRule | None = None
    """What names the entity of an event, and whether events of one are ordered; None: events have no entities."""
    version: Field | None = None
    """The field with the version of an event; None: events have no version."""
    schemas: Schemas | None = None
    """Its schemas, if the intake checks content; None if only workers do."""
    keyring: Keyring = NoKeys()
    answers: Callable[[Kind], AnswerRule | None] | None = None
    """How deliveries of a type are answered by their handler, None for types without one; None: no type has one."""
    counts: SourceCounts = msgspec.field(default_factory=SourceCounts)

    def allows(self, kind: str) -> bool:
        types = self.settings.types
        return (
            types is None
            or kind in types
            or any(pattern.endswith("*") and kind.startswith(pattern[:-1]) for pattern in types)
        )

    def url(self, request: Request) -> bytes:
        """Return the URL that the provider called; empty unless it is signed."""
        if not self.contract.needs_public_url:
            return b""
        public = self.settings.public_url
        base = self._forwarded_url(request) if public is None else public.encode()
        return base + (b"?" + request.query if request.query else b"")

    def client(self, request: Request) -> str | None:
        """Return the client's address, which is stored with the request and which limits count."""
        return self.proxies.client(request.remote, request.headers)

    def _forwarded_url(self, request: Request) -> bytes:
        """Return the URL from a trusted proxy's headers; empty if a header is missing or repeated."""
        schemes, hosts = request.values(b"x-forwarded-proto"), request.values(b"x-forwarded-host")
        if not self.proxies.trusts(request.remote) or len(schemes) != 1 or len(hosts) != 1:
            return b""
        return schemes[0] + b"://" + hosts[0] + request.path.encode("latin-1", "replace")


def configure(
    name: str,
    contract: Contract,
    settings: SourceSettings,
    *,
    key_function: KeyFunction | None = None,
    proxies: Proxies = NO_PROXIES,
    keyring: Keyring | None = None,
) -> Endpoint:
    """Return the endpoint of a source; raise ConfigError for invalid settings.

    Does not read `env:` and `file:` secrets: `with_secrets` does when the inbox starts. `key_function` replaces
    `settings.key`.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} is not a source name: use at most 64 letters, digits, '.', '_' and '-'")
    with naming(name):
        path = f"/{name}" if settings.path is None else settings.path
        if _PATH.fullmatch(path) is None:
            raise ConfigError(f"path must begin with / and have no query, not {path!r}")
        secrets = tuple(given_secret(given, contract) for given in settings.secrets)
        if not secrets and not getattr(contract.scheme, "optional", False):
            raise ConfigError("no secret is set, so no delivery can be verified: set secrets")
        contract = _bound(contract, secrets)
        token = _given_token(settings.verify_token)
        _check_token(contract, token)
        _check_redeliveries(contract, settings)
        _check_url(contract, settings.public_url, proxies)
        fields = tuple(map(field, settings.key)) or contract.key_fields
        _check_key(contract, settings, fields, key_function)
        entities, version = entity_rule(contract, settings), _version(contract, settings.version)
        picked = (*fields, *(entities.fields if entities else ()), *((version,) if version else ()))
        signed = key_function is None and bool(fields) and all(map(contract.scheme.signs, fields))
        return Endpoint(
            name=name,
            path=path,
            contract=contract,
            secrets=secrets,
            settings=settings,
            verify_token=token,
            tolerance=_tolerance(contract, settings.tolerance),
            max_body=_max_body(contract, settings.max_body),
            proxies=proxies,
            outline=None if key_function or settings.schema_check == "intake" else outline(contract, picked),
            key_fields=fields,
            key_function=key_function,
            key_origin=_origin(key_function, fields, signed),
            key_is_id=key_function is None and fields == (contract.id,),
            key_signed=signed,
            backed=bool(fields or key_function) and contract.body_authenticated and not signed,
            repeatable=contract.repeatable if settings.repeatable is None else settings.repeatable,
            type_unsigned=contract.body_authenticated and not contract.type_authenticated,
            key_demanded=settings.key_required or (bool(fields) and contract.scheme.coverage == "fields"),
            delivered_once=(
                contract.retries.automatic is False
                and isinstance(contract.delivery_id, Header)
                and contract.body_authenticated
            ),
            canonical=_canonical(contract),
            entities=entities,
            version=version,
            keyring=keyring or NoKeys(),
        )


def with_secrets(endpoint: Endpoint, *, required: bool = True) -> Endpoint:
    """Return the endpoint with its secrets read from the environment and files.

    ConfigError names the source and the place of a missing secret. `required=False`: a missing secret matches no
    signature; for commands that verify nothing.
    """
    with naming(endpoint.name):
        secrets = tuple(read_again(secret, endpoint.contract, required=required) for secret in endpoint.secrets)
        place = endpoint.settings.verify_token
        token = text_or_none(place, "verify token", required=required) if place is not None else None
    contract = _bound(endpoint.contract, secrets)
    token = endpoint.verify_token if token is None else token
    return msgspec.structs.replace(endpoint, secrets=secrets, verify_token=token, contract=contract)


def require_secrets(endpoint: Endpoint) -> None:
    """Raise ConfigError if a secret was not read: without it no delivery can be verified."""
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
    contract: Contract, settings: SourceSettings, fields: tuple[Field, ...], function: KeyFunction | None
) -> None:
    if contract.hint and (fields or function):
        raise ConfigError(f"{contract.title} only says that something changed, so events have no key: remove key")
    if settings.key_required and not (fields or function):
        raise ConfigError(f"{contract.title} has no event id, so key_required would reject every event: remove it")
    if fields and all(isinstance(given, Constant) for given in fields):
        raise ConfigError("a key of fixed text gives all events the same key: add a field that differs")
    if fields and contract.items is not None and not any(isinstance(given, Body | Present) for given in fields):
        raise ConfigError(f"{contract.title} sends several events in one request: add a body field to the key")


def _version(contract: Contract, given: str | None) -> Field | None:
    """Return the field with an event's version. Raises ConfigError for one that cannot be read."""
    if given is None:
        return None
    if given == FROM_CONTRACT:
        if contract.version is None:
            raise ConfigError(
                f"it is unknown where {contract.title} names the version of an event: set version to header:NAME, "
                "body:PATH.TO.FIELD, query:NAME or text:WORDS"
            )
        return contract.version
    read = field(given)
    if isinstance(read, Constant) and len(read.text) > MAX_VERSION:
        raise ConfigError(f"version must have at most {MAX_VERSION} characters, not {len(read.text)}")
    return read


def _check_url(contract: Contract, url: str | None, proxies: Proxies) -> None:
    if contract.needs_public_url and not (url or proxies):
        raise ConfigError(f"{contract.title} signs the URL: set public_url")
    if url is not None and _URL.fullmatch(url) is None:
        raise ConfigError(f"public_url must be http(s)://host/path without a query, not {url!r}")


def _given_token(given: str | None) -> str | None:
    """Return the token, or a random placeholder until `env:` or `file:` is read."""
    if given is None:
        return None
    return os.urandom(16).hex() if is_place(given) else text_of(given, "verify token")[0]


def _check_token(contract: Contract, token: str | None) -> None:
    needs_token = any(handshake.token is not None for handshake in contract.handshakes)
    if token is not None and not needs_token:
        raise ConfigError(f"verify_token: {contract.title} does not use one; remove it")


def _check_redeliveries(contract: Contract, settings: SourceSettings) -> None:
    if settings.redelivery_alert < 0:
        raise ConfigError(f"redelivery_alert must be at least 0, not {settings.redelivery_alert}")
    if settings.horizon is None:
        return
    days = settings.horizon / 86400
    if contract.scheme.tolerance is None:
        raise ConfigError(
            f"{contract.title} signs no time, so a captured request would be new after the horizon: remove horizon"
        )
    if contract.occurred_at is None or not contract.scheme.signs(contract.occurred_at):
        raise ConfigError(f"{contract.title} does not sign the time of the event: remove horizon")
    if contract.horizon is None:
        raise ConfigError(f"it is unknown how long {contract.title} may redeliver an event: remove horizon")
    if days < contract.horizon:
        raise ConfigError(
            f"{contract.title} may redeliver an event for {contract.horizon:g} days: horizon must not be shorter"
        )


def _tolerance(contract: Contract, given: float | None) -> float | None:
    default = contract.scheme.tolerance
    if given is None:
        return default
    if default is None:
        raise ConfigError(f"{contract.title} signs no time: remove tolerance")
    if isinstance(contract.scheme, Jwt) and given > default:
        raise ConfigError(f"tolerance must be at most {default:g} s: tokens of {contract.title} set their own expiry")
    if not 0 < given < float("inf"):
        raise ConfigError(f"tolerance must be a number of seconds greater than 0, not {given}")
    return given


def _max_body(contract: Contract, given: int | None) -> int:
    if given is not None and given < 1:
        raise ConfigError(f"max_body must be a number of bytes greater than 0, not {given}")
    return contract.max_body if given is None else given


def _origin(function: KeyFunction | None, fields: tuple[Field, ...], signed: bool) -> KeyOrigin:
    if function is not None:
        return KeyOrigin.FUNCTION
    if len(fields) > 1:
        return KeyOrigin.COMPOSITE
    return KeyOrigin.SIGNED_ID if signed else KeyOrigin.UNSIGNED_ID
