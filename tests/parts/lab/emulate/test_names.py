"""Names and addresses of local hosts; entering the namespaces is tested with real runs in tests/process."""

from paceline.namespaces import hosts_text
from paceline.parts.lab.emulate.local_hosts import local_addresses


def test_each_host_has_a_loopback_address_of_its_own():
    addresses = local_addresses(300)
    assert addresses["algo-1"] == "127.0.0.2" and addresses["algo-2"] == "127.0.0.3"
    assert len(set(addresses.values())) == 300


def test_our_names_come_before_the_machines_own_and_none_of_those_is_lost():
    present = "127.0.0.1 localhost\n10.0.0.5 algo-1\n"
    text = hosts_text({"algo-1": "127.0.0.2"}, present)
    assert text.splitlines()[0].split() == ["127.0.0.2", "algo-1"] and text.endswith(present)
