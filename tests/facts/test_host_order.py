from paceline.facts import host_key, host_order


def test_hosts_are_ordered_by_number_not_by_letter():
    names = [f"algo-{number}" for number in range(12, 0, -1)]
    assert host_order(names) == tuple(f"algo-{number}" for number in range(1, 13))


def test_each_host_appears_once():
    assert host_order(["algo-2", "algo-1", "algo-2"]) == ("algo-1", "algo-2")


def test_addresses_and_names_without_numbers_have_an_order_too():
    assert host_order(["10.0.0.10", "10.0.0.9", "master", "2"]) == ("2", "10.0.0.9", "10.0.0.10", "master")


def test_names_with_the_same_number_are_still_told_apart():
    assert host_key("algo-01") != host_key("algo-1")
