"""Retention and erasure: what is deleted, when, and by whose decision."""
