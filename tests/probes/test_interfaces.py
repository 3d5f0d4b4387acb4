"""Network interfaces as the kernel describes them."""

import socket
import struct

from paceline.probes.interfaces import parse_if_inet6, parse_ifconf, read_interfaces

IF_INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000004efffe11223344 02 40 20 80     eth0
20010db8000000000000000000000005 02 40 00 80     eth0
"""


def entry(label, address):
    return struct.pack("16sHH4s16x", label, socket.AF_INET, 0, socket.inet_aton(address))


def test_a_link_local_address_names_its_interface():
    assert parse_if_inet6(IF_INET6) == {"lo": ["::1"], "eth0": ["fe80::4e:fffe:1122:3344%eth0", "2001:db8::5"]}
    assert parse_if_inet6("") == {}


def test_an_address_with_a_label_is_its_interfaces():
    entries = entry(b"lo", "127.0.0.1") + entry(b"eth0", "10.0.0.2") + entry(b"eth0:1", "10.0.0.3")
    assert parse_ifconf(entries) == {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2", "10.0.0.3"]}
    assert parse_ifconf(b"") == {}


def test_the_loopback_of_this_machine_is_there():
    (lo,) = [one for one in read_interfaces() if one.name == "lo"]
    assert "127.0.0.1" in lo.addresses and lo.up and lo.mtu_bytes and lo.speed_mbps is None


def test_without_sysfs_the_addresses_are_known(tmp_path):
    (lo,) = [one for one in read_interfaces(tmp_path / "none") if one.name == "lo"]
    assert "127.0.0.1" in lo.addresses and (lo.up, lo.mtu_bytes) == (None, None)
