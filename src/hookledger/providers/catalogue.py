"""Find a provider's contract by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import msgspec

from ..errors import ConfigError
from . import generic
from .contract import Contract
from .load import load, stems


@cache
def contracts() -> dict[str, Contract]:
    """Return every contract of the catalogue, by name. Reads all files: `known` reads one."""
    return {name: contract for stem in stems() for name, contract in load(stem).items()}


def known(name: str) -> Contract | None:
    """Return the contract of this name, without options; None if the catalogue has none."""
    for stem in stems():
        if f"{name}_".startswith(f"{stem}_"):
            return load(stem).get(name)
    return None


def names() -> tuple[str, ...]:
    """Return every name that `find` accepts, sorted."""
    return tuple(sorted([*contracts(), generic.NAME]))


def find(name: str, options: Mapping[str, object] | None = None) -> Contract:
    """Return a provider's contract. `options` describe the provider `hmac`, or set the options of a scheme."""
    if name == generic.NAME:
        return generic.contract(options or {})
    contract = known(name)
    if contract is None:
        close = _similar(re.sub(r"[\W_]+", "_", name.lower()))
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "`hookledger providers` lists all"
        raise ConfigError(f"unknown provider {name!r}: {hint}")
    return with_options(contract, options or {})


def _similar(name: str) -> list[str]:
    """Return likely matches: the same name, names that begin with it, that contain it, the one that it extends, or
    one of similar spelling."""
    every = names()
    return (
        [one for one in every if one == name]
        or [one for one in every if one.startswith(f"{name}_")]
        or [one for one in every if f"_{name}_" in f"_{one}_"]
        or [one for one in every if name.startswith(f"{one}_")]
        or get_close_matches(name, every, n=1)
    )


def with_options(contract: Contract, options: Mapping[str, object]) -> Contract:
    """Return the contract with the source's options set in its scheme."""
    settable = {*contract.options, *(["test_key"] if hasattr(contract.scheme, "test_key") else [])}
    for name in options:
        if name not in settable:
            hint = f"the known options are {', '.join(sorted(settable))}" if settable else "it has no options"
            raise ConfigError(f"provider {contract.name!r} has no option {name!r}: {hint}")
    values = dict(options)
    if "test_key" in values:
        values["test_key"] = _test_key(str(values["test_key"]))
    types = {field.name: field.type for field in msgspec.structs.fields(contract.scheme)}  # type: ignore[arg-type]
    try:
        values = {name: msgspec.convert(value, types[name]) for name, value in values.items()}
    except msgspec.ValidationError as error:
        raise ConfigError(f"provider {contract.name!r}: {', '.join(values)}: {error}") from None
    scheme = msgspec.structs.replace(contract.scheme, **values)  # type: ignore[type-var]
    missing = [name for name in contract.options if not getattr(scheme, name)]
    if missing:
        raise ConfigError(f"provider {contract.name!r} needs options: set {', '.join(missing)}")
    return msgspec.structs.replace(contract, scheme=scheme) if options else contract


def _test_key(source: str) -> bytes:
    try:
        return Path(source.removeprefix("file:")).read_bytes()
    except OSError as error:
        # Without the path: it may be the key itself.
        raise ConfigError(f"the file of test_key cannot be read: {error.strerror}") from None
