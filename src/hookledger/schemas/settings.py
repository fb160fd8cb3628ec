"""`[schemas]`: where the schemas of events are."""

from __future__ import annotations

from msgspec import Struct


class SchemaSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`[schemas]`: JSON Schemas of events' contents, and which of their fields are noted."""

    path: str = "schemas"
    """The folder with `SOURCE/TYPE/VERSION.json`, from where the process is started. It may be missing while this is
    the default. Folders that have no source's name hold what schemas share."""
    drift: bool = True
    """Whether workers note which fields and JSON types the events of each source have, once a minute and from a
    sample of stored events, for `hookledger schemas drift`. Names only, never values."""
