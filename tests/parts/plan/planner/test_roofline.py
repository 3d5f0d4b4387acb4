"""Tier 0: what raises and lowers an estimate, what is not judged, and how it orders the accelerators of published steps."""

import sys
from dataclasses import replace

import pytest

from paceline.catalog.types import Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.roofline import FLOPS_ONLY, INTERVALS, compute_seconds, has_convolutions, peak_flops
from paceline.parts.plan.planner.workload import OperationCounts, Precision, Workload

A100 = Accelerator(
    name="A100", fp32_tflops=19.5, tf32_tflops=156.0, fp16_tflops=312.0, bf16_tflops=312.0, memory_gb_per_second=1555.0
)
V100 = Accelerator(name="V100", fp32_tflops=15.7, fp16_tflops=125.0, memory_gb_per_second=900.0)


def operations(
    kind: str, flops: float, moved: float, count: int = 100, precision: Precision = Precision.FP16
) -> OperationCounts:
    return OperationCounts(name=kind, kind=kind, precision=precision, count=count, flops=flops, moved_bytes=moved)


STEP = Workload(
    batch=32,
    precision=Precision.FP16,
    operations=(operations("matmul", 1e13, 1e10), operations("elementwise", 0.0, 5e10)),
)


def test_the_estimate_lies_in_its_interval():
    seconds, low, high = compute_seconds(STEP, A100)
    assert low < seconds < high


@pytest.mark.parametrize("rate", ["fp16_tflops", "memory_gb_per_second"])
def test_a_higher_rate_is_never_slower(rate):
    faster = replace(A100, **{rate: 2 * getattr(A100, rate)})
    assert compute_seconds(STEP, faster)[0] < compute_seconds(STEP, A100)[0]


def test_the_time_of_an_operation_does_not_grow_with_the_batch():
    small = Workload(batch=1, precision=Precision.FP16, operations=(operations("matmul", 1e6, 1e3, count=1000),))
    one, thousand = compute_seconds(small, A100)[0], compute_seconds(small, A100, batch=1000)[0]
    assert one > 0.01 and thousand < 2 * one


def test_twice_the_batch_is_at_most_twice_the_time():
    one, two = compute_seconds(STEP, A100)[0], compute_seconds(STEP, A100, batch=64)[0]
    assert one < two <= 2 * one


def test_a_precision_without_matrix_units_runs_at_the_rate_of_fp32():
    assert peak_flops(V100, Precision.TF32) == peak_flops(V100, Precision.FP32) == 15.7e12
    assert peak_flops(Accelerator(name="?"), Precision.FP16) is None


def test_convolutions_fill_matrix_units_worse_and_get_the_wider_interval():
    same = Workload(
        batch=32,
        precision=Precision.FP16,
        operations=(operations("convolution", 1e13, 1e10), operations("elementwise", 0.0, 5e10)),
    )
    assert has_convolutions(same) and not has_convolutions(STEP)
    assert compute_seconds(same, A100)[0] > compute_seconds(STEP, A100)[0]


def test_another_precision_replaces_that_of_the_products_only():
    loss = operations("matmul", 1e12, 0.0, precision=Precision.FP32)
    mixed = replace(STEP, operations=(*STEP.operations, loss))
    slower = compute_seconds(mixed, A100, precision=Precision.TF32)[0] - compute_seconds(mixed, A100)[0]
    alone = compute_seconds(STEP, A100, precision=Precision.TF32)[0] - compute_seconds(STEP, A100)[0]
    assert slower == pytest.approx(alone)


def test_flops_alone_give_the_widest_interval():
    seconds, low, high = compute_seconds(Workload(flops=1e13, batch=8, precision=Precision.FP16), A100)
    assert (low / seconds, high / seconds) == pytest.approx(FLOPS_ONLY["matrix"][1:])
    assert all(high / low > INTERVALS["products"][1] / INTERVALS["products"][0] for _, low, high in FLOPS_ONLY.values())
    assert compute_seconds(Workload(flops=1e13, batch=8), A100, batch=16)[0] == pytest.approx(
        2 * compute_seconds(Workload(flops=1e13, batch=8), A100)[0]
    )


def test_what_cannot_be_estimated_is_not_judged():
    assert compute_seconds(STEP, None) is None
    assert compute_seconds(Workload(), A100) is None
    assert compute_seconds(STEP, Accelerator(name="?", fp16_tflops=100.0)) is None


def test_a_batch_below_one_is_refused():
    with pytest.raises(UsageError) as refused:
        compute_seconds(STEP, A100, batch=0)
    assert refused.value.code == "U03"


def test_the_formula_names_every_rate_and_its_coefficient():
    formulas = []
    seconds, _, _ = compute_seconds(STEP, A100, formulas=formulas)
    assert formulas[0].result == seconds and formulas[0].values["products_at_rate_seconds"] == pytest.approx(
        1e13 / 312e12
    )


@pytest.fixture(scope="module")
def held_out(repository):
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(repository / "bench"))
    try:
        import accuracy_tier0

        yield accuracy_tier0, accuracy_tier0.held_out(lambda case: case.group)
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if not name.startswith("paceline"):
                del sys.modules[name]


def test_transformers_are_within_the_target_when_held_out(held_out):
    tier0, parts = held_out
    assert tier0._error([pair for pairs in parts.values() for pair in pairs if pair[0].transformer]) <= 35


def test_the_interval_covers_eight_in_ten_held_out(held_out):
    tier0, parts = held_out
    covered = tier0._coverage(parts)
    for some in (
        covered,
        [each for each in covered if each[0].transformer],
        [each for each in covered if not each[0].transformer],
    ):
        assert sum(inside for _, inside in some) >= 0.8 * len(some)


def test_accelerators_are_in_the_right_order_in_eight_of_ten_pairs(held_out):
    tier0, parts = held_out
    rows = [line for line in tier0._ordering(parts) if line.endswith("% |")]
    assert len(rows) == 6 and all(float(row.split("|")[3].strip(" %")) >= 80 for row in rows)
