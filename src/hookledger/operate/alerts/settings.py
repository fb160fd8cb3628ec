"""Alert settings: who is told, of what, and how often."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from ...clock import Seconds
from ...errors import ConfigError
from ...store.ops.alert_looks import AlertKind

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
NEEDS = {"webhook": "url", "slack": "url", "pagerduty": "routing_key", "apprise": "url"}


class TargetSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[alerts.targets.NAME]`: one place that alerts are sent to."""

    type: Literal["webhook", "slack", "pagerduty", "apprise"]
    """`webhook`: a JSON POST; `slack`: an incoming webhook; `pagerduty`: Events API v2; `apprise`: any service that
    Apprise knows, with the extra `apprise`."""
    url: str | None = None
    """`env:NAME`, `file:/path` or the URL itself: https, or http on this machine. For `pagerduty`, of its API;
    default: `https://events.pagerduty.com/v2/enqueue`."""
    routing_key: str | None = None
    """For `pagerduty`: the integration key, as `env:NAME`, `file:/path` or the key itself."""
    secret: str | None = None
    """For `webhook`: signs each message as Standard Webhooks, `env:NAME`, `file:/path` or the secret itself,
    `whsec_…`."""
    only: list[str] | None = None
    """The kinds of alerts that it gets; default: all."""

    def __post_init__(self) -> None:
        needed = NEEDS[self.type]
        if getattr(self, needed) is None:
            raise ConfigError(f"an alert target of type {self.type} needs {needed}")
        if self.routing_key is not None and self.type != "pagerduty":
            raise ConfigError("routing_key is for alert targets of type pagerduty")
        if self.secret is not None and self.type != "webhook":
            raise ConfigError("secret is for alert targets of type webhook")
        wanted_kinds(self.only)

    def __repr__(self) -> str:
        return f"TargetSettings({self.type!r}, only={self.only!r})"


class AlertSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[alerts]`: messages to people. None is sent unless there is a target, or an `@inbox.alert` function."""

    name: str = "hookledger"
    """What messages call this inbox: name it if several inboxes have the same targets."""
    window: Seconds = Seconds("10m")
    """In which occurrences of one kind and topic make one message; the next window's message says how many more."""
    topics: int = 10
    """Topics of one kind, such as causes, that get their own message in a window; one more message counts the rest.
    """
    interval: Seconds = Seconds("5s")
    """Between looks for something to tell."""
    attempts: int = 12
    """How often a message is tried before it counts as failed: with the default, for about 40 minutes."""
    timeout: Seconds = Seconds("10s")
    """For one attempt."""
    keep: Seconds = Seconds("30d")
    """After which messages are deleted."""
    no_worker_after: Seconds = Seconds("60s")
    """How long events may be due without a live worker; at least a worker's lease."""
    signature_failures: int = 50
    """Rejected requests of one source within a window that cause an alert."""
    targets: dict[str, TargetSettings] = {}

    def __post_init__(self) -> None:
        if min(self.topics, self.attempts, self.signature_failures) < 1:
            raise ConfigError("[alerts] topics, attempts and signature_failures must be at least 1")
        if self.window <= 0 or self.interval <= 0 or self.timeout <= 0 or self.keep < self.window:
            raise ConfigError(
                "[alerts] window, interval and timeout must be greater than 0, and keep not below window"
            )
        for name in self.targets:
            check_name(name)


def check_name(name: str) -> str:
    """Return the name of a target; ConfigError if it cannot be one."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} cannot be the name of an alert target: use letters, digits, `.`, `_` and `-`")
    return name


def wanted_kinds(only: list[str] | None) -> frozenset[str]:
    """Return the kinds that a target gets; ConfigError for an unknown one."""
    known = [kind.value for kind in AlertKind]
    if only is None:
        return frozenset(known)
    if not only:
        raise ConfigError("only = [] of an alert target leaves nothing: name kinds, or leave it out")
    if unknown := [kind for kind in only if kind not in known]:
        raise ConfigError(f"unknown kind of alert {unknown[0]!r}: the kinds are {', '.join(known)}")
    return frozenset(only)


class AlertFunction(Struct, frozen=True):
    """A function declared with `@inbox.alert`."""

    name: str
    function: Callable[[Any], Any]
    kinds: frozenset[str]
