"""What a run says of the network its local hosts were given."""

from dataclasses import replace

from paceline.parts.lab.emulate.network import Delivered, DeliveredPath, Network, network_events
from paceline.parts.lab.network_line import bits_per_second
from paceline.views.live import event_text

NAMES = ("algo-1", "algo-2", "algo-3", "algo-4")
NEAR = DeliveredPath(
    source="algo-1",
    target="algo-2",
    rate_mbit=951.2,
    rate_mbit_asked=1000.0,
    round_trip_ms=10.1,
    round_trip_ms_asked=10.0,
)
FAR = replace(NEAR, source="algo-2", target="algo-3", rate_mbit=940.0, round_trip_ms=12.2, round_trip_ms_asked=12.0)


def said(network, delivered):
    return event_text(network_events(network, NAMES, delivered, cpu_count=2)[0])


def test_links_zones_and_limits_each_have_a_line():
    network = Network(
        rate_mbit=1000.0, delay_ms=5.0, zone_count=2, zone_delay_ms=1.0, host_cpus=0.5, host_memory_bytes=2 << 30
    )
    assert said(network, Delivered(paths=(NEAR, FAR), relay_cpu_fraction=0.114)) == (
        "paceline  network  4 hosts, 1 Gbit/s asked, 940 Mbit/s measured; delay 5 ms asked, 10.1 ms round trip measured; "
        "the relay took 11% of one CPU\n"
        "paceline  zones    algo-1 algo-2 | algo-3 algo-4; 1 ms more between them asked, 12.2 ms round trip measured\n"
        "paceline  limits   0.5 CPU and 2.0 GiB for each host"
    )


def test_a_rate_that_differs_between_links_is_told_with_both_ends():
    path = replace(NEAR, rate_mbit_asked=100.0, round_trip_ms=0.02, round_trip_ms_asked=0.0)
    text = said(
        Network(rate_mbit=100.0), Delivered(paths=(replace(path, rate_mbit=95.1), replace(path, rate_mbit=60.0)))
    )
    assert text == (
        "paceline  network  4 hosts, 100 Mbit/s asked, 60 Mbit/s to 95.1 Mbit/s measured; 0.02 ms round trip measured"
    )


def test_loss_is_told_over_all_links_and_no_rate_is_said_to_be_none():
    path = replace(
        NEAR,
        rate_mbit_asked=None,
        round_trip_ms=0.02,
        round_trip_ms_asked=0.0,
        lost_fraction_asked=0.001,
        sent_count=8000,
    )
    paths = (replace(path, lost_fraction=0.00125), replace(path, lost_fraction=0.001))
    assert said(Network(loss_fraction=0.001), Delivered(paths=paths, relay_cpu_fraction=0.5)) == (
        "paceline  network  4 hosts, no rate asked, 951 Mbit/s measured; 0.02 ms round trip measured; "
        "loss 0.100% asked, 0.112% of 16000 frames measured; the relay took 50% of one CPU"
    )


def test_limits_alone_are_one_line():
    assert said(Network(host_cpus=2.0), None) == "paceline  limits   2 CPUs for each host"


def test_rates_have_three_digits():
    assert [bits_per_second(rate) for rate in (1000.0, 953.71, 95.13, 9.4)] == [
        "1 Gbit/s",
        "954 Mbit/s",
        "95.1 Mbit/s",
        "9.4 Mbit/s",
    ]
