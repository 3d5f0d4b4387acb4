"""A workload with one thing changed: what shrinks and what grows with it, and what the change does to the exchange."""

from dataclasses import replace

import pytest

from paceline.errors import UsageError
from paceline.parts.plan.planner.collective import MIB, Link
from paceline.parts.plan.planner.links import inter_link
from paceline.parts.plan.planner.scaling import Shape, exchange_seconds
from paceline.parts.plan.planner.what_if import with_buckets, with_precision
from paceline.parts.plan.planner.workload import OperationCounts, Precision, Strategy, Workload

HALF = Workload(
    precision=Precision.BF16,
    batch=8,
    activation_bytes=1000,
    gradient_bytes=600 * MIB,
    operations=(
        OperationCounts(name="mm", kind="matmul", precision=Precision.BF16, count=1, flops=1e12, moved_bytes=100.0),
        OperationCounts(
            name="add", kind="elementwise", precision=Precision.FP32, count=1, flops=0.0, moved_bytes=100.0
        ),
    ),
)


def test_products_leave_half_precision_with_twice_the_bytes_and_others_stay():
    full = with_precision(HALF, Precision.FP32)
    product, other = full.operations
    assert (product.precision, product.moved_bytes) == (Precision.FP32, 200.0)
    assert other == HALF.operations[1]
    assert full.activation_bytes == 2 * HALF.activation_bytes


def test_halving_saves_less_than_doubling_costs_and_nothing_where_activations_are_computed_again():
    full = Workload(precision=Precision.FP32, activation_bytes=1000)
    assert 500 < with_precision(full, Precision.BF16).activation_bytes < 1000
    again = Workload(precision=Precision.FP32, activation_bytes=1000, checkpointed_activations=True)
    assert with_precision(again, Precision.BF16).activation_bytes == 1000


def test_precisions_of_one_width_change_only_what_products_are_computed_in():
    other = with_precision(HALF, Precision.FP16)
    assert [one.precision for one in other.operations] == [Precision.FP16, Precision.FP32]
    assert other.operations[0].moved_bytes == 100.0
    assert other.activation_bytes == HALF.activation_bytes


def test_larger_buckets_are_exchanged_fewer_times():
    zones = inter_link(100, zones=2)
    seconds = [
        exchange_seconds(Shape(4, 1), with_buckets(HALF, mib * MIB), None, zones)[1] for mib in (1, 25, 100, 1000)
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] - seconds[1] > 500 * zones.latency_seconds
    usual = exchange_seconds(Shape(4, 1), HALF, None, zones)[1]
    assert seconds[1] == pytest.approx(usual, rel=0.1)


def test_buckets_of_next_to_nothing_are_refused():
    with pytest.raises(UsageError) as refused:
        with_buckets(HALF, 1)
    assert refused.value.code == "U03"


def test_shards_are_exchanged_for_each_microbatch_and_replicas_once():
    link = Link(kind="tcp", bytes_per_second=1e9, latency_seconds=1e-4)
    once = Workload(gradient_bytes=100 * MIB, batch=4)
    twice = replace(once, microbatches=2)

    def seconds(workload):
        return exchange_seconds(Shape(2, 1), workload, None, link)[1]

    assert seconds(twice) == seconds(once)
    assert seconds(replace(twice, strategy=Strategy.FSDP)) == 2 * seconds(replace(once, strategy=Strategy.FSDP))
