"""`hookledger.toml`, decoded strictly: what is not known is an error that names the nearest known key."""

from __future__ import annotations

import tomllib
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from .clock import Seconds
from .errors import ConfigError
from .providers.listing.base import ReconcileSettings
from .receive.client import Proxies, proxies
from .receive.refusals import SampleSettings
from .receive.request import Limits
from .receive.secrets import Place
from .retention import RetentionSettings, SourceRetention
from .work.loop import WorkSettings
from .work.retry import RetryPolicy

FILE = "hookledger.toml"


class IntakeSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[intake]`: the listener that providers reach."""

    host: str = "127.0.0.1"
    """Where providers, or your proxy, reach us."""
    port: int = 8700
    """Each source is at `/NAME` there."""
    batch: int = 64
    """Deliveries in one commit, at most. It takes half of those that are here, so that the other half is looked at
    meanwhile."""
    queue: int = 2048
    """Deliveries that may wait for a commit; beyond it the answer is 503."""
    parallel: int = 2
    """Commits at the same time. A second one goes once as many wait for it as make a group; on PostgreSQL only if the
    first takes longer than 5 ms."""
    apart: bool = True
    """On SQLite, under `hookledger receive` and `serve`: a process of its own writes, so that it never holds up the
    next deliveries. Costs about 50 MB."""
    trusted_proxies: list[str] = []
    """Addresses and networks of your proxies, such as `10.0.0.0/8`; `unix` for one that connects by a Unix socket.
    They are believed about the client's address (`forwarded_header`), and in X-Forwarded-Proto and X-Forwarded-Host
    where the URL is signed and a source has no `public_url`. The operator's listener trusts the same proxies."""
    forwarded_header: str | None = None
    """The header in which your proxies name the client, such as `x-forwarded-for` or `forwarded`. That address is
    kept with a request, and limits count by it. None: the peer of the connection."""
    limits: Limits = Limits()
    rejections: SampleSettings = SampleSettings()

    def __post_init__(self) -> None:
        if self.batch < 1 or self.queue < 1 or self.parallel < 1:
            raise ConfigError("intake needs batch, queue and parallel of at least 1")
        proxies(self.trusted_proxies, self.forwarded_header)  # says what cannot work, even where no source uses it

    @property
    def proxies(self) -> Proxies:
        return proxies(self.trusted_proxies, self.forwarded_header)


class TokenSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `tokens`: who may use the API."""

    name: str
    """The actor in the audit."""
    role: Literal["viewer", "operator", "admin"]
    """Each may do what those before it may."""
    token: str
    """`env:NAME`, `file:/path` or the token itself; at least 20 characters."""

    def __repr__(self) -> str:
        return f"TokenSettings({self.name!r}, {self.role!r})"


class OperatorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[operator]`: the listener for health checks and the JSON API. Keep it private."""

    host: str = "127.0.0.1"
    """Where operators and health checks reach us."""
    port: int = 8701
    """Must differ from the intake's."""
    tokens: list[TokenSettings] = []
    """Who may use the API, each `{ name = "ada", role = "operator", token = "env:HOOKLEDGER_TOKEN_ADA" }`. The name
    is the actor in the audit; the role is `viewer`, `operator` or `admin`; the token is `env:NAME`, `file:/path` or
    the token itself, of at least 20 characters. Without any the API is off."""


class SecretSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `secrets` that will not be valid for ever."""

    secret: str
    """`env:NAME`, `file:/path` or the secret itself."""
    expires: datetime
    """From then on it proves nothing; with a time zone."""

    @property
    def place(self) -> Place:
        if self.expires.tzinfo is None:
            raise ConfigError(f"a secret expires at a moment with a time zone, not at {self.expires}")
        return Place(self.secret, self.expires.timestamp())

    def __repr__(self) -> str:
        return f"SecretSettings(expires={self.expires})"


class SourceSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[sources.NAME]`: one endpoint."""

    provider: str
    """A name that `hookledger providers` lists, or `hmac` with options of your own."""
    secrets: list[str | SecretSettings] = []
    """Each `env:NAME`, `file:/path` or the secret itself; several while one is rotated, and an old one as
    `{ secret = "env:OLD", expires = 2027-01-31T00:00:00Z }`. The receiver reads them when it starts. What they are is
    the provider's matter: `hookledger providers NAME` says it."""
    path: str | None = None
    """Where its deliveries are POSTed, to keep a URL that is registered; `/NAME` if none."""
    types: list[str] | None = None
    """The event types to take, exact or ending in `*`; none takes all."""
    other_types: Literal["skip", "refuse"] = "skip"
    """What becomes of the rest: recorded as skipped, or answered 422."""
    mode: Literal["run", "observe"] = "run"
    """`observe` records and compares, and runs nothing: for the time before a cut-over."""
    key: list[str] = []
    """The fields that make two deliveries one event, instead of the provider's own: each `header:NAME`,
    `body:PATH.TO.FIELD`, `query:NAME` or `text:WORDS`."""
    key_required: bool = False
    """Answer 422 to an event without a key, instead of making one from its content."""
    repeatable: list[str] | None = None
    """Types (`team`) or types with their action (`team.created`) whose identical bodies are each an event, where the
    id is not signed; default: the provider's own. Where the type is not signed either, the body must show it; where
    it may be of several types, the provider's own repeat as the first that came, yours as any. `[]` quarantines every
    known body."""
    on_failed: Literal["record", "retry", "alert"] = "record"
    """What a duplicate of an event in the dead letter brings about, besides being recorded."""
    bounces: int = 3
    """More repeated deliveries than that of an event whose handler fails raise an alert; 0 never does."""
    horizon: Seconds | None = None
    """An event older than that goes to review; refused where it is shorter than the provider's own."""
    tolerance: Seconds | None = None
    """How old the signed time may be; the provider's own if none: its advice where it signs each attempt anew, else
    as long as it retries. Ahead of our clock it may be as much, and at most 5 minutes."""
    max_body: int | None = None
    """Bytes; the provider's own limit if none."""
    public_url: str | None = None
    """The URL that the provider calls, where it is part of what is signed."""
    verify_token: str | None = None
    """What a handshake must present, where the provider asks so: `env:NAME`, `file:/path` or the token itself."""
    origins: list[str] = []
    """Who may ask to deliver here, where the provider asks so."""
    retention: SourceRetention = SourceRetention()
    reconciled: bool = False
    """What the provider does not deliver again is fetched by other means: no warning then."""
    reconcile: ReconcileSettings | None = None
    """The provider's own log; no warning then either."""
    options: dict[str, Any] = {}
    """What the provider's scheme leaves open; for provider `hmac`: how its requests are signed and read."""

    @property
    def places(self) -> list[Place]:
        return [Place(given) if isinstance(given, str) else given.place for given in self.secrets]

    def __repr__(self) -> str:
        return f"SourceSettings({self.provider!r}, {len(self.secrets)} secrets)"


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    database: str | None = None
    """`postgresql://…` or `sqlite:///FILE`; HOOKLEDGER_DATABASE and `--database` come before it."""
    db_schema: str = msgspec.field(name="schema", default="hookledger")
    """Where our tables are in PostgreSQL."""
    app: str | None = None
    """`module:inbox`, for handlers in Python."""
    pooler: bool = False
    """A transaction pooler stands between us and PostgreSQL."""
    intake: IntakeSettings = IntakeSettings()
    operator: OperatorSettings = OperatorSettings()
    work: WorkSettings = WorkSettings()
    retention: RetentionSettings = RetentionSettings()
    sources: dict[str, SourceSettings] = {}

    def __repr__(self) -> str:
        return f"Config(app={self.app!r}, sources={list(self.sources)})"  # the database's URL may hold a password


def load(path: Path) -> Config:
    """The file's settings; every error names the file and the key."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8") from error
    try:
        return decode(tomllib.loads(text))
    except (ConfigError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def decode(values: dict[str, Any]) -> Config:
    """Settings from plain values."""
    _refuse_unknown(values, Config, "")
    try:
        return msgspec.convert(values, Config, dec_hook=_convert)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error).replace("`$.", "`")) from error


def _convert(kind: type, value: Any) -> Any:
    if issubclass(kind, Seconds) and isinstance(value, str | int | float):
        return kind(value)
    raise msgspec.ValidationError(f"Expected a duration such as '30s', got {value!r}")


def _refuse_unknown(values: Any, kind: Any, where: str) -> None:
    if get_origin(kind) is dict and isinstance(values, dict):
        for name, value in values.items():
            _refuse_unknown(value, get_args(kind)[1], f"{where}{name}.")
    if not (isinstance(kind, type) and issubclass(kind, Struct) and isinstance(values, dict)):
        return
    known = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {where}{close[0]}?" if close else f"known are {', '.join(sorted(known))}"
            raise ConfigError(f"unknown key {where}{name}: {hint}")
        _refuse_unknown(value, known[name], f"{where}{name}.")


__all__ = [
    "Config",
    "IntakeSettings",
    "Limits",
    "OperatorSettings",
    "ReconcileSettings",
    "RetentionSettings",
    "RetryPolicy",
    "SourceRetention",
    "SourceSettings",
    "TokenSettings",
    "WorkSettings",
    "decode",
    "load",
]
