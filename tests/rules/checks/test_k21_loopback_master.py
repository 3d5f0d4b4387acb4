"""K21: several hosts that are to meet at an address that is each of them."""

import pytest


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "127.0.1.1", "::1", "[::1]"])
def test_nobody_else_can_reach_such_an_address(found, job, address):
    (finding,) = found("K21", job(hosts=2, master_addr=address))
    assert address in finding.what and "--local-hosts 2" in finding.next


@pytest.mark.parametrize("fields", [{"hosts": 1}, {"master_addr": "algo-1"}, {"master_addr": None}])
def test_one_host_or_an_address_of_its_own_is_right(found, job, fields):
    assert not found("K21", job(**{"hosts": 2, "master_addr": "127.0.0.1", **fields}))
