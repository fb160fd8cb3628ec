"""Ports for services that the tests start."""

import os
import random
import socket

# Below the range from which Linux and macOS take the local ports of outgoing connections: nobody's
# outgoing connection can take the port while its server is down between stop() and start().
# Test processes that run side by side (gw0, gw1, …) have ports of their own.
_AT_ONCE = 8
_PLACE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _AT_ONCE
_left = random.sample(range(15_000 + _PLACE, 30_000, _AT_ONCE), k=15_000 // _AT_ONCE)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now, and which was not given before."""
    while _left:
        port = _left.pop()
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on 127.0.0.1 left")
