"""What people run instead: each peer is an ASGI app that accepts the same signed deliveries."""
