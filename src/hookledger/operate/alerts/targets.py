"""Where alerts are sent, and how: one attempt, limited in time and size, with no redirect followed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from ...effects.thread import in_a_thread
from ...errors import ConfigError
from ...providers import http
from ...providers.presets import standard_webhooks
from ...providers.schemes.base import Draft
from ...receive.secrets import text_of
from .settings import AlertSettings, TargetSettings, wanted_kinds
from .words import Alert

MAX_BYTES = 64 * 1024
"""Of an answer."""
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
PATIENCE = 3.0
"""How many times the timeout an `@inbox.alert` function, or Apprise, may take."""
MAX_SUMMARY = 1024
Function = Callable[[Alert], Awaitable[None] | None]

log: logging.Logger = logging.getLogger(__name__)

_sending: ContextVar[bool] = ContextVar("hookledger_alert", default=False)


class NotSent(Exception):
    """The target did not take the message. The text names neither URL nor key."""

    def __init__(self, words: str, retry_in: float | None = None) -> None:
        super().__init__(words)
        self.retry_in = retry_in


class Target(Protocol):
    """One place that alerts are sent to."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> frozenset[str]: ...

    async def send(self, alert: Alert) -> None:
        """Raise NotSent if the target did not take it."""


class Posts(ABC):
    """A target that takes a JSON POST."""

    def __init__(self, name: str, settings: TargetSettings, timeout: float) -> None:
        self.name: str = name
        self.kinds: frozenset[str] = wanted_kinds(settings.only)
        self._what = f"[alerts.targets.{name}]"
        self._base, self._path = _split(_read(settings.url or PAGERDUTY, self._what, "url"), self._what)
        self._client = http.Client(self._base, what=self._what, timeout=timeout, max_bytes=MAX_BYTES)

    async def send(self, alert: Alert) -> None:
        body = msgspec.json.encode(self.content(alert))
        headers = {"content-type": "application/json", **self.headers(alert, body)}
        token = _sending.set(True)
        try:
            answer = await self._client.request(
                http.Outgoing(method="POST", path=self._path, headers=headers, content=body)
            )
        except http.Unreachable as error:
            raise NotSent(str(error)) from None
        except http.Unusable:  # its text may have the path, which is a secret
            raise NotSent(
                f"{self._client.host} cannot be asked: the URL is malformed, or the answer too large"
            ) from None
        finally:
            _sending.reset(token)
        if not 200 <= answer.status < 300:
            raise NotSent(f"{self._client.host} answered {answer.status}", http.pause(answer))

    @abstractmethod
    def content(self, alert: Alert) -> Any:
        """Return what the target takes, for JSON."""

    def headers(self, alert: Alert, body: bytes) -> Mapping[str, str]:
        del alert, body
        return {}


class Webhook(Posts):
    """A generic webhook, signed if there is a secret. `webhook-id` is the same in every attempt."""

    def __init__(self, name: str, settings: TargetSettings, timeout: float) -> None:
        super().__init__(name, settings, timeout)
        self._scheme = standard_webhooks()
        self._key: bytes | None = None
        if settings.secret is not None:
            try:
                self._key = self._scheme.prepare(_read(settings.secret, self._what, "secret"))
            except ValueError as error:
                raise ConfigError(f"{self._what}: the secret is not valid for Standard Webhooks: {error}") from None
            if len(self._key) < self._scheme.min_key:
                raise ConfigError(f"{self._what}: the secret is shorter than {self._scheme.min_key} bytes")

    def content(self, alert: Alert) -> Any:
        data = {name: getattr(alert, name) for name in alert.__struct_fields__ if name != "topic"}
        return {"type": f"hookledger.alert.{alert.kind}", "timestamp": alert.last_at, "data": data}

    def headers(self, alert: Alert, body: bytes) -> Mapping[str, str]:
        ident, now = f"msg_{alert.id.hex}", time.time()
        if self._key is None:
            return {"webhook-id": ident, "webhook-timestamp": str(int(now))}
        draft = self._scheme.sign(self._key, Draft(url="", body=body, headers={}, now=now, id=ident))
        return {name.decode("ascii"): value for name, value in draft.headers.items()}


