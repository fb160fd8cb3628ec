"""Read contracts from the TOML files in `known/`; any mistake is a ConfigError that names file and key.

The keys of a file are the fields of `Contract`; CONTRIBUTING.md shows one. A file with several contracts has a
`[[contract]]` table for each. The keys outside are what they share: a contract's own key replaces a shared one, and
its tables are merged with shared tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ..errors import ConfigError
from .contract import WHOLE, Contract, names
from .fields import Body, Field, Header, body, field, present
from .presets import standard_webhooks
from .schemes.adyen import AdyenItems
from .schemes.base import Scheme
from .schemes.certificate import Certificate
from .schemes.hmac import Hmac
from .schemes.jwt import Jwt
from .schemes.keyed_hash import KeyedHash
from .schemes.public_key import PublicKey
from .schemes.token import Token

FOLDER = files(__package__).joinpath("known")
SCHEMES: dict[str, Callable[..., Scheme]] = {
    "adyen_items": AdyenItems,
    "hmac": Hmac,
    "jwt": Jwt,
    "keyed_hash": KeyedHash,
    "paypal": Certificate,
    "public_key": PublicKey,
    "sns": Certificate,
    "standard_webhooks": standard_webhooks,
    "token": Token,
}
"""By the `kind` in their table."""
ANY = "*"
"""In a table of fields and values: any value."""

Table = dict[str, Any]


@cache
def stems() -> tuple[str, ...]:
    """Return the names of the files, sorted."""
    return tuple(sorted(file.name[:-5] for file in FOLDER.iterdir() if file.name.endswith(".toml")))


@cache
def load(stem: str) -> dict[str, Contract]:
    """Return the contracts of one file, by name."""
    return parse(stem, FOLDER.joinpath(f"{stem}.toml").read_text("utf-8"))


def parse(stem: str, text: str) -> dict[str, Contract]:
    """Return the contracts in the text of a file, by name."""
    try:
        return _contracts(stem, tomllib.loads(text))
    except (ConfigError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{stem}.toml: {error}") from error


def _contracts(stem: str, given: Table) -> dict[str, Contract]:
    several = _expect(given.pop("contract", []), list[Table], "contract")
    shared, tables = (given, several) if several else ({"name": stem}, [given])
    found: dict[str, Contract] = {}
    for number, own in enumerate(tables):
        place = f"contract[{number}]." if len(tables) > 1 else ""
        contract: Contract = _made(Contract, _merged(shared, own), place)
        # `catalogue.known` finds the file by the beginning of the name.
        if contract.name in found or not f"{contract.name}_".startswith(f"{stem}_"):
            raise ConfigError(
                f"{place}name: {contract.name!r} is taken or does not begin with {stem!r}: choose another"
            )
        found[contract.name] = contract
    return found


def _merged(shared: Table, own: Table) -> Table:
    tables = {
        name: _merged(shared[name], given)
        for name, given in own.items()
        if isinstance(given, dict) and isinstance(shared.get(name), dict)
    }
    return {**shared, **own, **tables}


def _made(make: Callable[..., Any], table: Table, place: str) -> Any:
    """Call `make` with the keys of a table, each as the type of the parameter. `place` precedes a key in errors."""
    types, required = _parameters(make)
    for name in table:
        if name not in types:
            close = get_close_matches(name, types, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the known keys are {', '.join(types)}"
            raise ConfigError(f"unknown key {place}{name}: {hint}")
    for name in required:
        if name not in table:
            raise ConfigError(f"{place}{name} is missing: add it")
    values = {name: _value(given, types[name], f"{place}{name}") for name, given in table.items()}
    try:
        return make(**values)
    except ConfigError as error:
        raise ConfigError(f"{place.rstrip('.')}: {error}" if place else str(error)) from error


@cache
def _parameters(make: Callable[..., Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the types of all parameters, and the names of the required ones."""
    types, parameters = get_type_hints(make), signature(make).parameters
    required = [name for name, parameter in parameters.items() if parameter.default is Parameter.empty]
    return {name: types[name] for name in parameters}, required


def _value(given: Any, kind: Any, key: str) -> Any:
    """Return a TOML value as a value of that type."""
    shape, parts = get_origin(kind), [part for part in get_args(kind) if part is not NoneType]  # TOML has no null
    if Header in parts:
        return _field(_expect(given, str, key), key)
    if shape is UnionType and len(parts) == 1:
        return _value(given, parts[0], key)
    if shape is tuple:
        if get_origin(parts[0]) is tuple and ... not in get_args(parts[0]):
            return _pairs(_expect(given, Table, key), parts[0], key)
        return tuple(_value(one, parts[0], f"{key}[{n}]") for n, one in enumerate(_expect(given, list[Any], key)))
    if shape is frozenset:
        return names(_expect(given, str, key))
    if kind is bytes:
        return _ascii(_expect(given, str, key), key)
    if kind is Body:
        return body(given) if _expect(given, str, key) else WHOLE
    if kind is Scheme:
        return _scheme(_expect(given, Table, key), key)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _made(kind, _expect(given, Table, key), f"{key}.")
    return _expect(given, kind, key)


def _expect(given: Any, kind: Any, key: str) -> Any:
    """Return the value if it has that type."""
    try:
        msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{key}: {error}") from error
    return given


def _field(text: str, key: str) -> Field:
    if text.startswith("present:"):
        return present(*text.removeprefix("present:").split())
    try:
        return field(text)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _pairs(table: Table, kind: Any, key: str) -> tuple[tuple[Any, Any], ...]:
    first, second = get_args(kind)
    return tuple(
        (
            _value(name, first, key),
            None if value == ANY and NoneType in get_args(second) else _value(value, second, f"{key}.{name}"),
        )
        for name, value in table.items()
    )


def _ascii(text: str, key: str) -> bytes:
    if not text.isascii():
        raise ConfigError(f"{key}: {text!r} must be ASCII")
    return (text.lower() if key.endswith("header") else text).encode()


def _scheme(table: Table, key: str) -> Scheme:
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in SCHEMES:
        raise ConfigError(f"{key}.kind: {kind!r} is not a kind of scheme: write one of {', '.join(SCHEMES)}")
    make = SCHEMES[kind]
    own = table if make is Certificate else {name: given for name, given in table.items() if name != "kind"}
    made: Scheme = _made(make, own, f"{key}.")
    return made
