"""Sign as a provider would, for `hookledger send`, the demo, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..identities import new_id
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
    """A real delivery of `body`, ready to be sent.

    A str is a secret as the provider shows it; bytes are a key already prepared for the scheme. The id and
    the type appear only where the contract has them in a header: those in the body are the caller's. More headers
    win over the id's.
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
        # The rest of a type of several fields is in the body, e.g. the action of GitHub's "issues.opened".
        headers[contract.type[0].name] = event_type.split(".")[0] if len(contract.type) > 1 else event_type
    return contract.scheme.sign(key, Draft(url=url, body=body, headers=headers, now=now, id=ident))


def sign(contract: Contract, secret: str | bytes, body: bytes, **rest: Any) -> list[tuple[str, str]]:
    """The headers of a real delivery, where the body and the URL stay as they are."""
    return pairs(delivery(contract, secret, body, **rest))


def pairs(draft: Draft) -> list[tuple[str, str]]:
    """Its headers, as HTTP clients want them."""
    return [(name.decode("ascii"), value) for name, value in draft.headers.items()]


def content_type(contract: Contract, body: bytes) -> str:
    is_form = contract.form_field is not None and body.startswith(contract.form_field.encode() + b"=")
    return "application/x-www-form-urlencoded" if is_form or contract.content != "json" else "application/json"
