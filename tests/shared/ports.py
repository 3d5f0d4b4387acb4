"""Ports for servers that a test starts a moment later."""

import random
import socket

# Below the ports that Linux gives to connections and to sockets bound to port 0 (`ip_local_port_range`), and below those that paceline
# chooses (launch/ports.py): until the test's server listens, nobody gets this one, nor the next one, which some scripts take as well.
_PORTS = range(10_100, 14_900)
_generator = random.SystemRandom()
"""Its own, since tests seed the common one."""


def free_port() -> int:
    """A port that nobody has on any address, nor the next one."""
    while True:
        port = _generator.choice(_PORTS)
        if not _taken(port) and not _taken(port + 1):
            return port


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False
