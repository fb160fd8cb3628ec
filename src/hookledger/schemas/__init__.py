"""JSON Schemas of events: read from a folder, compiled at the start, and what breaks them, without values."""
