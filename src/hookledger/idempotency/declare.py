"""The declaration of a guard: its options, checked where they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ..clock import Seconds
from ..effects.signatures import check_takes
from ..errors import ConfigError
from ..model import GUARDED
from ..receive.endpoint import configure
from ..receive.settings import Duration, SourceSettings, naming
from .events import CONTRACT
from .guard import Caller, Idempotent
from .routes import Repeat, read_routes
from .settings import GuardSettings

if TYPE_CHECKING:
    from ..inbox import Inbox

KIB, MIB = 1024, 1024 * 1024


class GuardOptions(TypedDict, total=False):
    """The further keywords of `Inbox.idempotent`."""

    keep: Duration
    """How long an answer is kept; default `24h`."""
    wait: Duration | None
    """How long a repetition waits for the first request that still runs; default: it gets 409."""
    timeout: Duration
    """For a route; default `30s`."""
    lease: Duration
    """After how long a process without a sign of life has lost what it runs; default: that of `[answers]`."""
    store_4xx: bool
    """Whether a 4xx answer is stored, too, except 401, 408, 409, 425 and 429."""
    required: bool
    """Whether a request without a key gets 400; otherwise it is passed on unguarded. Default: True."""
    max_body: int
    """Bytes of a request's body; default 1 MiB."""
    max_answer: int
    """Bytes of a response's body; default 256 KiB."""
    concurrency: int
    """Guarded routes that run concurrently in one process; default: that of
    `[answers]`."""
    queue: int
    """Requests that wait for that; default: that of `[answers]`."""
    waiting: int
    """Requests that wait for one answer; default: that of `[answers]`."""
    plain: bool
    """Whether the routes are plain functions, which get a SyncEvent."""


def declare(
    inbox: Inbox,
    name: str,
    caller: Caller,
    routes: Sequence[str] | Mapping[str, Repeat],
    repeat: Repeat,
    options: GuardOptions,
) -> Idempotent:
    """Return the guard; raise ConfigError for what it cannot be."""
    known = sorted(GuardOptions.__annotations__)
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(f"guard {name!r} has no option {unknown[0]!r}; the options are {', '.join(known)}")
    check_takes(caller, f"guard {name!r}: caller", "scope")
    with naming(name):
        read = read_routes(routes, repeat)
        wait, answers = options.get("wait"), inbox.settings.answers
        settings = GuardSettings(
            keep=Seconds(options.get("keep", "24h")),
            wait=None if wait is None else Seconds(wait),
            timeout=Seconds(options.get("timeout", "30s")),
            lease=Seconds(options.get("lease", answers.lease)),
            store_4xx=options.get("store_4xx", False),
            required=options.get("required", True),
            max_body=options.get("max_body", MIB),
            max_answer=options.get("max_answer", 256 * KIB),
            concurrency=options.get("concurrency", answers.concurrency),
            queue=options.get("queue", answers.queue),
            waiting=options.get("waiting", answers.waiting),
            body_bytes=inbox.settings.intake.limits.fitting(options.get("max_body", MIB)).body_bytes,
            upload=float(inbox.settings.intake.limits.seconds),
            plain=options.get("plain", False),
            shutdown=float(inbox.settings.work.shutdown_timeout),
        )
    proxies = inbox.settings.intake.proxies
    endpoint = configure(
        name, CONTRACT, SourceSettings(provider=GUARDED, max_body=settings.max_body), proxies=proxies
    )
    return Idempotent(inbox, endpoint, caller, read, settings)
