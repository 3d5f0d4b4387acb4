"""How late the ranks were in the newest steps, and which ranks of many are told."""

from dataclasses import replace

import pytest

from paceline.diagnosis.case import HeldUp, HostTiming, RankTiming, StepTiming
from paceline.diagnosis.slow.arrivals import Lateness, RankLags, late_steps
from paceline.diagnosis.slow.step_timing import standing_out


def lags(*costs):
    return RankLags(
        lags=(), by_step=tuple(enumerate(costs, 1)), late=sum(costs) / len(costs), last_fraction=0.0, periodic=None
    )


LATENESS = Lateness(
    ranks={0: lags(0.0, 0.0, 0.0, 0.5), 1: lags(0.2, 0.2, 0.4, 0.0)}, spread_seconds=0.3, period=1, step_bytes=None,
    together=((0, 1),),
)  # fmt: skip


def test_only_the_steps_after_one_count():
    found = late_steps(LATENESS, 2)
    assert (found.from_step, found.to_step) == (3, 4)
    assert found.late == pytest.approx({0: 0.25, 1: 0.2}) and found.last == {0: 0.5, 1: 0.5}
    assert late_steps(LATENESS, 4) is None


def test_over_all_steps_it_is_the_mean():
    found = late_steps(LATENESS, 0)
    assert found.late == pytest.approx({rank: one.late for rank, one in LATENESS.ranks.items()})


def timing(count, **more):
    ranks = tuple(
        RankTiming(rank=rank, host=f"h{rank // 8}", steps=20, step_seconds=0.1, late_seconds=0.001)
        for rank in range(count)
    )
    hosts = tuple(HostTiming(host=f"h{number}") for number in range(count // 8))
    return StepTiming(window_seconds=30, from_step=1, to_step=20, step_seconds=0.1, ranks=ranks, hosts=hosts, **more)


def test_of_few_ranks_all_are_told():
    assert standing_out(timing(16)) == timing(16)


def test_of_many_ranks_those_that_the_others_wait_for_are_told_with_their_hosts():
    found = standing_out(timing(4096, held_up=HeldUp(ranks=(1234, 4000))))
    assert {1234, 4000} < {rank.rank for rank in found.ranks}
    assert {"h154", "h500"} < {host.host for host in found.hosts}
    assert (len(found.ranks), len(found.hosts), found.ranks_left_out) == (16, 16, 4080)
    assert replace(found, ranks=(), hosts=(), ranks_left_out=0) == replace(
        timing(4096, held_up=HeldUp(ranks=(1234, 4000))), ranks=(), hosts=()
    )
