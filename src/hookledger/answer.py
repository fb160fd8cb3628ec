"""What a handler answers: a status, a body and headers, checked and encoded when it is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .errors import BadResult
from .model import StoredAnswer, covers, pack_headers

MAX_ANSWER = 256 * 1024
"""Bytes of a body: it is stored, and sent again to each redelivery."""
MAX_HEADERS = 8 * 1024
"""Bytes of all headers together."""
DAY = 86400.0
"""Seconds for which an answer is kept at least."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\0-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-connection",
        "set-cookie",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the server decides, and the one whose repetition would give a session to another caller."""
_BODYLESS = (204, 205)

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Answer:
    """The response to the request that brought the event, the same to each redelivery.

    `body`: text, bytes, or a dict or list, which becomes JSON. `status`: 2xx, or 4xx for `Permanent(answer=…)`, which
    is sent once and not stored. `headers`: with them the content type, if it is not that of the body.
    """

    __slots__ = ("body", "headers", "status")

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""

    def __init__(
        self,
        body: str | bytes | dict[str, Any] | list[Any] = b"",
        status: int = 200,
        headers: Headers = (),
    ) -> None:
        checked = _checked_status(status)
        data, kind = _encoded(body)
        if data and checked in _BODYLESS:
            raise BadResult(f"an answer with status {checked} has no body: leave it out, or use status 200")
        pairs = _checked_headers(headers)
        if kind is not None and not any(name == "content-type" for name, _ in pairs):
            pairs = (("content-type", kind), *pairs)
        for name, value in (("status", checked), ("body", data), ("headers", pairs)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an answer is checked when it is made: make another one instead of setting {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.body, self.status, self.headers)

    @property
    def successful(self) -> bool:
        return self.status < 300

    def stored(self, keep: float = DAY) -> StoredAnswer:
        """As it is kept for so many seconds."""
        pairs = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers)
        return StoredAnswer(self.status, pack_headers(pairs), self.body, keep)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Answer):
            return NotImplemented
        return (self.status, self.headers, self.body) == (other.status, other.headers, other.body)

    def __hash__(self) -> int:
        return hash((self.status, self.headers, self.body))

    def __repr__(self) -> str:
        return f"<Answer {self.status}, {len(self.body)} bytes>"  # the body may be personal


class AnswerRule(Struct, frozen=True):
    """How deliveries of a handler that answers are answered."""

    deadline: float
    """Seconds from the whole request to its answer, at most."""
    late: Answer | None = None
    """Sent past the deadline, once the event is recorded; None: 503."""
    failed: Answer | None = None
    """For an event that failed for good or waits for an operator; None: the provider's form of success."""
    concurrent: Literal["wait", 409, 429] = "wait"
    """What a delivery gets while another one of its event is handled."""
    keep: float = DAY
    """Seconds for which the answer is kept."""
    redelivered: bool = True
    """Whether the sender may come again, so that 503 leads to a next attempt."""
    by_type: tuple[tuple[str, AnswerRule], ...] = ()
    """The rules of types for which the provider has a form; the first match counts."""

    def of(self, kind: str) -> AnswerRule:
        """Return the rule for this type."""
        for pattern, rule in self.by_type:
            if covers(pattern, kind):
                return rule
        return self


def _checked_status(status: object) -> int:
    if isinstance(status, int) and not isinstance(status, bool) and (200 <= status < 300 or 400 <= status < 500):
        return status
    raise BadResult(
        f"an answer's status is 200 to 299, or 400 to 499 in Permanent(answer=…), not {status!r}: raise Retry for "
        "what may succeed later"
    )


def _encoded(body: object) -> tuple[bytes, str | None]:
    """The bytes of a body, and its content type."""
    kind: str | None = None
    if isinstance(body, str):
        try:
            data, kind = body.encode(), "text/plain; charset=utf-8"
        except UnicodeEncodeError as error:
            raise BadResult(f"an answer's text cannot be encoded as UTF-8: {error.reason}") from None
    elif isinstance(body, bytes | bytearray | memoryview):
        data = bytes(body)
    elif isinstance(body, dict | list):
        try:
            data, kind = msgspec.json.encode(body), "application/json"
        except (TypeError, ValueError, RecursionError) as error:
            raise BadResult(f"an answer's body cannot be written as JSON: {error}") from error
    else:
        raise BadResult(f"an answer's body is text, bytes, a dict or a list, not {type(body).__name__}")
    if len(data) > MAX_ANSWER:
        raise BadResult(
            f"an answer's body has {len(data):,} bytes, at most {MAX_ANSWER:,} are kept: answer with a link"
        )
    return data, kind if data else None


def _checked_headers(given: Headers) -> tuple[tuple[str, str], ...]:
    pairs = list(given.items()) if isinstance(given, Mapping) else list(given)
    checked = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise BadResult(f"an answer's headers are pairs of text, not {pair!r:.60}")
        name, value = pair[0].lower(), pair[1].strip(" \t")
        if _NAME.fullmatch(name) is None:
            raise BadResult(f"{pair[0]!r:.60} is not the name of a header")
        if name in _OURS:
            raise BadResult(f"an answer cannot set {name}: it is not part of what is stored; remove it")
        if _CONTROL.search(value) is not None:
            raise BadResult(f"the header {name} has a control character: a line break would begin another header")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise BadResult(f"the header {name} has a character that is not in Latin-1: encode it") from None
        checked.append((name, value))
    if sum(len(name) + len(value) + 4 for name, value in checked) > MAX_HEADERS:
        raise BadResult(f"an answer's headers have more than {MAX_HEADERS:,} bytes")
    return tuple(checked)
