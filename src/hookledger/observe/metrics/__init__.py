"""Metrics: what is counted, how, and how it is shown to Prometheus."""
