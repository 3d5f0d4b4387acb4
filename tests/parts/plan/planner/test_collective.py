"""Costs of exchanges: the equations that their docstrings hold."""

import pytest

from paceline.parts.plan.planner.collective import (
    MIB,
    Link,
    all_reduce_seconds,
    bucket_sizes,
    buckets_seconds,
    direct_seconds,
    exposed_seconds,
    hierarchical_seconds,
    interpolate,
    lanes_exposed_seconds,
)

LINK = Link(kind="nvlink3", bytes_per_second=200e9, latency_seconds=50e-6)
FREE = Link(kind="no latency", bytes_per_second=1e9, latency_seconds=0.0)


def test_a_ring_sends_two_passes_less_one_share():
    assert all_reduce_seconds(1e9, 4, FREE) == pytest.approx(1.5)


def test_one_rank_exchanges_nothing():
    for cost in (all_reduce_seconds, direct_seconds, buckets_seconds):
        assert cost(1e9, 1, LINK) == 0.0


def test_twice_the_bytes_take_twice_the_rate_and_the_same_latency():
    once, twice = all_reduce_seconds(1e6, 8, LINK), all_reduce_seconds(2e6, 8, LINK)
    assert twice - LINK.latency_seconds == pytest.approx(2 * (once - LINK.latency_seconds))


def test_two_ranks_are_a_ring_and_direct_at_once():
    assert direct_seconds(1e8, 2, LINK) == pytest.approx(all_reduce_seconds(1e8, 2, LINK))


def test_a_capped_connection_hurts_a_ring_more_than_direct_messages():
    capped = Link(kind="tcp", bytes_per_second=10e9, latency_seconds=0.0, flow_bytes_per_second=1e9)
    assert direct_seconds(1e9, 8, capped) < all_reduce_seconds(1e9, 8, capped)


def test_a_hierarchy_of_one_level_is_that_level():
    assert hierarchical_seconds(1e8, 8, 1, LINK, None) == all_reduce_seconds(1e8, 8, LINK)
    assert hierarchical_seconds(1e8, 1, 4, None, FREE) == all_reduce_seconds(1e8, 4, FREE)
    with pytest.raises(ValueError, match="no link"):
        hierarchical_seconds(1e8, 8, 2, LINK, None)


def test_buckets_hold_all_gradients_and_cost_their_sum():
    sizes = bucket_sizes(60 * MIB)
    assert sizes == (MIB, 25 * MIB, 25 * MIB, 9 * MIB)
    assert buckets_seconds(60 * MIB, 8, LINK) == pytest.approx(sum(all_reduce_seconds(size, 8, LINK) for size in sizes))
    assert buckets_seconds(0.5 * MIB, 8, LINK) == pytest.approx(all_reduce_seconds(0.5 * MIB, 8, LINK))


def test_what_backward_does_not_hide_is_exposed():
    assert exposed_seconds([1.0, 1.0], [1.0, 1.0], 0.0) == 2.0
    assert exposed_seconds([0.1, 0.1], [1.0, 1.0], 10.0) == pytest.approx(0.1)
    assert exposed_seconds([], [], 1.0) == 0.0


def test_messages_that_follow_each_other_are_counted_where_a_hop_is_known():
    assert all_reduce_seconds(0.0, 4, FREE, hop_seconds=0.01) == pytest.approx(0.06)
    assert direct_seconds(0.0, 4, FREE, hop_seconds=0.01) == pytest.approx(0.02)
    assert hierarchical_seconds(0.0, 2, 4, LINK, FREE, hop_seconds=0.01) == pytest.approx(0.06 + 50e-6)
    assert all_reduce_seconds(1e9, 1, FREE, hop_seconds=0.01) == direct_seconds(1e9, 1, FREE, hop_seconds=0.01) == 0.0


def test_one_lane_is_one_bucket_after_the_other_and_more_of_them_wait_together():
    wire, wait, sizes = [0.1, 0.2, 0.3], [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]
    both = [left + right for left, right in zip(wire, wait, strict=True)]
    for backward in (0.0, 0.5, 10.0):
        one = lanes_exposed_seconds(wire, wait, sizes, backward, lanes=1)
        assert one == pytest.approx(exposed_seconds(both, sizes, backward))
        assert one >= lanes_exposed_seconds(wire, wait, sizes, backward, lanes=2)
    assert lanes_exposed_seconds(wire, wait, sizes, 0.0, lanes=3) == pytest.approx(0.3 + 1.0)
    assert lanes_exposed_seconds(wire, [0.1, 0.1, 0.1], sizes, 0.0, lanes=3) == pytest.approx(0.6)
    assert lanes_exposed_seconds([], [], [], 1.0, lanes=2) == 0.0
    with pytest.raises(ValueError, match="0 lanes"):
        lanes_exposed_seconds(wire, wait, sizes, 0.0, lanes=0)


def test_a_measured_curve_is_kept_at_its_sizes_and_grows_between_them():
    points = ((1e5, 40e-6), (1e6, 50e-6), (4e6, 51e-6), (1.6e7, 200e-6), (1e9, 9e-3))
    assert [interpolate(size, points) for size, _ in points] == pytest.approx([seconds for _, seconds in points])
    between = [interpolate(1e5 * 1.1**step, points) for step in range(95)]
    assert between == sorted(between)
    assert interpolate(10.0, points) == 40e-6


def test_a_count_below_one_is_refused():
    with pytest.raises(ValueError, match="0 ranks"):
        all_reduce_seconds(1.0, 0, LINK)
    with pytest.raises(ValueError, match="bytes"):
        direct_seconds(-1.0, 2, LINK)
