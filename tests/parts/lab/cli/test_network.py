"""Network options of `paceline run`: units, what is refused and with which words, and the network they make."""

import pytest

from paceline.cli.job.options import parse_run
from paceline.errors import UsageError
from paceline.parts.lab.cli.network import OPTIONS, delay_ms, loss_fraction, memory_bytes, network_of, rate_mbit
from paceline.parts.lab.emulate.network import Network


def network(text):
    return network_of(parse_run([*text.split(), "train.py"], {}))


def refused(text):
    with pytest.raises(UsageError) as error:
        network(text)
    return error.value


@pytest.mark.parametrize(
    ("text", "mbit"),
    [
        ("1gbit", 1000),
        ("100mbit", 100),
        ("100Mbit/s", 100),
        ("100 mbit", 100),
        ("2.5Gbit", 2500),
        ("500kbit", 0.5),
        ("250000bit", 0.25),
    ],
)
def test_rates_are_written_as_tc_writes_them_or_as_a_data_sheet(text, mbit):
    assert rate_mbit(text) == pytest.approx(mbit)


@pytest.mark.parametrize(
    ("text", "ms"), [("5ms", 5), ("200us", 0.2), ("200µs", 0.2), ("0.1s", 100), (".5ms", 0.5), ("0ms", 0)]
)
def test_delays(text, ms):
    assert delay_ms("--link-delay", text) == pytest.approx(ms)


def test_loss_and_memory():
    assert loss_fraction("0.1%") == pytest.approx(0.001)
    assert memory_bytes("2gib") == 2 << 30 and memory_bytes("512 MiB") == 512 << 20


@pytest.mark.parametrize(
    ("text", "what", "then"),
    [
        ("--link-rate 1000", "has no unit", "--link-rate 1000mbit"),
        ("--link-rate 100mbps", "can be read in two ways", "--link-rate 100mbit"),
        ("--link-rate 100MB/s", "can be read in two ways", "--link-rate 100mbit"),
        ("--link-rate fast", "is not a number with a unit", "--link-rate 100mbit"),
        ("--link-rate 0gbit", "is not a rate of 100 kbit or more", "--link-rate 100mbit"),
        ("--link-rate=-1gbit", "is not a number with a unit", "--link-rate 100mbit"),
        ("--link-delay 5", "has no unit", "--link-delay 5ms"),
        ("--link-delay 5min", "is not a number with a unit", "--link-delay 5ms"),
        ("--link-delay 60s", "is not a delay of 10 s or less", "--link-delay 5ms"),
        ("--link-loss 0.001", "has no unit", "--link-loss 0.001%"),
        ("--link-loss 100%", "is not a loss below 100%", "--link-loss 0.1%"),
        ("--zones 2 --zone-delay 1", "has no unit", "--zone-delay 1ms"),
        ("--host-cpus 0", "is not a number of CPUs", "--host-cpus 0.5"),
        ("--host-cpus half", "is not a number of CPUs", "--host-cpus 0.5"),
        ("--host-memory 2", "has no unit", "--host-memory 2gib"),
        ("--host-memory 2gb", "can be read in two ways", "--host-memory 2gib"),
        ("--host-memory 1mib", "is not a memory of 16 mib or more", "--host-memory 2gib"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_one_that_can(text, what, then):
    error = refused(f"--local-hosts 4 {text}")
    assert error.code == "X30" and what in error.what and then in error.next


def test_a_network_needs_hosts_on_this_machine():
    error = refused("--link-rate 1gbit --zones 2")
    assert error.code == "X31" and error.next == "paceline run --local-hosts 2 --link-rate 1gbit --zones 2 ..."


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("--local-hosts 1 --link-rate 1gbit", "a single host has no link"),
        ("--local-hosts 2 --zones 3 --zone-delay 1ms", "3 zones need as many hosts"),
        ("--local-hosts 2 --zones 0 --zone-delay 1ms", "is not a number of zones"),
        ("--local-hosts 4 --zones 2", "without a delay between them"),
        ("--local-hosts 4 --zone-delay 1ms", "there is one"),
        ("--local-hosts 4 --zones 1 --zone-delay 1ms", "there is one"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(text, what):
    error = refused(text)
    assert error.code == "X32" and what in error.what and error.next.startswith("paceline run ")


def test_the_whole_network():
    text = "--link-rate 1gbit --link-delay 5ms --link-loss 0.1% --zones 2 --zone-delay 1ms --host-cpus 0.5 --host-memory 2gib"
    assert network(f"--local-hosts 4 {text}") == Network(
        rate_mbit=1000.0,
        delay_ms=5.0,
        loss_fraction=0.001,
        zone_count=2,
        zone_delay_ms=1.0,
        host_cpus=0.5,
        host_memory_bytes=2 << 30,
    )
    assert len(text.split("--")) - 1 == len(OPTIONS)


def test_without_such_an_option_hosts_share_the_loopback_interface():
    assert network("--local-hosts 4") is None and network("--nnodes 2") is None


def test_a_single_host_may_have_limits():
    assert network("--local-hosts 1 --host-cpus 0.5") == Network(host_cpus=0.5)
