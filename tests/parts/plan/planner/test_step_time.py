"""Step times from what was measured: measured shapes stay as measured, the terms add up, more is never less."""

import math

import pytest

from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Formula
from paceline.parts.plan.planner.links import inter_link, intra_link
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.step_time import step_time
from paceline.parts.plan.planner.workload import Measurement, Workload

A100 = Accelerator(
    name="A100", fp32_tflops=19.5, tf32_tflops=156.0, fp16_tflops=312.0, bf16_tflops=312.0, nvlink_gb_per_second=600.0
)
BERT = Workload(name="BERT-Large", gradient_bytes=1_344_000_000)


def machines(hosts, per_host, *, gbps=100.0, word="nvlink3"):
    return Machines(
        device=A100,
        devices_per_host=per_host,
        hosts=hosts,
        intra=intra_link(word, A100, per_host),
        inter=inter_link(gbps) if hosts > 1 else None,
    )


def measured(hosts, devices, ms, **rest):
    return Measurement(hosts=hosts, devices=devices, step_seconds=ms / 1e3, **rest)


ONE = [measured(1, 1, 310)]
TWO = [measured(1, 8, 310), measured(2, 16, 335)]


@pytest.mark.parametrize(("measurements", "shape"), [(ONE, (1, 1)), (TWO, (1, 8)), (TWO, (2, 8)), ([TWO[1]], (2, 8))])
def test_what_was_measured_stays_as_measured(measurements, shape):
    step = step_time(machines(*shape), BERT, measurements)
    here = next(one for one in measurements if one.hosts == shape[0])
    assert step.seconds == pytest.approx(here.step_seconds)
    assert step.low_seconds < step.seconds < step.high_seconds
    assert step.high_seconds / step.low_seconds < 1.05


@pytest.mark.parametrize("measurements", [ONE, TWO, [measured(1, 8, 335)]])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (1, 8), (2, 8), (4, 8), (1280, 8)])
def test_the_terms_add_up_and_the_interval_holds_the_time(measurements, shape):
    step = step_time(machines(*shape), BERT, measurements)
    assert sum(step.terms.values()) == pytest.approx(step.seconds)
    assert min(step.terms.values()) >= 0
    assert 0 < step.low_seconds <= step.seconds <= step.high_seconds < math.inf


@pytest.mark.parametrize("measurements", [ONE, TWO])
def test_more_hosts_never_take_a_shorter_step(measurements):
    steps = [step_time(machines(hosts, 8), BERT, measurements).seconds for hosts in (1, 2, 3, 4, 8, 32, 256)]
    assert steps == sorted(steps)


def test_more_bandwidth_is_never_slower():
    between = [step_time(machines(4, 8, gbps=gbps), BERT, ONE).seconds for gbps in (1, 10, 100, 400, 3200)]
    assert between == sorted(between, reverse=True)
    within = [step_time(machines(1, 8, word=f"nvlink{one}"), BERT, ONE).seconds for one in range(1, 6)]
    assert within == sorted(within, reverse=True)


def test_two_measured_host_counts_are_tier_2_and_one_is_tier_1():
    assert step_time(machines(4, 8), BERT, TWO).tier == 2
    assert step_time(machines(4, 8), BERT, ONE).tier == 1
    assert step_time(machines(1, 4), BERT, [measured(1, 1, 310), measured(1, 2, 320)]).tier == 2
    # One device and one host say nothing of several hosts.
    assert step_time(machines(4, 8), BERT, [measured(1, 1, 310), measured(1, 8, 330)]).tier == 1


def test_a_second_size_narrows_the_interval():
    one, two = (step_time(machines(4, 8), BERT, measurements) for measurements in ([TWO[0]], TWO))
    assert two.high_seconds - two.low_seconds < one.high_seconds - one.low_seconds


def test_an_unknown_gradient_widens_the_interval_and_is_said():
    known, unknown = (step_time(machines(1, 8), workload, ONE) for workload in (BERT, Workload()))
    assert any("gradients" in warning for warning in unknown.warnings)
    assert (unknown.high_seconds - unknown.low_seconds) / unknown.seconds > 0.1
    assert known.warnings == ()


def test_a_larger_batch_takes_longer_in_proportion():
    workload = Workload(batch=64)
    step = step_time(machines(1, 1), workload, [measured(1, 1, 100, batch=32)])
    assert step.seconds == pytest.approx(0.2)
    assert any("another batch" in warning for warning in step.warnings)


def test_a_superlinear_pair_is_not_carried_on():
    faster = [measured(1, 8, 400), measured(2, 16, 300)]
    step = step_time(machines(4, 8), BERT, faster)
    assert step.seconds >= 0.3
    assert any("not alike" in warning for warning in step.warnings)


def test_three_points_are_all_used():
    points = [*TWO, measured(4, 32, 345)]
    assert step_time(machines(4, 8), BERT, points).seconds == pytest.approx(0.345)
    assert 0.335 < step_time(machines(3, 8), BERT, points).seconds < 0.345


def test_nothing_measured_and_nothing_known_is_said():
    with pytest.raises(UsageError) as found:
        step_time(machines(1, 8), Workload(), [])
    assert found.value.code == "P08"


@pytest.mark.parametrize(
    "wrong", [measured(1, 1, 0), measured(1, 1, -5), measured(0, 1, 5), measured(4, 2, 5), measured(1, 1, math.nan)]
)
def test_a_measurement_that_cannot_be_is_refused(wrong):
    with pytest.raises(UsageError) as found:
        step_time(machines(1, 8), BERT, [wrong])
    assert found.value.code == "U03"


def test_every_tier_shows_its_formula():
    flops = Workload(batch=8, flops=1e13, gradient_bytes=10**9)
    for workload, measurements in ((BERT, ONE), (BERT, TWO), (flops, [])):
        formulas: list[Formula] = []
        step = step_time(machines(2, 8), workload, measurements, formulas=formulas)
        assert formulas
        assert formulas[-1].result == pytest.approx(step.seconds)
