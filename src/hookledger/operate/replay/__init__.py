"""Replay: what a new run of an event would do."""
