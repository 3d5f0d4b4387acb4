"""This machine before a job, as the checks of hosts read it."""

import socket

import msgspec
import pytest

from paceline.probes.host_before import own_address, read_host
from paceline.rules.host_facts import HostFacts


def test_this_machine_describes_itself(tmp_path):
    facts = msgspec.convert(read_host("here", tmp_path / "not" / "yet", []), HostFacts)
    assert facts.name == "here" and facts.python and facts.paceline and facts.cpu_count
    assert facts.run_dir_bytes and facts.busy_ports == {}


def test_a_port_that_is_taken_names_who_has_it(tmp_path):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert list(read_host("here", tmp_path, [port])["busy_ports"]) == [port]


def test_an_interpreter_that_is_not_there_leaves_its_versions_unknown(tmp_path):
    facts = read_host("here", tmp_path, [], python="/nowhere/python")
    assert (facts["python"], facts["torch"]) == (None, None)


@pytest.mark.parametrize("name", ["x" * 70 + ".lan", "a..b", "no-such-host.invalid"])
def test_a_name_that_leads_nowhere_is_no_address(monkeypatch, name):
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert own_address() is None
