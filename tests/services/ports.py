"""Ports for services that the tests start."""

import random
import socket

# Below the range from which Linux and macOS take the local ports of outgoing connections: nobody's
# outgoing connection can take the port while its server is down between stop() and start().
_RANGE = range(15_000, 30_000)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now; another process may still take it first."""
    for port in random.sample(_RANGE, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on 127.0.0.1")
