"""What every operator function works on: an open store, and the configuration and declarations of this process."""

from __future__ import annotations

from msgspec import Struct, field

from ..clock import Clock
from ..effects.declare import Effects
from ..store.protocol import Store
from ..work.route import Routes
from .alerts.settings import AlertFunction, AlertSettings
from .consistency.settings import ConsistencySettings
from .examine import Examiner
from .retention.settings import RetentionSettings


class Application(Struct, frozen=True):
    """The handlers and effects declared in this process; empty without an application."""

    routes: Routes = field(default_factory=Routes)
    effects: Effects = field(default_factory=Effects)
    advice: tuple[str, ...] = ()
    """Advice about its connections, each as "what is so: what to do"."""
    alerts: tuple[AlertFunction, ...] = ()

    @property
    def loaded(self) -> bool:
        """Whether an application is loaded."""
        return bool(self.routes.handles())


class Context(Struct, frozen=True):
    """Passed to every operator function; made by `inbox.context(store)`."""

    store: Store
    sources: Examiner = field(default_factory=Examiner)
    application: Application = Application()
    lease: float = 60.0
    """Seconds after its last heartbeat until a worker counts as dead."""
    retention: RetentionSettings = RetentionSettings()
    alerts: AlertSettings = AlertSettings()
    consistency: ConsistencySettings = ConsistencySettings()
    notes_fields: bool = True
    """Whether maintenance notes which fields events have."""
    clock: Clock = field(default_factory=Clock)
