"""Fetchers: the current state of an event's object, from the provider's API."""
