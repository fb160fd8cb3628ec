"""Event keys: whether they fit the deliveries, and keys known from another system."""
