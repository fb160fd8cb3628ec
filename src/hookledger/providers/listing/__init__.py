"""What providers say they sent: ready-made listers, and the protocol for others."""
