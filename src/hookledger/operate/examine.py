"""Verifies and identifies kept requests again, with the intake's own steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..errors import ConfigError, Rejected, WrongState
from ..ids import key_identity, show
from ..model import LISTED, Arrival, Headers, Item, Proof, Request, unpack_headers
from ..providers.fields import Header, exact
from ..providers.listing.base import Content
from ..providers.reading import contents, decode
from ..providers.schemes.base import KeyNeeded
from ..receive.app import Fetcher, arrival
from ..receive.endpoint import Endpoint, require_secrets
from ..receive.handshake import answer_signed, answer_unsigned
from ..receive.identify import NOT_ALLOWED, identify
from ..receive.keyring import Fetched
from ..receive.reasons import NOT_A_DELIVERY, in_words
from ..receive.verify import verify
from ..states import KeyOrigin
from ..store.history import RequestRow
from ..store.ops.rejections import RejectionRow

if TYPE_CHECKING:
    from ..source import Source


class Examiner:
    """The configured sources, and how the intake would verify and identify their kept requests now.

    `fetches` gets the keys that providers publish.
    """

    def __init__(self, sources: Mapping[str, Source] | None = None, fetches: Fetcher | None = None) -> None:
        self._sources = {} if sources is None else sources
        self._fetches = fetches or Fetched()

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def source(self, name: str) -> Source:
        """Return a source; ConfigError if it is not configured."""
        source = self._sources.get(name)
        if source is None:
            known = ", ".join(self._sources) or "none: name the application with --app or HOOKLEDGER_APP"
            raise ConfigError(f"unknown source {name!r}; configured: {known}")
        return source

    def endpoint(self, name: str) -> Endpoint:
        """Return a source's endpoint; ConfigError if it is not configured."""
        return self.source(name).endpoint

    async def recheck(self, rejection: RejectionRow) -> Arrival | str:
        """Verify a rejected request with the current secrets and the time of its arrival; returns it ready to be
        recorded, or the code of the reason why not."""
        endpoint = self.endpoint(rejection.source)
        if unprovable(endpoint) is not None:
            return "credential_missing"
        require_secrets(endpoint)
        request = Request(
            rejection.method,
            rejection.path,
            rejection.query,
            _headers(rejection.headers),
            rejection.body,
            rejection.remote,
        )
        try:
            if request.method != "POST" or answer_unsigned(endpoint, request):
                return NOT_A_DELIVERY
        except Rejected as error:
            return error.reason
        reason = ""
        # At the time of the id, by the receiver's clock; then at the time of the write, by the database's.
        for came in ((rejection.id.int >> 80) / 1000, rejection.received_at.timestamp()):
            try:
                proof = await self._verify(endpoint, request, came)
                if (shake := answer_signed(endpoint, request)) and not shake.keep:
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
        """Return the events in a request that was authentic when it arrived, as its source is configured now."""
        endpoint = self.endpoint(request.source)
        if not self.source(request.source).delivered:
            raise WrongState(
                f"request {request.id} is one to your own route, whose caller was answered: nothing can be "
                "accepted of it; the caller sends it with a new key"
            )
        # It was accepted: whether its content fits a schema is not asked again.
        endpoint = msgspec.structs.replace(endpoint, schemas=None)
        kept = Request("POST", endpoint.path, request.query, _headers(request.headers), request.body, request.remote)
        signed_at = None if request.signed_at is None else request.signed_at.timestamp()
        proof = Proof(request.scheme, request.secret, signed_at)
        try:
            return identify(endpoint, kept, proof, request.received_at.timestamp())
        except Rejected as error:
            raise WrongState(f"request {request.id} no longer holds an event: {in_words(error.reason)}") from error

    def content(self, request: RequestRow, place: int) -> object:
        """Return one event's content; UnreadableError if there is none."""
        contract = self.endpoint(request.source).contract
        return contents(contract, decode(contract, request.body))[place]

    # ── a provider's log ──

    def listed_key(self, source: str, headers: Sequence[tuple[str, str]]) -> tuple[bytes, str] | None:
        """Return identity and key of a listed event, if its headers suffice; None if its body is needed."""
        endpoint = self.endpoint(source)
        given = dict(_lower(headers)[::-1])
        if endpoint.key_function is not None or not endpoint.key_fields:
            return None
        parts = [exact(given.get(field.name)) if isinstance(field, Header) else None for field in endpoint.key_fields]
        known = [part for part in parts if part is not None]
        return (key_identity(source, *known), show(b":".join(known))) if len(known) == len(parts) else None

    def listed(self, source: str, content: Content, now: float) -> Arrival | str:
        """Return a listed event ready to be recorded under its delivery's key, or the code of the reason why not."""
        endpoint = self.endpoint(source)
        request = Request("POST", endpoint.path, b"", _lower(content.headers), content.body, None)
        proof = _proved(endpoint, request, now)
        try:
            items = identify(endpoint, request, proof, now)
        except Rejected as error:
            return error.reason
        if not items:
            return NOT_A_DELIVERY
        if all(item.skip == NOT_ALLOWED for item in items):
            return "type_rejected"
        if proof.scheme == LISTED:
            if any(_keyless(endpoint, item) for item in items):
                return "key_missing"
            # The body is the API's, and may differ from the signed one.
            items = tuple(
                msgspec.structs.replace(item, body_identity=None, type_identity=None, token_identities=())
                for item in items
            )
        return msgspec.structs.replace(arrival(endpoint, request, proof, items), reconciled=True)


def _lower(headers: Sequence[tuple[str, str]]) -> Headers:
    """Return headers as a request has them, without what no header can hold."""
    return tuple(
        (name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers
        if "\r" not in value and "\n" not in value
    )


def _proved(endpoint: Endpoint, request: Request, now: float) -> Proof:
    """Prove a listed event: by the delivery's own signature, if the provider kept it and it fits the body; else by
    the API."""
    if endpoint.tolerance is None:
        require_secrets(endpoint)
        try:
            return verify(endpoint, request, now)
        except (Rejected, KeyNeeded):
            pass
    return Proof(LISTED, "")


def _keyless(endpoint: Endpoint, item: Item) -> bool:
    """Whether the delivery would have another key: made of the exact bytes, or of each arrival."""
    if item.key_origin is KeyOrigin.ARRIVAL:
        return True
    return item.key_origin is KeyOrigin.DIGEST and not endpoint.contract.immutable


def _headers(packed: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in unpack_headers(packed))


def unprovable(endpoint: Endpoint) -> str | None:
    """Return why rejected requests cannot be verified again, since presented credentials are not stored; None if they
    can."""
    contract = endpoint.contract
    if not endpoint.secrets:
        return f"{contract.title} has no secret here, so nothing proves its requests"
    if contract.scheme.secret_headers or contract.scheme.secret_parameters:
        return f"{contract.title} presents a secret, and presented secrets are never stored"
    if getattr(contract.scheme, "header", b"") in contract.secret_headers:
        return f"{contract.title} signs in a header that may hold a secret, and such headers are never stored"
    return None
