"""Judges kept requests anew, with the intake's own steps: what operators need of the receiving side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from .errors import ConfigError, Rejected, WrongState
from .identities import key_identity
from .model import LISTED, Arrival, Headers, Item, Proof, Request, RequestRow, unpack_headers
from .operate.receiving import Plan, SourceFacts
from .providers.fields import Header, exact
from .providers.listing.base import Content
from .providers.reading import contents, decode
from .providers.schemes.base import KeyNeeded
from .receive.app import Fetches, arrival
from .receive.endpoint import Endpoint, require_secrets
from .receive.handshake import ask_signed, ask_unsigned
from .receive.identify import NOT_ALLOWED, identify, show
from .receive.reasons import NOT_A_DELIVERY, REASONS
from .receive.verify import verify
from .states import KeyOrigin
from .store.ops.rejections import RefusalRow

if TYPE_CHECKING:
    from .source import Source


class Examiner:
    """`fetches`: who gets the keys that providers publish."""

    def __init__(self, sources: Mapping[str, Source], fetches: Fetches) -> None:
        self._sources = sources
        self._fetches = fetches

    def sources(self) -> list[str]:
        return list(self._sources)

    def _source(self, name: str) -> Source:
        source = self._sources.get(name)
        if source is None:
            known = ", ".join(self._sources) or "none: name the application with --app or HOOKLEDGER_APP"
            raise ConfigError(f"there is no source {name!r}; there are: {known}")
        return source

    def facts(self, source: str) -> SourceFacts:
        found = self._source(source)
        endpoint = found.endpoint
        return SourceFacts(
            name=source,
            contract=endpoint.contract,
            key_fields=endpoint.key_fields,
            key_function=endpoint.key_function is not None,
            horizon=endpoint.rules.horizon,
            expiries=tuple(secret.expires_at for secret in endpoint.secrets),
            advice=tuple(found.advice()),
            unprovable=_unprovable(endpoint),
        )

    def reason(self, code: str) -> str:
        return REASONS.get(code) or code.replace("_", " ")

    async def recheck(self, refusal: RefusalRow) -> Arrival | str:
        endpoint = self._source(refusal.source).endpoint
        if _unprovable(endpoint) is not None:
            return "credential_missing"
        require_secrets(endpoint)
        request = Request(
            refusal.method, refusal.path, refusal.query, _headers(refusal.headers), refusal.body, refusal.remote
        )
        try:
            if request.method != "POST" or ask_unsigned(endpoint, request):
                return NOT_A_DELIVERY
        except Rejected as error:
            return error.reason
        reason = ""
        # By the receiver's clock, which made the id; and by the database's, when it was written a moment later.
        for came in ((refusal.id.int >> 80) / 1000, refusal.received_at.timestamp()):
            try:
                proof = await self._verify(endpoint, request, came)
                if (shake := ask_signed(endpoint, request)) and not shake.keep:
                    return NOT_A_DELIVERY
                items = identify(endpoint, request, proof, came)
                return arrival(endpoint, request, proof, items) if items else NOT_A_DELIVERY
            except Rejected as error:
                reason = error.reason
        return reason

    async def _verify(self, endpoint: Endpoint, request: Request, now: float) -> Proof:
        try:
            return verify(endpoint, request, now)
        except KeyNeeded as needed:
            provider = endpoint.contract.name
            await self._fetches.fetch(needed.where, provider=provider, again=needed.again, who="operator")
        try:
            return verify(endpoint, request, now)
        except KeyNeeded:
            raise Rejected("key_unknown") from None

    def identify(self, request: RequestRow) -> tuple[Item, ...]:
        endpoint = self._source(request.source).endpoint
        kept = Request("POST", endpoint.path, request.query, _headers(request.headers), request.body, request.remote)
        signed_at = None if request.signed_at is None else request.signed_at.timestamp()
        proof = Proof(request.scheme, request.secret, signed_at)
        try:
            return identify(endpoint, kept, proof, request.received_at.timestamp())
        except Rejected as error:
            raise WrongState(f"request {request.id} holds no event any more: {self.reason(error.reason)}") from error

    def content(self, request: RequestRow, place: int) -> object:
        contract = self._source(request.source).endpoint.contract
        return contents(contract, decode(contract, request.body))[place]

    def shown(self, key: Sequence[bytes]) -> str:
        return show(b":".join(key))

    # ── a provider's log ──

    def plan(self, source: str) -> Plan:
        return self._source(source).plan()

    def takes(self, source: str, kind: str) -> bool:
        return self._source(source).endpoint.allows(kind)

    def named_types(self, source: str) -> list[str]:
        types = self._source(source).endpoint.rules.types or ()
        return sorted(kind for kind in types if not kind.endswith("*"))

    def listed_key(self, source: str, headers: Sequence[tuple[str, str]]) -> tuple[bytes, str] | None:
        endpoint = self._source(source).endpoint
        given = dict(_lower(headers)[::-1])
        if endpoint.key_function is not None or not endpoint.key_fields:
            return None
        parts = [exact(given.get(field.name)) if isinstance(field, Header) else None for field in endpoint.key_fields]
        known = [part for part in parts if part is not None]
        return (key_identity(source, *known), self.shown(known)) if len(known) == len(parts) else None

    def listed(self, source: str, content: Content, now: float) -> Arrival | str:
        endpoint = self._source(source).endpoint
        request = Request("POST", endpoint.path, b"", _lower(content.headers), content.body, None)
        proof = _proved(endpoint, request, now)
        try:
            items = identify(endpoint, request, proof, now)
        except Rejected as error:
            return error.reason
        if not items:
            return NOT_A_DELIVERY
        if all(item.skip == NOT_ALLOWED for item in items):
            return "type_refused"
        if proof.scheme == LISTED:
            if any(_keyless(endpoint, item) for item in items):
                return "key_missing"
            # The bytes are the API's, so they say nothing about the bytes that were signed.
            items = tuple(
                msgspec.structs.replace(item, body_identity=None, type_identity=None, token_identities=())
                for item in items
            )
        return msgspec.structs.replace(arrival(endpoint, request, proof, items), reconciled=True)


def _lower(headers: Sequence[tuple[str, str]]) -> Headers:
    """As a request has them; what no header can hold is left out."""
    return tuple(
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers
        if "\r" not in value and "\n" not in value
    )


def _proved(endpoint: Endpoint, request: Request, now: float) -> Proof:
    """By the delivery's own signature, where the provider still has it and it fits the bytes; else by the API."""
    if endpoint.tolerance is None:
        require_secrets(endpoint)
        try:
            return verify(endpoint, request, now)
        except (Rejected, KeyNeeded):
            pass
    return Proof(LISTED, "")


def _keyless(endpoint: Endpoint, item: Item) -> bool:
    """Whether its delivery would have another key: one made of the exact bytes, or of nothing."""
    if item.key_origin is KeyOrigin.ARRIVAL:
        return True
    return item.key_origin is KeyOrigin.DIGEST and not endpoint.contract.immutable


def _headers(packed: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in unpack_headers(packed))


def _unprovable(endpoint: Endpoint) -> str | None:
    """Why what was refused cannot prove itself any more: what it presented was a credential, and is not stored."""
    contract = endpoint.contract
    if not endpoint.secrets:
        return f"without a secret nothing that came in the name of {contract.title} is proved by anything"
    if contract.scheme.secret_headers or contract.scheme.secret_parameters:
        return f"{contract.title} presents a secret, and presented secrets are never stored"
    if getattr(contract.scheme, "header", b"") in contract.secret_headers:
        return f"{contract.title} proves itself in a header that may hold a secret, and such headers are never stored"
    return None
