"""A port on which a job cannot listen is refused with its reason and a port that can be taken."""

import errno
import os
import socket

import pytest

from paceline.errors import UsageError
from paceline.launch.ports import require_free, why_not_listening


@pytest.mark.parametrize(
    ("port", "option", "saw", "next_"),
    [
        (80, "--master-port", "Permission denied; ports below 1024 are usually root's", "--master-port 29500 ..."),
        (2049, "--store-port", "Permission denied", "--store-port 29500 ..."),
        (
            80,
            "--rdzv-endpoint",
            "Permission denied; ports below 1024 are usually root's",
            "--rdzv-endpoint node1:29500 ...",
        ),
    ],
)
def test_a_port_that_this_user_may_not_listen_on_is_refused(port, option, saw, next_):
    error = why_not_listening(PermissionError(errno.EACCES, "permission denied"), "node1", port, option)
    assert error is not None and error.code == "U04"
    assert (error.what, error.saw) == (f"port {port} on node1 cannot be listened on", saw)
    assert error.next == f"paceline run {next_}"


def test_a_port_in_use_names_who_has_it():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        error = why_not_listening(OSError(errno.EADDRINUSE, ""), "127.0.0.1", port, "--master-port")
        assert error is not None and f"pid {os.getpid()}" in error.saw
        with pytest.raises(UsageError, match="is in use"):
            require_free("127.0.0.1", port, "--master-port")


def test_any_other_error_of_the_system_is_not_about_the_port():
    assert why_not_listening(OSError(errno.EMFILE, ""), "127.0.0.1", 29500, "--master-port") is None
