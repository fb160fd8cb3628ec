"""Logs and diagnostics."""
