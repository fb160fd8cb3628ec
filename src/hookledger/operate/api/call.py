"""One API call: a function whose signature names request and answer types, and the role it needs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct

from ...store.ops.audit import Audit
from .. import audit
from ..context import Context
from .auth import Caller, Role

Q = TypeVar("Q")
B = TypeVar("B")

Text = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
"""A name or reference that every database can store."""
Reason = Annotated[
    str, Meta(max_length=2000, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$", description="Reason, for the audit log.")
]
MOST_BODY = 2**20
"""Maximum bytes of a request body."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=500)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """An action without a state to compare: done twice, it is audited twice, and the end is the same."""

    reason: Reason


class Asked(Struct, Generic[Q, B], frozen=True):
    """One request: decoded query and body, and the caller."""

    context: Context
    caller: Caller
    path: dict[str, str]
    query: Q
    body: B
    unauthenticated: int = 0
    """Requests without a valid token, since the start."""

    @property
    def by(self) -> Audit:
        """Return the caller and the body's reason, for the audit log."""
        return audit.by(self.caller.name, getattr(self.body, "reason", ""))

    @property
    def sees_all(self) -> bool:
        """Whether the caller may read payloads."""
        return self.caller.role.covers(Role.OPERATOR)


Look = Asked[Nothing, Nothing]


class Call(Struct, frozen=True, dict=True):
    """An API call: `does(asked: Asked[QUERY, BODY]) -> ANSWER`.

    The function's name is the operation id, its docstring the description.
    """

    method: str
    path: str
    role: Role
    does: Callable[[Any], Awaitable[Any]]
    seconds: float = 30.0
    """Its time limit."""
    late: str = "the event shows whether it was done"
    """What holds when the limit is exceeded; for GET, nothing was changed."""

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
