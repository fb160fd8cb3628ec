"""Durable state, behind one protocol with one method per transition."""

SCHEMA_RANGE = (9, 10)
"""The oldest and newest schema version that this release works with."""
