"""Schemas for operators: draft one from stored events, try one on them, and see which fields are new."""
