"""Judges kept requests anew, with the intake's own steps: what operators need of the receiving side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .cases import RefusalRow
from .errors import ConfigError, Rejected, WrongState
from .model import Arrival, Item, Proof, Request, RequestRow, unpack_headers
from .operate.receiving import SourceFacts
from .providers.reading import contents, decode
from .providers.schemes.base import KeyNeeded
from .receive.app import Fetches, arrival
from .receive.endpoint import Endpoint
from .receive.handshake import ask_signed, ask_unsigned
from .receive.identify import identify, show
from .receive.reasons import NOT_A_DELIVERY, REASONS
from .receive.verify import verify

if TYPE_CHECKING:
    from .inbox import Source

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
            await self._fetches.fetch(needed.where, again=needed.again)
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
