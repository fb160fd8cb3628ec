"""Adapters for third-party libraries; nothing else imports these modules."""
