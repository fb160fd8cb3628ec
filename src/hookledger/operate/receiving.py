"""What operators need of the receiving side. The rooms never import one another: inbox.py hands it in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import time
from typing import Protocol

from msgspec import Struct

from ..model import Arrival, Item, RequestRow
from ..providers.contract import Contract
from ..providers.fields import Field
from ..providers.listing.base import Content, Lister
from ..store.ops.rejections import RefusalRow


class SourceFacts(Struct, frozen=True, kw_only=True):
    """One configured source, as far as operators ask about it."""

    name: str
    contract: Contract
    key_fields: tuple[Field, ...]
    key_function: bool
    """Its key is what a function of the user's says."""
    horizon: float | None
    """Seconds; None: identities are kept for ever."""
    expiries: tuple[float | None, ...]
    """When each of its secrets ends, in Unix seconds; None: never."""
    advice: tuple[str, ...]
    """What is allowed and yet may surprise."""
    unprovable: str | None
    """Why what it refused cannot be judged anew; None where it can."""


class Plan(Struct, frozen=True):
    """How a source is reconciled with the truth."""

    lister: Lister | None
    """None: nobody lists the provider's events."""
    look_back: float
    """Seconds that a comparison goes back if nobody says how far."""
    at: time | None
    """Every day at this time, in UTC; None: only when a person asks."""
    repairs: bool
    """Whether the source has a repair handler."""
    runs: bool
    """Whether its handlers run; not while it only observes."""


class Receiving(Protocol):
    """The intake's own judgements, for requests that were kept."""

    def sources(self) -> list[str]: ...

    def facts(self, source: str) -> SourceFacts:
        """ConfigError if no source is called so."""
        ...

    def reason(self, code: str) -> str:
        """Why a request was refused, in words."""
        ...

    async def recheck(self, refusal: RefusalRow) -> Arrival | str:
        """Ready to be recorded, if it proves authentic with the secrets of now, the time being that of its arrival;
        else the code of the reason."""
        ...

    def identify(self, request: RequestRow) -> tuple[Item, ...]:
        """The events in a request that was found authentic when it came, as its source is configured now."""
        ...

    def content(self, request: RequestRow, place: int) -> object:
        """One event's content; UnreadableError if there is none."""
        ...

    def plan(self, source: str) -> Plan:
        """ConfigError if no source is called so."""
        ...

    def takes(self, source: str, kind: str) -> bool:
        """Whether the source takes events of this type."""
        ...

    def named_types(self, source: str) -> list[str]:
        """The types that its settings name exactly: they are expected to come."""
        ...

    def listed_key(self, source: str, headers: Sequence[tuple[str, str]]) -> tuple[bytes, str] | None:
        """Identity and key of a listed event, where the headers have all of it; None where its body is needed."""
        ...

    def listed(self, source: str, content: Content, now: float) -> Arrival | str:
        """A listed event, ready to be recorded under the key that its delivery would have; else the code of the
        reason why not."""
        ...

    def shown(self, key: Sequence[bytes]) -> str:
        """An event key as people see it."""
        ...
