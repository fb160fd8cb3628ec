"""Alerts to people: what they are about, how they are worded, and who gets them."""
