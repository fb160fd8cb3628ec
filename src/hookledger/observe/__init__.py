"""Logs, and later metrics and traces."""
