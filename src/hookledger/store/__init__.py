"""Durable state, behind one protocol with one method per transition."""

SCHEMA_RANGE = (15, 15)
"""The oldest and newest schema version that this release works with."""


def out_of_range(schema: int) -> str:
    """What to do about a database of another version."""
    low, high = SCHEMA_RANGE
    what = "run 'hookledger migrate'" if schema < low else "it was migrated by a newer release, which can read it"
    return f"schema version {schema}, this release needs {low} to {high}: {what}"
