import pytest

from paceline.contract.interface import default_interface, interface_towards

# /proc/net/route of a machine with two ways out.
ROUTES = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
    "ens5\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "down0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0\n"
    "ens5\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)


def test_the_default_route_with_the_smallest_metric_names_the_interface():
    assert default_interface(ROUTES) == "ens5"


def test_without_a_default_route_there_is_none():
    assert default_interface("") is None
    assert default_interface(ROUTES.splitlines()[0]) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.3", "localhost", "::1"])
def test_a_job_inside_one_machine_uses_the_loopback_interface(address):
    assert interface_towards(address, ROUTES) == "lo"


def test_what_cannot_be_found_is_sagemakers_own_name():
    assert interface_towards("algo-1", "") == "eth0"
    assert interface_towards("algo-1", ROUTES) == "ens5"
