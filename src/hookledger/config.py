"""Read `hookledger.toml` strictly: an unknown key is an error that names the nearest known key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from .clock import Seconds
from .errors import ConfigError
from .inline.settings import AnswerSettings
from .operate.alerts.settings import AlertSettings, TargetSettings
from .operate.consistency.settings import ConsistencySettings
from .operate.retention.settings import RetentionSettings
from .providers.fetching.settings import CurrentSettings
from .providers.listing.base import ReconcileSettings
from .receive.client import Proxies, proxies
from .receive.rejections import SampleSettings
from .receive.request import Limits
from .receive.secrets import SecretSettings
from .receive.settings import SourceRetention, SourceSettings, naming
from .retry import RetryPolicy
from .schemas.settings import SchemaSettings
from .work.settings import WorkSettings

T = TypeVar("T")
FILE = "hookledger.toml"


class IntakeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[intake]`: the listener that providers reach."""

    host: str = "127.0.0.1"
    """Address to listen on, for providers or your proxy."""
    port: int = 8700
    """Port to listen on; each source is at `/NAME`."""
    batch: int = 64
    """Deliveries in one commit, at most. A batch is half of the recent peak, so that the other half is verified
    concurrently."""
    queue: int = 2048
    """Deliveries that may wait for a commit; beyond it the receiver answers 503."""
    parallel: int = 2
    """Concurrent commits. A second one starts when its batch is full; on PostgreSQL only if the first takes longer
    than 5 ms."""
    writer_process: bool = True
    """On SQLite, under `hookledger receive` and `serve`: record deliveries in a separate process, so that a commit
    does not delay the next deliveries. Costs about 50 MB."""
    trusted_proxies: list[str] = []
    """Addresses and networks of your proxies, such as `10.0.0.0/8`; `unix` for one that connects by a Unix socket.
    Hookledger trusts them for the client's address (`forwarded_header`), and for X-Forwarded-Proto and
    X-Forwarded-Host if the provider signs the URL and the source has no `public_url`. The operator's listener trusts
    the same proxies."""
    forwarded_header: str | None = None
    """The header in which your proxies name the client, such as `x-forwarded-for` or `forwarded`. Hookledger stores
    that address with the request, and limits count by it. None: the address of the connection's peer."""
    limits: Limits = Limits()
    rejections: SampleSettings = SampleSettings()

    def __post_init__(self) -> None:
        if self.batch < 1 or self.queue < 1 or self.parallel < 1:
            raise ConfigError("[intake] batch, queue and parallel must be at least 1")
        proxies(self.trusted_proxies, self.forwarded_header)  # raises even if no source uses them

    @property
    def proxies(self) -> Proxies:
        return proxies(self.trusted_proxies, self.forwarded_header)


class TokenSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `tokens`: who may use the API."""

    name: str
    """The actor in the audit log."""
    role: Literal["viewer", "operator", "admin"]
    """`viewer`, `operator` or `admin`: each includes the rights of those before it."""
    token: str
    """`env:NAME`, `file:/path` or the token itself; at least 20 characters."""

    def __repr__(self) -> str:
        return f"TokenSettings({self.name!r}, {self.role!r})"


class OperatorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[operator]`: the listener for health checks and the JSON API. Keep it private."""

    host: str = "127.0.0.1"
    """Address to listen on, for operators and health checks."""
    port: int = 8701
    """Port to listen on; must differ from the intake's."""
    tokens: list[TokenSettings] = []
    """Who may use the API, each `{ name = "ada", role = "operator", token = "env:HOOKLEDGER_TOKEN_ADA" }`. The name
    is the actor in the audit log; the role is `viewer`, `operator` or `admin`; the token is `env:NAME`, `file:/path`
    or the token itself, of at least 20 characters. Without tokens the API is off."""


class MonitorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[monitor]`: health checks and metrics of each process, and the counts for charts."""

    address: str | None = None
    """Where `receive`, `work` and `api` each answer /healthz, /readyz and /metrics: `HOST:PORT` or `unix:PATH`;
    HOOKLEDGER_MONITOR and `--monitor` override it. None: nowhere. Processes on one host need different addresses.
    `serve` needs none: its operator's listener has the metrics of all its processes."""
    blocked_after: Seconds = Seconds("10s")
    """How long the event loop of a process may be blocked before its /healthz answers 503."""
    rates: bool = True
    """Whether processes write their counts to the database every ten seconds, for charts and `hookledger top`."""

    def __post_init__(self) -> None:
        if self.blocked_after < 1:
            raise ConfigError("[monitor] blocked_after must be at least 1s: a busy event loop is not blocked")


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    database: str | None = None
    """`postgresql://…` or `sqlite:///FILE`; HOOKLEDGER_DATABASE and `--database` override it."""
    db_schema: str = msgspec.field(name="schema", default="hookledger")
    """The PostgreSQL schema that holds Hookledger's tables."""
    app: str | None = None
    """`module:inbox` of your Python application."""
    pooler: bool = False
    """Whether Hookledger connects to PostgreSQL through a transaction pooler."""
    intake: IntakeSettings = IntakeSettings()
    operator: OperatorSettings = OperatorSettings()
    work: WorkSettings = WorkSettings()
    answers: AnswerSettings = AnswerSettings()
    monitor: MonitorSettings = MonitorSettings()
    retention: RetentionSettings = RetentionSettings()
    alerts: AlertSettings = AlertSettings()
    consistency: ConsistencySettings = ConsistencySettings()
    schemas: SchemaSettings = SchemaSettings()
    sources: dict[str, SourceSettings] = {}

    def __repr__(self) -> str:
        return f"Config(app={self.app!r}, sources={list(self.sources)})"  # the database URL may hold a password


def load(path: Path) -> Config:
    """Return the file's settings; every error names the file and the key."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: save it as UTF-8") from error
    try:
        return decode(tomllib.loads(text))
    except (ConfigError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def decode(values: dict[str, Any]) -> Config:
    """Return the settings that plain values describe."""
    sources = values.get("sources")
    if isinstance(sources, dict):
        values = values | {"sources": {name: source_settings(name, given) for name, given in sources.items()}}
    return _convert(values, Config)


def source_settings(name: str, values: Mapping[str, Any]) -> SourceSettings:
    """Return a source's settings, from a table of the file or the keywords of `Inbox.source`."""
    with naming(name):
        return _convert(values, SourceSettings)


def _convert(values: Mapping[str, Any], kind: type[T]) -> T:
    _check_keys(values, kind, "")
    try:
        return msgspec.convert(values, kind, dec_hook=_duration)
    except msgspec.ValidationError as error:
        raise ConfigError(_reworded(str(error))) from error


def _check_keys(values: Any, kind: Any, where: str) -> None:
    """Raise ConfigError for an unknown key or choice and list the known ones: msgspec does not."""
    if get_origin(kind) is UnionType:
        kind = _meant(kind, values)
    if get_origin(kind) is Literal and values not in get_args(kind):
        raise ConfigError(f"{where[:-1]} must be {' or '.join(map(repr, get_args(kind)))}, not {values!r}")
    if get_origin(kind) is dict and isinstance(values, Mapping):
        for name, value in values.items():
            _check_keys(value, get_args(kind)[1], f"{where}{name}.")
    if not (isinstance(kind, type) and issubclass(kind, Struct) and isinstance(values, Mapping)):
        return
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {where}{close[0]}?" if close else f"the known keys are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown key {where}{name}: {hint}")
        _check_keys(value, known[name], f"{where}{name}.")


def _meant(kind: Any, values: Any) -> Any:
    """Return the member of a union that a value is meant to be: the table, or the only one."""
    kinds = [one for one in get_args(kind) if one is not NoneType]
    tables = [one for one in kinds if isinstance(one, type) and issubclass(one, Struct)]
    if len(tables) == 1 and isinstance(values, Mapping):
        return tables[0]
    return kinds[0] if len(kinds) == 1 else kind


def _duration(kind: type, value: Any) -> Any:
    if not (issubclass(kind, Seconds) and isinstance(value, str | int | float)):
        raise TypeError(f"expected a duration such as '30s', got {value!r}")
    try:
        return kind(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None  # msgspec adds the key


def _reworded(message: str) -> str:
    """Return msgspec's message with the key first and without the names of JSON's types."""
    message = message.replace(" | null`", "`").replace("`array`", "a list").replace("`object`", "a table")
    message = re.sub(r"^Object missing required field `(\w+)`", r"\1 is required", message)
    what, _, where = message.partition(" - at `$")
    path = where.removesuffix("`").removeprefix(".")
    return f"{path}: {what[0].lower()}{what[1:]}" if path else f"{what[0].lower()}{what[1:]}"


__all__ = [
    "AlertSettings",
    "Config",
    "CurrentSettings",
    "IntakeSettings",
    "Limits",
    "MonitorSettings",
    "OperatorSettings",
    "ReconcileSettings",
    "RetentionSettings",
    "RetryPolicy",
    "SchemaSettings",
    "SecretSettings",
    "SourceRetention",
    "SourceSettings",
    "TargetSettings",
    "TokenSettings",
    "WorkSettings",
    "decode",
    "load",
    "source_settings",
]
