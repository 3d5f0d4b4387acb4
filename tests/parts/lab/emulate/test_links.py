"""What shaped links deliver, within a fifth of what was asked for."""

import subprocess
import sys

import pytest
from patience import patient

from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.lab.emulate.links import bucket
from paceline.parts.lab.emulate.measure import round_trip_ms, throughput_mbit
from paceline.parts.lab.emulate.network import Network

process = [pytest.mark.process, pytest.mark.fault]


def test_the_bucket_of_a_slow_link_still_holds_one_large_frame():
    argv = bucket(10.0)
    assert argv[1] == "10.0mbit" and int(argv[3]) > 65_536
    assert int(bucket(10_000.0)[3]) == 2_500_000


class TestMeasured:
    pytestmark = process

    @pytest.mark.slow
    @pytest.mark.parametrize("rate_mbit", [50.0, 200.0])
    def test_a_rate_holds_in_both_directions_within_a_fifth(self, two_hosts, rate_mbit):
        two_hosts.shape(1, rate_mbit=rate_mbit)
        for source, target in ((0, 1), (1, 0)):
            assert throughput_mbit(two_hosts, source, target, seconds=1.0) == pytest.approx(rate_mbit, rel=0.2)

    @pytest.mark.slow
    def test_a_delay_is_added_in_each_direction_and_can_be_taken_away(self, two_hosts):
        assert round_trip_ms(two_hosts, 0, 1) < 2
        two_hosts.shape(1, delay_ms=10)
        assert round_trip_ms(two_hosts, 0, 1) == pytest.approx(20, rel=0.2, abs=1)
        two_hosts.shape(1, delay_ms=25)
        assert round_trip_ms(two_hosts, 1, 0) == pytest.approx(50, rel=0.2, abs=1)
        two_hosts.shape(1, delay_ms=0)
        assert round_trip_ms(two_hosts, 0, 1) < 2

    def test_a_rate_and_a_delay_hold_together(self, two_hosts):
        two_hosts.shape(0, delay_ms=10, rate_mbit=200)
        assert throughput_mbit(two_hosts, 1, 0, seconds=1.0) == pytest.approx(200, rel=0.2)
        assert round_trip_ms(two_hosts, 1, 0) == pytest.approx(20, rel=0.2, abs=1)

    @pytest.mark.slow
    def test_a_rate_can_be_taken_away(self, two_hosts):
        two_hosts.shape(0, rate_mbit=20)
        two_hosts.shape(0, rate_mbit=0)
        assert throughput_mbit(two_hosts, 0, 1, seconds=0.5) > 200

    @pytest.mark.slow
    def test_a_delayed_link_can_be_cut_and_mended(self, two_hosts):
        two_hosts.shape(1, delay_ms=2)
        two_hosts.cut(1)
        two_hosts.mend(1)
        assert round_trip_ms(two_hosts, 0, 1) == pytest.approx(4, rel=0.2, abs=1)

    @pytest.mark.slow
    def test_a_delay_between_zones_is_between_zones_alone(self, emulation):
        with Hosts(4, Network(zone_count=2, zone_delay_ms=10)) as hosts:
            for inside in ((0, 1), (3, 2)):
                assert round_trip_ms(hosts, *inside) < 2
            for across in ((0, 2), (3, 1)):
                assert round_trip_ms(hosts, *across) == pytest.approx(20, rel=0.1)

    @pytest.mark.slow
    def test_the_asked_share_of_frames_is_lost(self, two_hosts):
        # So that the hosts know each other's hardware address, and the question for it is not what is lost.
        assert round_trip_ms(two_hosts, 0, 1) < 2
        two_hosts.shape(1, loss_fraction=0.2)
        with two_hosts.run_in(1, [sys.executable, "-c", COUNT], stdout=subprocess.PIPE, text=True) as counter:
            assert counter.stdout.readline() == "listening\n"
            two_hosts.run_in(0, [sys.executable, "-c", SEND]).wait(patient(30))
            arrived = int(counter.communicate(timeout=patient(30))[0])
        # Of 2000 frames 1600 are expected, with a standard deviation of 18.
        assert 1500 < arrived < 1700


COUNT = """
import socket
counter, count = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
counter.bind(("", 7000))
print("listening", flush=True)
try:
    # However long the sender's interpreter takes to start: the end is two seconds of silence after its first frames.
    while counter.recv(2000):
        count += 1
        counter.settimeout(2)
except TimeoutError:
    print(count)
"""
SEND = """
import socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(2000):
    sender.sendto(bytes(500), ("algo-2", 7000))
    if number % 20 == 0:
        time.sleep(0.002)
"""
