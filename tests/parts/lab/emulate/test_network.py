"""The asked network, what is said of one that was delivered, and the relay's way with frames. Pure, apart from sockets of this process."""

import socket
import time
from dataclasses import replace

import pytest

from paceline.parts.lab.emulate.network import Delivered, DeliveredPath, Network, network_events, wrong_paths
from paceline.parts.lab.emulate.relay import Relay

HEADER = bytes(10)


def test_zones_share_the_hosts_in_order_and_evenly():
    assert Network(zone_count=2).zones(4) == (0, 0, 1, 1)
    assert Network(zone_count=3).zones(3) == (0, 1, 2)
    for hosts in range(2, 9):
        sizes = [Network(zone_count=2).zones(hosts).count(zone) for zone in (0, 1)]
        assert sum(sizes) == hosts and abs(sizes[0] - sizes[1]) <= 1


def test_the_delay_between_zones_is_for_traffic_between_zones_alone():
    network = Network(delay_ms=5.0, zone_count=2, zone_delay_ms=1.0)
    assert network.one_way_ms(4) == [
        [0.0, 5.0, 6.0, 6.0],
        [5.0, 0.0, 6.0, 6.0],
        [6.0, 6.0, 0.0, 5.0],
        [6.0, 6.0, 5.0, 0.0],
    ]


@pytest.mark.parametrize(
    ("network", "shapes"),
    [
        (Network(), False),
        (Network(host_cpus=0.5), False),
        (Network(rate_mbit=1.0), True),
        (Network(zone_count=2, zone_delay_ms=1.0), True),
    ],
)
def test_limits_alone_shape_no_link(network, shapes):
    assert network.shapes_links is shapes


GOOD = DeliveredPath(
    source="algo-1",
    target="algo-2",
    rate_mbit=95.0,
    rate_mbit_asked=100.0,
    round_trip_ms=10.2,
    round_trip_ms_asked=10.0,
)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"rate_mbit": 89.0}, "89 Mbit/s of 100"),
        ({"rate_mbit": 111.0}, "111 Mbit/s of 100"),
        ({"rate_mbit": 3.0, "rate_mbit_asked": None}, None),
        ({"rate_mbit": 30.0, "lost_fraction": 0.01, "lost_fraction_asked": 0.01, "sent_count": 8000}, None),
        ({"round_trip_ms": 11.1}, "a round trip of 11.1 ms where 10 were asked for"),
        ({"round_trip_ms": 11.1, "round_trip_ms_asked": 0.0}, None),
        # 80 frames of 8000 are expected, and a count strays by its root.
        ({"lost_fraction": 100 / 8000, "lost_fraction_asked": 0.01, "sent_count": 8000}, None),
        (
            {"lost_fraction": 0.03, "lost_fraction_asked": 0.01, "sent_count": 8000},
            "3.00% lost where 1.00% were asked for",
        ),
    ],
)
def test_a_path_is_wrong_when_it_is_more_than_a_tenth_off(changed, said):
    found = wrong_paths([replace(GOOD, **changed)])
    assert [text for _, text in found] == ([said] if said else [])


def test_the_recording_is_told_what_was_asked_what_came_and_what_is_wrong():
    bad = replace(GOOD, rate_mbit=50.0)
    delivered = Delivered(paths=(GOOD, bad), relay_cpu_fraction=0.1)
    network = Network(rate_mbit=100.0, delay_ms=5.0, host_cpus=2.0)
    told, wrong, limits = network_events(network, ("algo-1", "algo-2"), delivered, cpu_count=2)
    assert (
        told["event"] == "network" and told["asked"]["rate_mbit"] == 100.0 and told["zones"] == [["algo-1", "algo-2"]]
    )
    assert told["delivered"]["paths"][1]["rate_mbit"] == 50.0
    assert (
        wrong["code"] == "X34" and wrong["saw"] == "algo-1 to algo-2: 50 Mbit/s of 100" and "1 link is" in wrong["what"]
    )
    assert limits["code"] == "X34" and limits["next"] == "cpus=1 in --network"


def test_limits_without_links_are_told_without_a_measurement():
    (told,) = network_events(Network(host_cpus=0.5), ("algo-1", "algo-2"), None, cpu_count=2)
    assert told["delivered"] is None


# -- the relay, between sockets that keep frames apart as a port does


def address(host):
    return bytes([2, 0, 0, 0, 0, host])


def frame(source, target, text=b""):
    return HEADER + (b"\xff" * 6 if target is None else address(target)) + address(source) + text


class Ports:
    """Three hosts' ends and the relay's ends."""

    def __init__(self):
        self.pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
        for pair in self.pairs:
            for end in pair:
                end.setblocking(False)
        self.relay = Relay([ours.fileno() for _, ours in self.pairs])

    def send(self, host, data):
        self.pairs[host][0].send(data)
        self.relay.take(host)

    def arrived(self, host):
        found = []
        while True:
            try:
                found.append(self.pairs[host][0].recv(100_000))
            except BlockingIOError:
                return found

    def close(self):
        for pair in self.pairs:
            for end in pair:
                end.close()


@pytest.fixture
def ports():
    found = Ports()
    yield found
    found.close()


ALL_AT_ONCE = [[0.0] * 3] * 3


def test_frames_go_to_everyone_until_the_address_is_known_and_then_to_one(ports):
    ports.relay.set(ALL_AT_ONCE, ALL_AT_ONCE)
    ports.send(0, frame(0, 1))
    ports.relay.give()
    assert (len(ports.arrived(0)), len(ports.arrived(1)), len(ports.arrived(2))) == (0, 1, 1)
    ports.send(1, frame(1, 0))
    ports.send(0, frame(0, None))
    ports.relay.give()
    assert (len(ports.arrived(0)), len(ports.arrived(1)), len(ports.arrived(2))) == (1, 1, 1)


def test_each_pair_has_its_own_delay_and_frames_of_one_pair_stay_in_order(ports):
    ports.relay.set([[0, 30, 1], [30, 0, 30], [1, 30, 0]], ALL_AT_ONCE)
    for host in (1, 2):
        ports.send(host, frame(host, host))
    began = time.monotonic()
    for number in range(5):
        ports.send(0, frame(0, 1, bytes([number])))
        ports.send(0, frame(0, 2, bytes([number])))
    ports.relay.give()
    assert not ports.arrived(1)
    near, far = [], []
    while len(far) < 5 and time.monotonic() < began + 5:
        ports.relay.give()
        near += [(data[-1], time.monotonic() - began) for data in ports.arrived(2)]
        far += [(data[-1], time.monotonic() - began) for data in ports.arrived(1)]
    assert [number for number, _ in near] == [number for number, _ in far] == list(range(5))
    assert near[0][1] < far[0][1] and far[0][1] >= 0.0298


def test_what_is_lost_is_counted_and_what_comes_before_the_settings_is_thrown_away(ports):
    ports.send(0, frame(0, 1))
    ports.relay.set(ALL_AT_ONCE, [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    ports.send(1, frame(1, 1))
    ports.send(0, frame(0, 1))
    ports.relay.give()
    assert ports.arrived(1) == [] and ports.relay.lost_count == 1
