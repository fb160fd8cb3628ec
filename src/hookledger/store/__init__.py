"""Durable state, behind one protocol with one method per transition."""

SCHEMA_RANGE = (4, 4)
"""The oldest and newest schema version that this release works with."""
