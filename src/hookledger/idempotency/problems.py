"""What a guarded request is told that the route itself does not answer: problem details (RFC 9457)."""

from __future__ import annotations

from uuid import UUID

import msgspec

from .capture import Captured

KIND = "urn:hookledger:idempotency:"
"""The prefix of each problem's type."""


def problem(
    kind: str, status: int, title: str, detail: str, *, event: UUID | None = None, retry_after: int | None = None
) -> Captured:
    """Return a response; `event`: the event that the caller may cite to the operator of the API."""
    body: dict[str, object] = {"type": KIND + kind, "title": title, "status": status, "detail": detail}
    if event is not None:
        body["event"] = str(event)
    headers = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    return Captured(status, tuple(headers), msgspec.json.encode(body), "refused")


def missing() -> Captured:
    return problem(
        "key-missing",
        400,
        "Idempotency-Key is missing",
        "This route needs the header Idempotency-Key, so that a repeated request is carried out once: send a new "
        "unique key with each new request, and the same key when you repeat it.",
    )


def malformed(why: str) -> Captured:
    return problem("key-malformed", 400, "Idempotency-Key is malformed", f"{why[:1].upper()}{why[1:]}.")


def too_large(limit: int) -> Captured:
    return problem("body-too-large", 413, "The body is too large", f"This route takes at most {limit} bytes.")


def too_slow() -> Captured:
    return problem(
        "body-too-slow", 408, "The body did not arrive in time", "Nothing was carried out: send the request again."
    )


def unreadable(why: str, event: UUID) -> Captured:
    return problem(
        "body-unreadable",
        400,
        "The body of the request cannot be read",
        f"Nothing was kept: {why}. Send a request that can be read, with a new key.",
        event=event,
    )


def unfit(breaks: str, event: UUID) -> Captured:
    """`breaks`: a heading, then each in a line, without values of the request."""
    return problem(
        "body-unfit",
        400,
        "The body of the request does not fit its schema",
        f"Nothing was carried out: {'; '.join(breaks.splitlines()[1:])}. Send a request that fits, with a new key.",
        event=event,
    )


def reused(event: UUID) -> Captured:
    return problem(
        "key-reused",
        422,
        "Idempotency-Key was used for another request",
        "The first request with this key had another path, query or body: repeat that one unchanged, or send this "
        "one with a new key.",
        event=event,
    )


def in_flight(event: UUID) -> Captured:
    return problem(
        "in-flight",
        409,
        "The first request with this key is still being carried out",
        "Wait, then send the same request again: it gets the answer of the first.",
        event=event,
        retry_after=1,
    )


def too_many(event: UUID) -> Captured:
    return problem(
        "too-many-waiting",
        429,
        "Too many requests with this key wait for its answer",
        "Wait, then send the same request again.",
        event=event,
        retry_after=5,
    )


def unknown(event: UUID) -> Captured:
    return problem(
        "unknown-outcome",
        409,
        "It is unknown whether the first request with this key was carried out",
        "The first request ended before its answer was stored, so it is not carried out again until an operator has "
        "found out what it did: ask the operator of this API about this event, and do not send it with a new key.",
        event=event,
    )


def settled(event: UUID) -> Captured:
    return problem(
        "settled",
        409,
        "The request with this key was settled by hand",
        "An operator settled it, and it has no stored answer: look up what it created, and use a new key for a new "
        "request.",
        event=event,
    )


def answered_before(event: UUID) -> Captured:
    return problem(
        "answer-expired",
        409,
        "The request with this key was carried out, and its answer is no longer kept",
        "It is not carried out again: look up what it created, and use a new key for a new request.",
        event=event,
    )


def closed(event: UUID) -> Captured:
    return problem(
        "closed",
        409,
        "The request with this key was closed without an answer",
        "It is not carried out any further: ask the operator of this API about this event, or use a new key for a "
        "new request.",
        event=event,
    )


def unavailable(event: UUID | None = None) -> Captured:
    return problem(
        "unavailable",
        503,
        "The request could not be recorded, or its outcome is unknown",
        "Send the same request with the same key again: if it was carried out, you get its answer.",
        event=event,
        retry_after=2,
    )


def not_storable(why: str, event: UUID, *, undone: bool) -> Captured:
    """`undone`: whether the next request runs the route again; otherwise what it wrote elsewhere is unknown."""
    so = "The route's transaction was rolled back" if undone else "It is unknown what the route wrote elsewhere"
    return problem(
        "answer-not-storable",
        500,
        "The answer of this route cannot be stored",
        f"{so}: {why}. This is a mistake of this API: tell its operator.",
        event=event,
    )
