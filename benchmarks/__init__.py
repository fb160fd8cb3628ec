"""Measurements of Hookledger against what people write by hand. Loopback only."""
