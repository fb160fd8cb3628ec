"""Durable state, behind one protocol with one method per transition."""

SCHEMA_RANGE = (13, 13)
"""The oldest schema version that this release works with, and the newest that it knows (decision 0050)."""
BEFORE_FIRST = -1
"""The version of a database that was made before the first release."""


def is_newer(schema: int) -> bool:
    """Whether this release does not know the version: then the schema itself says whether this release is too old."""
    return schema > SCHEMA_RANGE[1]


def fits(schema: int, oldest: int | None = None) -> bool:
    """Whether this release works with the version. `oldest`: what a newer schema says of the releases it supports."""
    low, high = SCHEMA_RANGE
    if is_newer(schema):
        return oldest is not None and oldest <= high
    return schema >= low


def out_of_range(schema: int) -> str:
    """What to do about a database of another version."""
    if schema == BEFORE_FIRST:
        return "the database was made before the first release, whose schema is another: create a new database"
    low, high = SCHEMA_RANGE
    what = "it was migrated by a newer release, which can read it" if is_newer(schema) else "run 'hookledger migrate'"
    return f"schema version {schema}, this release needs {low} to {high}: {what}"
