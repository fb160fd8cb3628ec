"""Sign deliveries like a provider, for `hookledger send`, the demo, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ids import new_id
from .contract import Contract
from .fields import Header
from .schemes.base import Draft


def delivery(
    contract: Contract,
    secret: str | bytes,
    body: bytes,
    *,
    now: float,
    event_id: str | None = None,
    event_type: str | None = None,
    url: str = "",
    more_headers: Mapping[str, str] | None = None,
) -> Draft:
    """Return a signed delivery of `body`, ready to send.

    `secret`: a str as the provider shows it, or bytes already prepared for the scheme. Id and type are set only if
    the contract has them in a header: the caller sets those in the body. `more_headers` override the id's.
    """
    key = secret if isinstance(secret, bytes) else contract.scheme.prepare(secret)
    ident = event_id or str(new_id())
    headers = {b"content-type": content_type(contract, body)}
    if isinstance(contract.id, Header):
        headers[contract.id.name] = ident
    for field in contract.key:
        if isinstance(field, Header):
            headers[field.name] = ident
    headers |= {name.lower().encode("ascii"): value for name, value in (more_headers or {}).items()}
    if event_type and contract.type and isinstance(contract.type[0], Header):
        # The other fields of a type are in the body, such as the action of GitHub's "issues.opened".
        headers[contract.type[0].name] = event_type.split(".")[0] if len(contract.type) > 1 else event_type
    return contract.scheme.sign(key, Draft(url=url, body=body, headers=headers, now=now, id=ident))


def sign(contract: Contract, secret: str | bytes, body: bytes, **rest: Any) -> list[tuple[str, str]]:
    """Return the headers of a signed delivery, for schemes that change neither body nor URL."""
    return pairs(delivery(contract, secret, body, **rest))


def pairs(draft: Draft) -> list[tuple[str, str]]:
    """Return the draft's headers as HTTP clients expect them."""
    return [(name.decode("ascii"), value) for name, value in draft.headers.items()]


def content_type(contract: Contract, body: bytes) -> str:
    is_form = contract.form_field is not None and body.startswith(contract.form_field.encode() + b"=")
    return "application/x-www-form-urlencoded" if is_form or contract.content != "json" else "application/json"
