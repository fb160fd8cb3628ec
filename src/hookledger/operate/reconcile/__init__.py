"""Compare with the provider's log, and repair single objects."""
