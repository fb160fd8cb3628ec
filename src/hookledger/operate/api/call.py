"""One call of the API: a function, whose signature says what it takes and answers, and the role that it needs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Annotated, Any, Generic, Protocol, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct

from ...store.ops.pruning import Pruned
from ..actions import Actions
from ..insight import Insight
from .auth import Caller, Role

Q = TypeVar("Q")
B = TypeVar("B")

Text = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
"""A name or a reference: what no database refuses."""
Reason = Annotated[
    str, Meta(max_length=2000, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$", description="Why, for the audit.")
]
MOST_BODY = 2**20
"""Bytes of a request."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=500)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Services(Protocol):
    """What the calls are made of; inbox.py's side hands it in."""

    @property
    def insight(self) -> Insight: ...

    @property
    def lease(self) -> float:
        """Of the workers, in seconds."""
        ...

    def actions(self, actor: str) -> Actions: ...

    async def prune(
        self, actor: str, reason: str, *, source: str | None, anew: bool, dry: bool, told: Callable[[Pruned], None]
    ) -> None:
        """One round of retention; `told` hears what it has come to, step by step."""
        ...


class Asked(Generic[Q, B]):
    """One request: its query and body decoded, and who asks."""

    def __init__(
        self, services: Services, caller: Caller, path: dict[str, str], query: Q, body: B, refused: int = 0
    ) -> None:
        self.services = services
        self.caller = caller
        self.path = path
        self.query = query
        self.body = body
        self.refused = refused
        """Requests without a valid token, since the start."""

    @property
    def insight(self) -> Insight:
        return self.services.insight

    @property
    def actions(self) -> Actions:
        """In the name of the caller."""
        return self.services.actions(self.caller.name)

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see payloads, and what was made of them."""
        return self.caller.role.covers(Role.OPERATOR)


Look = Asked[Nothing, Nothing]


class Call:
    """`does(asked: Asked[QUERY, BODY]) -> ANSWER`. `seconds`: its time limit; `late`: what is known when that has run
    out.

    Its name is the operation's, its docstring the description.
    """

    def __init__(
        self,
        method: str,
        path: str,
        role: Role,
        does: Callable[[Any], Awaitable[Any]],
        *,
        seconds: float = 30.0,
        late: str = "whether it was done, the event tells",
    ) -> None:
        self.method = method
        self.path = path
        self.role = role
        self.does = does
        self.seconds = seconds
        self.late = late if method != "GET" else "nothing was changed"

    @property
    def name(self) -> str:
        return self.does.__name__

    @property
    def words(self) -> str:
        return inspect.cleandoc(self.does.__doc__ or "")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.does, include_extras=True)

    @property
    def query(self) -> Any:
        return get_args(self._hints["asked"])[0]

    @property
    def body(self) -> Any:
        return get_args(self._hints["asked"])[1]

    @property
    def takes_body(self) -> bool:
        return self.method != "GET"

    @property
    def answer(self) -> Any:
        """The type of the answer."""
        return self._hints["return"]
