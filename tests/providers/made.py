"""Every example as a source that takes it and a request that its provider would send."""

from __future__ import annotations

from functools import cache

import msgspec

from hookledger.model import Request
from hookledger.providers.catalogue import contracts, with_options
from hookledger.providers.contract import Contract
from hookledger.providers.fields import Header
from hookledger.providers.schemes.testing_keys import new_test_key
from hookledger.providers.sign import delivery
from hookledger.receive.endpoint import Endpoint
from tests.endpoints import configure
from tests.providers import money, tools
from tests.providers.example import Example, written

_MORE = [
    Example(
        contract="stripe",
        body={"id": "evt_1", "type": "invoice.paid", "created": 1763000000, "data": {"object": {"id": "in_1"}}},
        secret="whsec_made_up_for_the_tests",
        expects=[{"type": "invoice.paid", "key": "evt_1", "object_id": "in_1"}],
    ),
    Example(
        contract="github",
        body=b'{"action":"opened","issue":{"id":1,"title":"Zo\xc3\xab"}}',
        headers={"X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-GitHub-Event": "issues"},
        secret="made up for the tests",
        expects=[{"type": "issues.opened", "key": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}],
    ),
]
EXAMPLES = [*_MORE, *money.EXAMPLES, *tools.EXAMPLES]
OPTIONS = {**money.OPTIONS, **tools.OPTIONS}
FIRST = {example.contract: example for example in reversed(EXAMPLES)}
"""The first example of each contract."""


@cache
def _private_key(kind: str) -> bytes:
    """One of each kind: to make an RSA key takes longer than all that is done with it."""
    [contract, *_] = [c for c in contracts().values() if getattr(c.scheme, "key_kind", None) == kind]
    return new_test_key(contract.scheme)  # type: ignore[arg-type]


@cache
def contract_of(name: str) -> Contract:
    """With a key to sign with, where only the provider has one."""
    contract = with_options(contracts()[name], OPTIONS.get(name, {}))
    kind = getattr(contract.scheme, "key_kind", None)
    if kind is None:
        return contract
    scheme = msgspec.structs.replace(contract.scheme, test_key=_private_key(kind))  # type: ignore[type-var]
    return msgspec.structs.replace(contract, scheme=scheme)


def endpoint_of(example: Example) -> Endpoint:
    return configure(example.contract, contract_of(example.contract), [example.secret], public_url=example.url)


def sent(example: Example, now: float, contract: Contract | None = None) -> Request:
    """The request as the provider would send it. `contract`: another one than the example's."""
    contract = contract or contract_of(example.contract)
    headers = {name.lower().encode(): value for name, value in example.headers.items()}
    named = [field.name for field in (contract.id, contract.delivery_id) if isinstance(field, Header)]
    ident = next((headers[name] for name in named if name in headers), None)
    url = f"{example.url}?{example.query}" if example.query else example.url
    draft = delivery(contract, example.secret, written(contract, example.body), now=now, event_id=ident, url=url)
    pairs = tuple((name, value.encode()) for name, value in {**draft.headers, **headers}.items())
    return Request(draft.method, "/NAME", draft.url.partition("?")[2].encode(), pairs, draft.body)
