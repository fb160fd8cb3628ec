"""The guard on Redis, with a real Valkey."""
