"""HTTP request to durable row."""
