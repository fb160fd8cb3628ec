"""Durable row to outcome: claim, handle, settle."""
