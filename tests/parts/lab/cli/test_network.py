"""`paceline run --network`: units, what is refused and with which words, and the network they make."""

import pytest

from paceline.cli.job.options import parse_run
from paceline.errors import UsageError
from paceline.parts.lab.cli.network import delay_ms, loss_fraction, memory_bytes, network_of, rate_mbit
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
    assert delay_ms(text) == pytest.approx(ms)


def test_loss_and_memory():
    assert loss_fraction("0.1%") == pytest.approx(0.001)
    assert memory_bytes("2gib") == 2 << 30 and memory_bytes("512 MiB") == 512 << 20


@pytest.mark.parametrize(
    ("text", "what", "then"),
    [
        ("1000", "has no unit", "1000mbit"),
        ("100mbps", "can be read in two ways", "100mbit"),
        ("100MB/s,5ms", "can be read in two ways", "100mbit,5ms"),
        ("fast", "is not a number with a unit", "100mbit"),
        ("0gbit", "is not a rate of 100 kbit or more", "100mbit"),
        ("-1gbit", "is not a number with a unit", "100mbit"),
        ("delay=5", "has no unit", "5ms"),
        ("delay=5min", "is not a number with a unit", "5ms"),
        ("1gbit,60s", "is not a delay of 10 s or less", "1gbit,5ms"),
        ("loss=0.001", "has no unit", "loss=0.001%"),
        ("loss=100%,1gbit", "is not a loss below 100%", "loss=0.1%,1gbit"),
        ("zones=2,zone-delay=1", "has no unit", "zones=2,zone-delay=1ms"),
        ("zones=0", "is not a number of zones", "zones=2"),
        ("cpus=0", "is not a number of CPUs", "cpus=0.5"),
        ("cpus=half", "is not a number of CPUs", "cpus=0.5"),
        ("memory=2", "has no unit", "memory=2gib"),
        ("memory=2gb", "can be read in two ways", "memory=2gib"),
        ("memory=1mib", "is not a memory of 16 mib or more", "memory=2gib"),
        ("1gbit,2gbit", "says the rate twice", "1gbit"),
        ("1gbit,lost=1%", "knows no 'lost'", "1gbit,loss=1%"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_one_that_can(text, what, then):
    error = refused(f"--local-hosts 4 --network={text}")
    assert error.code == "U03" and what in error.what
    assert error.next.removeprefix("paceline run ").removesuffix(" ...") == f"--network {then}"


def test_a_network_needs_hosts_on_this_machine():
    error = refused("--network 1gbit,zones=2")
    assert error.code == "U05" and error.next == "paceline run --local-hosts 2 --network 1gbit,zones=2 ..."


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("--local-hosts 1 --network 1gbit", "a single host has no link"),
        ("--local-hosts 2 --network zones=3,zone-delay=1ms", "3 zones need as many hosts"),
        ("--local-hosts 4 --network zones=2", "without a delay between them"),
        ("--local-hosts 4 --network zone-delay=1ms", "there is one"),
        ("--local-hosts 4 --network zones=1,zone-delay=1ms", "there is one"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(text, what):
    error = refused(text)
    assert error.code == "U05" and what in error.what and error.next.startswith("paceline run ")


def test_the_whole_network():
    text = "1gbit,5ms,loss=0.1%,zones=2,zone-delay=1ms,cpus=0.5,memory=2gib"
    assert network(f"--local-hosts 4 --network {text}") == Network(
        rate_mbit=1000.0,
        delay_ms=5.0,
        loss_fraction=0.001,
        zone_count=2,
        zone_delay_ms=1.0,
        host_cpus=0.5,
        host_memory_bytes=2 << 30,
    )
    assert network("--local-hosts 4 --network rate=1gbit,delay=5ms") == network("--local-hosts 4 --network 5ms,1gbit")


def test_without_such_an_option_hosts_share_the_loopback_interface():
    assert network("--local-hosts 4") is None and network("--nnodes 2") is None


def test_a_single_host_may_have_limits():
    assert network("--local-hosts 1 --network cpus=0.5") == Network(host_cpus=0.5)
