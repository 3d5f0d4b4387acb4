"""Result of a connection from this host to a rank's rendezvous address, in the words that rules and people read."""

import socket

from paceline.probes.ports import Contact, try_connect

_WORDS = {
    Contact.CONNECTED: "connected",
    Contact.REFUSED: "refused",
    Contact.TIMED_OUT: "timed out",
    Contact.NO_ROUTE: "no route",
    Contact.UNRESOLVED: "name not known",
    Contact.RESET: "reset",
    Contact.UNKNOWN: "failed",
}


def rendezvous_seen(addr: str, port: int, timeout: float) -> str:
    """One of connected, refused, timed out, no route, name not known, reset, failed; then in brackets the addresses of a name.

    The system resolves a name, which may take longer than `timeout`, so call it where waiting delays nothing.

    Holds:   rendezvous_seen("no.such.host.invalid", 1, 1.0) == "name not known"
    """
    try:
        found = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM)
    except OSError:
        return _WORDS[Contact.UNRESOLVED]
    except (UnicodeError, OverflowError):
        return "name not known (it is no host name)"
    seen = _WORDS[try_connect(addr, port, timeout).contact]
    addresses = dict.fromkeys(str(where[0]) for *_, where in found)
    return seen if addr in addresses else f"{seen} ({addr} is {', '.join(addresses)})"
