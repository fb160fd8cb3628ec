"""Check a live inbox."""
