"""Quarantined deliveries: how each differs from its event."""
