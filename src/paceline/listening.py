"""Sockets that a server of ours listens on."""

import os
import socket
from pathlib import Path

BACKLOG = 128


def listening(host: str, port: int, backlog: int = BACKLOG) -> socket.socket:
    """A listening socket at an address. `backlog`: connections that may wait to be accepted.

    Raises:  OSError: it is in use, or cannot be had
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)


def listening_at(path: Path, backlog: int = BACKLOG) -> socket.socket:
    """A listening UNIX socket that only this user can connect to. A file that a server left there is replaced.

    Raises:  OSError: it cannot be made
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # The file has its mode before anybody can connect.
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    if not path.is_socket() or path.lstat().st_uid != os.getuid():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
