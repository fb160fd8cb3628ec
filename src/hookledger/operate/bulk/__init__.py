"""Bulk jobs: plan a set of events, and act on each."""
