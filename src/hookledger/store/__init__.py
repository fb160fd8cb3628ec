"""Durable state, behind one protocol with one method per transition."""

SCHEMA_RANGE = (4, 4)
"""The oldest and newest schema version that this release works with."""
BEFORE_FIRST = -1
"""The version of a database that was made before the first release."""


def out_of_range(schema: int) -> str:
    """What to do about a database of another version."""
    if schema == BEFORE_FIRST:
        return "the database was made before the first release, whose schema is another: create a new database"
    low, high = SCHEMA_RANGE
    what = "run 'hookledger migrate'" if schema < low else "it was migrated by a newer release, which can read it"
    return f"schema version {schema}, this release needs {low} to {high}: {what}"
