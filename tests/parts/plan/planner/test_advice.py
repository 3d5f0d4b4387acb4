"""Each change is computed as a row of its own; what helps most comes first, and what helps nothing is not named."""

from dataclasses import replace

import pytest

from paceline.catalog.types import Accelerator
from paceline.parts.plan.planner.advice import LEAST_GAIN, Aim
from paceline.parts.plan.planner.answer import Fit
from paceline.parts.plan.planner.evaluate import evaluate
from paceline.parts.plan.planner.fleet import Fleet, candidates_given
from paceline.parts.plan.planner.question import Goal, PlanLimits, PlanQuestion, Prices
from paceline.parts.plan.planner.workload import Measurement, OperationCounts, Precision, Workload

GIB = 2**30
A100 = Accelerator(
    name="NVIDIA A100-SXM4-40GB",
    fp32_tflops=19.5,
    tf32_tflops=156,
    fp16_tflops=312,
    bf16_tflops=312,
    memory_gb_per_second=1555,
    nvlink_gb_per_second=600,
)
MATMUL = OperationCounts(name="mm", kind="matmul", precision=Precision.FP32, count=1, flops=8e12, moved_bytes=1e9)
STEP = Workload(
    parameter_bytes=2 * GIB,
    gradient_bytes=2 * GIB,
    optimizer_bytes=4 * GIB,
    activation_bytes=10 * GIB,
    batch=32,
    precision=Precision.FP32,
    operations=(MATMUL,),
    flops=8e12,
)


def plan(workload=STEP, *, hosts=(4,), gbps=25.0, zones=1, usd=20.0, gib=40, seconds=0.5, **more):
    fleet = Fleet(
        hosts=hosts, devices_per_host=(8,), intra="nvlink3", network_gbps=gbps, zones=zones, capacity_bytes=gib * GIB
    )
    measured = (Measurement(hosts=1, devices=1, step_seconds=seconds),) if seconds else ()
    candidates = tuple(candidates_given("boxes", A100, fleet, prices=Prices(on_demand=usd)))
    question = PlanQuestion(workload=workload, candidates=candidates, measurements=measured, **more)
    return evaluate(question)


def kinds(answer):
    return [advice.kind for advice in answer.advice]


def test_the_gain_is_what_its_own_row_says():
    answer = plan()
    for advice in answer.advice:
        assert advice.gain_fraction >= LEAST_GAIN
    gains = [advice.gain_fraction for advice in answer.advice]
    assert gains == sorted(gains, reverse=True)
    bf16 = next(advice for advice in answer.advice if advice.kind == "precision")
    assert bf16.gain_fraction == pytest.approx(1 - bf16.after.step.seconds / bf16.before.step.seconds)


def test_a_step_in_bf16_is_not_told_to_use_it():
    assert "precision" in kinds(plan())
    assert "precision" not in kinds(plan(replace(STEP, precision=Precision.BF16)))


def test_accumulation_helps_where_the_exchange_is_what_takes_long_and_says_what_it_changes():
    slow = next(advice for advice in plan(gbps=10.0).advice if advice.kind == "accumulation")
    assert "global batch" in slow.note
    assert "accumulation" not in kinds(plan(hosts=(1,), seconds=50.0))


def test_one_device_has_nothing_to_exchange():
    fleet = Fleet(capacity_bytes=40 * GIB)
    question = PlanQuestion(
        workload=STEP,
        candidates=tuple(candidates_given("box", A100, fleet)),
        measurements=(Measurement(hosts=1, devices=1, step_seconds=0.5),),
    )
    assert {advice.kind for advice in evaluate(question).advice} <= {"precision"}


def test_one_zone_saves_time_and_the_traffic():
    answer = plan(zones=2, goal=Goal(steps=10_000))
    advice = next(advice for advice in answer.advice if advice.kind == "zones")
    assert advice.before.zone_traffic_usd > 0
    assert advice.gain_fraction > 1 - advice.after.step.seconds / advice.before.step.seconds


def test_fewer_hosts_are_advised_where_nothing_was_chosen_and_say_what_they_cost_in_time():
    answer = plan(hosts=(1, 4), gbps=100.0, usd=None)
    assert answer.choice.row is None
    advice = next(advice for advice in answer.advice if advice.kind == "hosts")
    assert (advice.change, advice.how) == ("1 host instead of 4", "--host-counts 1")
    assert "times as long" in advice.note
    assert "hosts" not in kinds(plan(hosts=(1, 4), gbps=100.0))


def test_with_a_budget_alone_time_is_what_counts():
    answer = plan(goal=Goal(steps=1000), limits=PlanLimits(budget_usd=1e6))
    assert {advice.aim for advice in answer.advice} == {Aim.TIME}
    assert {advice.aim for advice in plan(usd=None).advice} == {Aim.DEVICES}


def test_what_does_not_fit_is_told_how_it_would():
    answer = plan(replace(STEP, activation_bytes=60 * GIB))
    assert answer.rows[0].memory.verdict is Fit.DOES_NOT_FIT
    assert answer.advice
    for advice in answer.advice:
        assert advice.kind == "memory" and advice.gain_fraction is None
        assert advice.after.memory.verdict in (Fit.FITS, Fit.GREY)
    smaller = answer.advice[0]
    assert "same global batch" in smaller.change


def test_of_what_makes_a_step_fit_the_surest_comes_first():
    """The gradients count once, not once more in the buckets; sharded, there is room to spare."""
    answer = plan(
        replace(STEP, activation_bytes=28 * GIB, largest_group_bytes=GIB // 8, batch=1, precision=Precision.BF16)
    )
    assert [(advice.change, advice.after.memory.verdict) for advice in answer.advice] == [
        ("shard the state over the devices", Fit.FITS),
        ("keep the gradients in DDP's buckets alone", Fit.GREY),
    ]
    as_views = replace(STEP, activation_bytes=40 * GIB, batch=1, gradient_as_bucket_view=True)
    assert "keep the gradients in DDP's buckets alone" not in [advice.change for advice in plan(as_views).advice]
