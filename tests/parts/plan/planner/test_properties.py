"""What holds for any plan: more bandwidth is never slower, more memory never stops fitting, cost is additive, units are consistent."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.catalog.types import Accelerator
from paceline.parts.plan.planner.answer import Fit, StepTime
from paceline.parts.plan.planner.choice import choose
from paceline.parts.plan.planner.collective import MIB
from paceline.parts.plan.planner.completion import hours_of, steps_of, within_probability
from paceline.parts.plan.planner.cost import crossing_bytes, machines_usd, zone_usd
from paceline.parts.plan.planner.evaluate import evaluate
from paceline.parts.plan.planner.fleet import Fleet, candidates_given
from paceline.parts.plan.planner.links import inter_link
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.memory import memory
from paceline.parts.plan.planner.question import Goal, PlanLimits, PlanQuestion, Prices
from paceline.parts.plan.planner.step_time import step_time
from paceline.parts.plan.planner.what_if import with_batch, with_buckets, with_microbatches
from paceline.parts.plan.planner.workload import Measurement, Workload

FEW = settings(derandomize=True, max_examples=25, deadline=None, database=None)
GIB = 2**30
ONE = Fleet()
ORDER = (Fit.DOES_NOT_FIT, Fit.GREY, Fit.FITS)
A100 = Accelerator(
    name="NVIDIA A100-SXM4-40GB",
    fp32_tflops=19.5,
    tf32_tflops=156,
    fp16_tflops=312,
    bf16_tflops=312,
    memory_gib=39.6,
    memory_gb_per_second=1555,
    nvlink_gb_per_second=600,
    pcie_generation=4,
)

milliseconds = st.floats(0.5, 1e4)
mebibytes = st.floats(0.1, 1e5)
gbps = st.floats(0.5, 3200)
hosts = st.integers(1, 2048)
kinds = st.sampled_from(["efa", "tcp", "infiniband", "roce", None])


def question(step_ms=310.0, mib=1272.0, fleet=ONE, **more) -> PlanQuestion:
    measured = () if step_ms is None else (Measurement(hosts=1, devices=1, step_seconds=step_ms / 1e3),)
    workload = more.pop("workload", Workload(gradient_bytes=round(mib * MIB), batch=32))
    candidates = tuple(candidates_given("given", A100, fleet, prices=more.pop("prices", Prices(on_demand=20.0))))
    return PlanQuestion(workload=workload, measurements=measured, candidates=candidates, **more)


def step(seconds=1.0, low=0.9, high=1.2) -> StepTime:
    return StepTime(seconds=seconds, low_seconds=low, high_seconds=high, tier=1, terms={"compute": seconds})


@FEW
@given(milliseconds, mebibytes, st.integers(2, 512), gbps, st.floats(1.0, 20.0), kinds)
def test_more_bandwidth_between_hosts_is_never_slower(ms, mib, count, rate, times, kind):
    slow, fast = (
        evaluate(
            question(
                ms,
                mib,
                Fleet(hosts=(count,), devices_per_host=(8,), intra="nvlink3", network_gbps=each, network_kind=kind),
            )
        ).rows[0]
        for each in (rate, rate * times)
    )
    assert fast.step.seconds <= slow.step.seconds * (1 + 1e-9)
    assert fast.efficiency_fraction >= slow.efficiency_fraction * (1 - 1e-9)


@FEW
@given(
    milliseconds,
    mebibytes,
    st.integers(2, 16),
    st.sampled_from([("pcie3", "pcie4"), ("pcie4", "pcie5"), ("nvlink2", "nvlink3")]),
)
def test_a_faster_link_inside_the_host_exchanges_no_slower(ms, mib, devices, words):
    slow, fast = (evaluate(question(ms, mib, Fleet(devices_per_host=(devices,), intra=word))).rows[0] for word in words)
    assert fast.step.terms["exposed_communication"] <= slow.step.terms["exposed_communication"] * (1 + 1e-9)


@FEW
@given(st.floats(1, 500), st.floats(1, 500), mebibytes, mebibytes, st.integers(1, 64))
def test_more_memory_never_stops_fitting(small, large, parameters, activations, devices):
    small, large = sorted((small, large))
    workload = Workload(
        parameter_bytes=round(parameters * MIB),
        gradient_bytes=round(parameters * MIB),
        activation_bytes=round(activations * MIB),
        batch=8,
    )
    verdicts = [memory(workload, capacity_bytes=round(gib * GIB), devices=devices).verdict for gib in (small, large)]
    assert ORDER.index(verdicts[0]) <= ORDER.index(verdicts[1])


@FEW
@given(st.floats(0, 1e3), st.floats(0, 1e4), st.floats(0, 1e4), hosts, hosts)
def test_cost_is_additive_in_hours_and_in_hosts(price, some, more, these, those):
    assert machines_usd(price, these, some + more) == pytest.approx(
        machines_usd(price, these, some) + machines_usd(price, these, more)
    )
    assert machines_usd(price, these + those, some) == pytest.approx(
        machines_usd(price, these, some) + machines_usd(price, those, some)
    )


@FEW
@given(st.integers(1, 10**7), st.integers(1, 10**7), st.integers(2, 64), st.integers(2, 4), mebibytes)
def test_traffic_between_zones_is_additive_in_steps_and_free_inside_one(some, more, count, zones, mib):
    workload = Workload(gradient_bytes=round(mib * MIB))
    machines = Machines(device=A100, devices_per_host=8, hosts=count, zones=zones)
    together, first, second = (zone_usd(machines, workload, steps, 0.02) for steps in (some + more, some, more))
    assert together == pytest.approx(first + second)
    assert zone_usd(replace(machines, zones=1), workload, some, 0.02) == 0.0
    assert crossing_bytes(machines, workload) <= zones * 2 * workload.gradient_bytes


@FEW
@given(
    st.floats(1e-3, 1e3),
    st.floats(1.0, 3.0),
    st.floats(1.0, 3.0),
    st.integers(1, 10**6),
    st.floats(0, 1e4),
    st.floats(0.5, 2),
    st.floats(1, 2),
)
def test_a_later_limit_is_never_less_likely_kept(seconds, below, above, steps, besides, share, later):
    one = step(seconds, seconds / below, seconds * above)
    limit = besides + share * seconds * steps
    sooner, afterwards = (within_probability(each, steps, one, besides) for each in (limit, limit * later))
    assert 0.0 <= sooner <= afterwards <= 1.0


def test_the_ends_of_the_interval_are_its_quantiles():
    one = step(1.0, 0.8, 1.5)
    assert within_probability(100.0, 100, one, 0.0) == pytest.approx(0.5)
    assert within_probability(150.0, 100, one, 0.0) == pytest.approx(0.9)
    assert within_probability(80.0, 100, one, 0.0) == pytest.approx(0.1)
    assert within_probability(70.0, 100, step(0.7, 0.7, 0.7), 0.0) == 0.5
    assert within_probability(10.0, 100, one, 20.0) == 0.0


@FEW
@given(st.integers(1, 10**6), st.floats(1e-3, 100), st.floats(0, 1e5))
def test_hours_are_seconds_by_3600(steps, seconds, besides):
    expected, low, high = hours_of(steps, step(seconds, seconds * 0.9, seconds * 1.1), besides)
    assert low <= expected <= high
    assert expected * 3600 == pytest.approx(steps * seconds + besides)


@FEW
@given(milliseconds, mebibytes, st.integers(1, 64), st.integers(1, 64), st.integers(1, 10**5))
def test_rows_agree_with_each_other_in_every_unit(ms, mib, count, batch, steps):
    fleet = Fleet(hosts=(count,), devices_per_host=(8,), intra="nvlink3", network_gbps=100)
    asked = question(
        ms, mib, fleet, workload=Workload(gradient_bytes=round(mib * MIB), batch=batch), goal=Goal(steps=steps)
    )
    row = evaluate(asked).rows[0]
    assert row.samples_per_second * row.step.seconds == pytest.approx(batch * 8 * count)
    assert row.efficiency_fraction * row.step.seconds == pytest.approx(ms / 1e3)
    assert row.hours * 3600 == pytest.approx(steps * row.step.seconds + 300)
    assert row.usd == pytest.approx(20.0 * count * row.hours)
    assert row.usd_low <= row.usd <= row.usd_high
    assert sum(row.step.terms.values()) == pytest.approx(row.step.seconds)


@FEW
@given(mebibytes, st.integers(1, 1000))
def test_buckets_add_up_to_the_gradients_and_keep_their_cap(mib, cap):
    workload = Workload(gradient_bytes=round(mib * MIB))
    buckets = with_buckets(workload, cap * MIB).bucket_bytes
    assert sum(buckets) == workload.gradient_bytes
    assert max(buckets) <= cap * MIB


@FEW
@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 16))
def test_a_changed_batch_and_back_is_the_same_step(batch, other, times):
    workload = Workload(batch=batch, flops=1e12 * batch, activation_bytes=batch * 1024)
    back = with_batch(with_batch(workload, other), batch)
    assert back.flops == pytest.approx(workload.flops)
    assert with_microbatches(workload, times).flops == pytest.approx(workload.flops * times)


@FEW
@given(st.integers(1, 100), st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 4), st.integers(1, 64))
def test_steps_of_an_epoch_cover_every_sample(epochs, samples, batch, microbatches, devices):
    workload = Workload(batch=batch, microbatches=microbatches)
    steps = steps_of(Goal(epochs=epochs, samples=samples), workload, devices)
    assert steps * batch * microbatches * devices >= epochs * samples
    assert steps_of(Goal(steps=7), workload, devices) == 7


@FEW
@given(st.floats(0.1, 1e4), st.floats(1.0, 1e4))
def test_what_is_chosen_keeps_every_limit(hours, budget):
    fleet = Fleet(hosts=(1, 2, 4, 8), devices_per_host=(8,), intra="nvlink3", network_gbps=100)
    limits = PlanLimits(deadline_seconds=hours * 3600, budget_usd=budget)
    rows = evaluate(question(fleet=fleet, goal=Goal(epochs=1, samples=10**7))).rows
    choice = choose(rows, limits)
    kept = [row for row in rows if row.hours_high <= hours and row.usd_high <= budget]
    assert (choice.row is None) == (not kept) == (choice.code == "P10")
    if kept:
        assert choice.row.usd == min(row.usd for row in kept)


@FEW
@given(gbps, gbps)
def test_a_rate_in_gigabits_is_an_eighth_in_bytes(one, other):
    assert inter_link(one).bytes_per_second / inter_link(other).bytes_per_second == pytest.approx(one / other)
    assert inter_link(one).bytes_per_second <= one * 1e9 / 8


@FEW
@given(milliseconds, mebibytes, st.integers(1, 64))
def test_the_measured_machines_take_the_measured_time(ms, mib, count):
    fleet = Fleet(hosts=(count,), devices_per_host=(8,), intra="nvlink3", network_gbps=100)
    machines = question(ms, mib, fleet).candidates[0].machines
    measured = Measurement(hosts=count, devices=8 * count, step_seconds=ms / 1e3)
    assert step_time(machines, Workload(gradient_bytes=round(mib * MIB)), (measured,)).seconds == pytest.approx(
        ms / 1e3
    )
