"""Which pairs of hosts stand out."""

from itertools import combinations

from paceline.parts.lab.slow_pairs import Pair, slow_pairs


def pairs(members, slow=(), speed=1.1, slow_speed=0.12):
    """`slow`: pairs of members; every other one reaches `speed` GB/s."""
    found = []
    for number, (a, b) in enumerate(combinations(members, 2)):
        gb_per_second = slow_speed if {a, b} in [set(pair) for pair in slow] else speed * (1 + 0.02 * (number % 3))
        found.append(
            Pair(
                a=a,
                b=b,
                size_bytes=10**6,
                seconds=1e-3 / gb_per_second,
                mad_seconds=1e-5,
                latency_seconds=5e-5,
                iterations=20,
            )
        )
    return found


def with_everybody(host, members):
    return [(host, other) for other in members if other != host]


HOSTS = ["algo-1", "algo-2", "algo-3", "algo-4"]


def test_equal_pairs_have_no_outlier():
    assert slow_pairs(pairs(HOSTS)) == ()


def test_one_pair_is_named_with_its_speed_and_the_others():
    (one,) = slow_pairs(pairs(HOSTS, slow=[("algo-1", "algo-3")]))
    assert one.members == ("algo-1", "algo-3") and one.between == ()
    assert round(one.worst, 2) == 0.12 and 1.0 < one.others < 1.2


def test_a_host_that_is_slow_to_everybody_is_named_alone():
    for members in (HOSTS[:3], HOSTS, [f"algo-{n}" for n in range(1, 9)]):
        (one,) = slow_pairs(pairs(members, slow=with_everybody("algo-2", members)))
        assert one.members == ("algo-2",)


def test_two_zones_are_named_as_groups():
    across = [(a, b) for a in HOSTS[:2] for b in HOSTS[2:]]
    (one,) = slow_pairs(pairs(HOSTS, slow=across))
    assert one.between == (("algo-1", "algo-2"), ("algo-3", "algo-4"))


def test_a_slow_pair_beside_a_slow_host_is_named_too():
    members = [f"algo-{n}" for n in range(1, 8)]
    found = slow_pairs(pairs(members, slow=[*with_everybody("algo-7", members), ("algo-1", "algo-2")]))
    assert sorted(one.members for one in found) == [("algo-1", "algo-2"), ("algo-7",)]


def test_fewer_than_three_pairs_cannot_be_judged():
    assert slow_pairs(pairs(HOSTS[:2])) is None


def test_a_little_slower_is_no_outlier():
    assert slow_pairs(pairs(HOSTS, slow=[("algo-1", "algo-2")], slow_speed=0.85)) == ()
