"""Sign as a provider would, for `hookledger send`, the demo, benchmarks and tests."""

from __future__ import annotations

from ..model import new_id
from . import schemes
from .contract import Contract, Header


def sign(
    contract: Contract,
    secret: str | bytes,
    body: bytes,
    *,
    now: float,
    event_id: str | None = None,
    event_type: str | None = None,
    url: str = "",
) -> list[tuple[str, str]]:
    """The headers of a real delivery of `body`.

    A str is a secret as the provider shows it; bytes are a key already prepared for the scheme. The id and
    the type appear only where the contract has them in a header: those in the body are the caller's.
    """
    scheme = contract.scheme
    key = secret if isinstance(secret, bytes) else schemes.prepare_key(scheme, secret)
    is_form = contract.form_field is not None and body.startswith(contract.form_field.encode() + b"=")
    headers = {b"content-type": "application/x-www-form-urlencoded" if is_form else "application/json"}

    if isinstance(contract.id, Header) or scheme.id_header is not None:
        event_id = event_id or str(new_id())
    if isinstance(contract.id, Header):
        headers[contract.id.name] = event_id or ""
    if event_type and contract.type and isinstance(contract.type[0], Header):
        # The rest of a type of several fields is in the body, e.g. the action of GitHub's "issues.opened".
        headers[contract.type[0].name] = event_type.split(".")[0] if len(contract.type) > 1 else event_type

    timestamp = b""
    if scheme.timestamp is not None:
        timestamp = b"%d" % (now * 1000 if scheme.timestamp.unit == "ms" else now)
        if scheme.timestamp.header is not None:
            headers[scheme.timestamp.header] = timestamp.decode()
    if scheme.id_header is not None:
        headers[scheme.id_header] = event_id or ""

    presented = schemes.Presented((), timestamp, now, headers.get(scheme.id_header or b"", "").encode())
    signed = schemes.message(scheme, presented, body, url.encode())
    elements = [scheme.prefix + schemes.signature(scheme, key, signed)]
    if scheme.timestamp is not None and scheme.timestamp.prefix is not None:
        elements.insert(0, scheme.timestamp.prefix + timestamp)
    headers[scheme.header] = (scheme.separator or b"").join(elements).decode()
    return [(name.decode(), value) for name, value in headers.items()]
