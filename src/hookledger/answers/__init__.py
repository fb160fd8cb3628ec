"""Answers in the forms that `slack`, `discord` and `twilio` read: pure functions that return an `Answer`."""
