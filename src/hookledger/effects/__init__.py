"""One business consequence, once: declared, called, recorded."""