class Slack(Posts):
    """An incoming webhook of Slack."""

    def content(self, alert: Alert) -> Any:
        text = slack_text(f"[{alert.severity}] {alert.inbox}: {alert.text}")
        return {"text": text, "mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}


class PagerDuty(Posts):
    """Events API v2. Every message about one topic has the same `dedup_key`, so that it joins the open incident."""

    def __init__(self, name: str, settings: TargetSettings, timeout: float) -> None:
        super().__init__(name, settings, timeout)
        self._key = _read(settings.routing_key or "", self._what, "routing_key")

    def content(self, alert: Alert) -> Any:
        details = {"count": alert.count, "kind": alert.kind, "text": alert.text, "next": alert.command}
        details |= {"first_at": alert.first_at, "last_at": alert.last_at, "event_id": alert.event_id}
        return {
            "routing_key": self._key,
            "event_action": "trigger",
            "dedup_key": f"{alert.inbox}:{alert.kind}:{alert.topic or 'more'}"[:255],
            "payload": {
                "summary": f"{alert.inbox}: {alert.title}"[:MAX_SUMMARY],
                "source": alert.inbox,
                "severity": alert.severity,
                "timestamp": alert.last_at,
                "class": alert.kind,
                "custom_details": details,
            },
        }


class Apprise:
    """Any service that Apprise knows. Apprise limits its own requests."""

    def __init__(self, name: str, settings: TargetSettings, timeout: float) -> None:
        what = f"[alerts.targets.{name}]"
        try:
            import apprise
        except ImportError:
            raise ConfigError(f"{what} needs the extra apprise: pip install 'hookledger[apprise]'") from None

        self.name: str = name
        self.kinds: frozenset[str] = wanted_kinds(settings.only)
        self._timeout = timeout * PATIENCE
        self._apprise: Any = apprise.Apprise()
        if not self._apprise.add(_read(settings.url or "", what, "url")):
            raise ConfigError(f"{what}: Apprise does not know this url: check its form")

    async def send(self, alert: Alert) -> None:
        title = f"[{alert.severity}] {alert.inbox}"
        try:
            async with asyncio.timeout(self._timeout):
                taken = await self._apprise.async_notify(body=alert.text, title=title, body_format="text")
        except TimeoutError:
            raise NotSent(f"Apprise did not answer within {self._timeout:g} s") from None
        except Exception as error:
            raise NotSent(f"Apprise failed: {type(error).__name__}") from None
        if not taken:
            raise NotSent("the service did not take the message: the log of apprise says why")


class Calls:
    """An `@inbox.alert` function. A plain one runs in its own thread, one at a time: a thread cannot be stopped,
    so one that hangs neither keeps the process nor takes the threads of others."""

    def __init__(self, name: str, function: Function, kinds: frozenset[str], timeout: float = 10.0) -> None:
        self.name: str = name
        self.kinds: frozenset[str] = kinds
        self._function = function
        self._timeout = timeout
        self._running: asyncio.Future[Awaitable[None] | None] | None = None

    async def send(self, alert: Alert) -> None:
        if self._running is not None and not self._running.done():
            raise NotSent("the function still runs with an earlier message")
        limit = self._timeout * PATIENCE
        try:
            async with asyncio.timeout(limit):
                if inspect.iscoroutinefunction(self._function):
                    await self._function(alert)
                    return
                self._running = in_a_thread(lambda: self._function(alert), f"hookledger-alert-{self.name}")
                if inspect.isawaitable(later := await asyncio.shield(self._running)):
                    await later  # an object that can be called, or a wrapper
        except TimeoutError:
            raise NotSent(f"the function did not end within {limit:g} s") from None
        except Exception as error:
            log.exception("the alert function %s failed", self.name)
            raise NotSent(f"the function raised {type(error).__name__}") from None


BY_TYPE: dict[str, Callable[[str, TargetSettings, float], Target]] = {
    "webhook": Webhook,
    "slack": Slack,
    "pagerduty": PagerDuty,
    "apprise": Apprise,
}


def configured(settings: AlertSettings) -> list[Callable[[], Target]]:
    """Return what makes each target of the settings; it raises ConfigError where a secret is missing or unusable."""

    def maker(name: str, given: TargetSettings) -> Callable[[], Target]:
        return lambda: BY_TYPE[given.type](name, given, float(settings.timeout))

    return [maker(name, given) for name, given in settings.targets.items()]


def check_targets(settings: AlertSettings) -> None:
    """Raise ConfigError if a target cannot be used, for processes that send."""
    for make in configured(settings):
        make()


def slack_text(text: str) -> str:
    """Return text in which Slack finds no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _read(given: str, what: str, key: str) -> str:
    return text_of(given, f"{key} of {what}")[0].strip()


def _split(url: str, what: str) -> tuple[str, str]:
    """Return host and path of a URL. No error quotes it: the path of Slack's is a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.username is not None or parts.fragment:
        raise ConfigError(f"{what}: url must be https://HOST/PATH, without a user")
    if not (parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "::1", "localhost"))):
        raise ConfigError(f"{what}: url must begin with https://, because it is a secret")
    named = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{named}" + (f":{port}" if port else "")
    return base, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _tells_no_url(record: logging.LogRecord) -> bool:
    """httpx2 logs the URL of each request: a target's is a secret."""
    del record
    return not _sending.get()


logging.getLogger("httpx2").addFilter(_tells_no_url)
