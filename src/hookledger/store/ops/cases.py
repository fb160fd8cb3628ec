"""What did not plainly become an event."""

from __future__ import annotations

from .alerts import Alerts
from .imported_keys import ImportedKeys
from .key_audit import KeyAudits
from .quarantine import Quarantine
from .rejections import Rejections


class Cases(Rejections, Quarantine, Alerts, ImportedKeys, KeyAudits):
    """`store.cases`. Nothing here is on the way of an ack."""
