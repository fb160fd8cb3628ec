"""List the events that providers sent: ready-made listers, and the protocol for your own."""
