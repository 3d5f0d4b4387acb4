"""What an address gives, in a word."""

import socket

from ports import free_port

from paceline.probes.rendezvous import rendezvous_seen


def test_a_listener_is_connected_and_a_free_port_refuses():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert rendezvous_seen("127.0.0.1", server.getsockname()[1], 1.0) == "connected"
    assert rendezvous_seen("127.0.0.1", free_port(), 1.0) == "refused"


def test_a_name_says_where_it_led_to():
    assert rendezvous_seen("localhost", free_port(), 1.0).startswith("refused (localhost is ")


def test_a_name_that_nobody_knows_is_said_to_be_unknown():
    assert rendezvous_seen("no.such.host.invalid", 1, 1.0) == "name not known"
    assert rendezvous_seen("a" * 300, 1, 1.0).startswith("name not known")
