"""Whether a step fits: what is counted, what each strategy divides, and the verdicts on published runs."""

import sys
from dataclasses import replace

import pytest

from paceline.errors import UsageError
from paceline.parts.plan.planner.answer import Fit
from paceline.parts.plan.planner.memory import CONTEXT_BYTES, FITS_FRACTION, memory
from paceline.parts.plan.planner.workload import Precision, Strategy, Workload

GIB = 1024**3
MIB = 1024**2
STEP = Workload(
    parameter_bytes=400 * MIB,
    gradient_bytes=400 * MIB,
    optimizer_bytes=800 * MIB,
    activation_bytes=8 * GIB,
    batch=32,
    precision=Precision.FP32,
)


def test_the_parts_add_up_to_the_need():
    answer = memory(STEP, capacity_bytes=16 * GIB)
    assert answer.need_bytes == sum(answer.parts_bytes.values())
    assert answer.parts_bytes["activations"] == 8 * GIB and answer.parts_bytes["other"] == CONTEXT_BYTES


def test_ddp_keeps_buckets_besides_gradients_unless_they_are_one():
    alone, many = memory(STEP, capacity_bytes=16 * GIB), memory(STEP, capacity_bytes=16 * GIB, devices=4)
    views = memory(replace(STEP, gradient_as_bucket_view=True), capacity_bytes=16 * GIB, devices=4)
    assert many.need_bytes - alone.need_bytes == STEP.gradient_bytes
    assert views.need_bytes == alone.need_bytes


def test_lazy_buckets_are_gone_when_the_update_takes_its_memory():
    lazy = memory(replace(STEP, lazy_bucket_allocation=True), capacity_bytes=16 * GIB, devices=4)
    assert lazy.need_bytes == memory(STEP, capacity_bytes=16 * GIB).need_bytes


def test_activations_grow_with_the_batch_and_nothing_else_does():
    one, two = (memory(STEP, capacity_bytes=64 * GIB, batch=batch) for batch in (32, 64))
    assert two.need_bytes - one.need_bytes == 8 * GIB


@pytest.mark.parametrize(("gib", "verdict"), [(13, Fit.FITS), (11.5, Fit.GREY), (10, Fit.DOES_NOT_FIT)])
def test_the_zones(gib, verdict):
    assert memory(STEP, capacity_bytes=round(gib * GIB)).verdict is verdict


def test_the_largest_batch_fits_and_one_more_does_not():
    largest = memory(STEP, capacity_bytes=16 * GIB).largest_batch
    assert memory(STEP, capacity_bytes=16 * GIB, batch=largest).verdict is Fit.FITS
    assert memory(STEP, capacity_bytes=16 * GIB, batch=largest + 1).verdict is not Fit.FITS


def test_room_for_one_more_of_the_largest_tensor_is_kept_before_it_fits():
    capacity = round(memory(STEP, capacity_bytes=GIB).need_bytes / FITS_FRACTION) + MIB
    assert memory(STEP, capacity_bytes=capacity).verdict is Fit.FITS
    assert memory(replace(STEP, largest_tensor_bytes=GIB), capacity_bytes=capacity).verdict is Fit.GREY


def test_the_worse_of_two_moments_counts():
    prepared = replace(STEP, transient_bytes=12 * GIB)
    low, high = (memory(prepared, capacity_bytes=64 * GIB, batch=batch) for batch in (1, 64))
    assert low.need_bytes - low.parts_bytes["optimizer"] > 12 * GIB
    assert high.parts_bytes["other"] == CONTEXT_BYTES
    assert memory(prepared, capacity_bytes=8 * GIB).largest_batch == 0


def test_sharding_divides_the_state_of_the_model():
    known = replace(STEP, largest_group_bytes=20 * MIB)
    parts = memory(known, capacity_bytes=16 * GIB, strategy=Strategy.FSDP, devices=8).parts_bytes
    assert (parts["parameters"], parts["gradients"], parts["optimizer"]) == (50 * MIB, 50 * MIB, 100 * MIB)
    assert parts["buckets"] == 2 * 2 * 20 * MIB


@pytest.mark.parametrize("transient", [None, 1, GIB, 40 * GIB])
@pytest.mark.parametrize("fixed", [None, GIB])
def test_of_what_is_sharded_nothing_is_left_on_very_many_devices(transient, fixed):
    known = replace(STEP, largest_group_bytes=20 * MIB, transient_bytes=transient, peak_fixed_bytes=fixed)
    many = {"capacity_bytes": 80 * GIB, "strategy": Strategy.FSDP}
    needs = [memory(known, devices=devices, **many).need_bytes for devices in (2, 8, 64, 4096, 10**6)]
    assert needs == sorted(needs, reverse=True)
    kept = STEP.activation_bytes + CONTEXT_BYTES + (fixed or 0) + 2 * 2 * 20 * MIB
    assert needs[-1] == pytest.approx(kept, rel=0.01)


def test_groups_that_are_not_known_leave_a_doubt():
    large = replace(STEP, parameter_bytes=20 * GIB, gradient_bytes=20 * GIB, optimizer_bytes=40 * GIB)
    answer = memory(large, capacity_bytes=40 * GIB, strategy=Strategy.FSDP, devices=8)
    assert answer.verdict is Fit.GREY and "fully_shard" in answer.missing
    counted = replace(large, parameter_bytes=None, parameter_count=5 * GIB)
    assert memory(counted, capacity_bytes=40 * GIB, strategy=Strategy.FSDP, devices=8).verdict is Fit.GREY
    room = {"capacity_bytes": 80 * GIB, "strategy": Strategy.FSDP, "devices": 8}
    largest = memory(large, **room).largest_batch
    assert largest and memory(large, **room, batch=largest).verdict is Fit.FITS
    assert memory(large, **room, batch=largest + 1).verdict is Fit.GREY


def test_a_precision_that_was_not_traced_errs_to_more_memory():
    half = memory(STEP, capacity_bytes=16 * GIB, precision=Precision.BF16)
    assert 0.5 < half.parts_bytes["activations"] / (8 * GIB) < 1 and half.assumed
    back = memory(replace(STEP, precision=Precision.BF16), capacity_bytes=16 * GIB, precision=Precision.FP32)
    assert back.parts_bytes["activations"] == 16 * GIB
    assert memory(STEP, capacity_bytes=16 * GIB, precision=Precision.TF32).parts_bytes["activations"] == 8 * GIB


def test_what_is_not_known_is_not_judged_and_named():
    assert memory(Workload(), capacity_bytes=16 * GIB).missing == "the size of the parameters"
    assert memory(STEP, capacity_bytes=None).missing == "the memory of the device"
    unknown = memory(replace(STEP, activation_bytes=None), capacity_bytes=16 * GIB)
    assert unknown.verdict is Fit.NOT_JUDGED and "activations" in unknown.missing


def test_a_model_that_alone_is_too_large_does_not_fit_whatever_its_activations():
    answer = memory(Workload(parameter_count=10**10), capacity_bytes=80 * GIB)
    assert answer.verdict is Fit.DOES_NOT_FIT and len(answer.assumed) == 2


@pytest.mark.parametrize(
    "wrong", [{"capacity_bytes": 0}, {"capacity_bytes": GIB, "batch": 0}, {"capacity_bytes": GIB, "devices": -1}]
)
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(UsageError) as refused:
        memory(STEP, **wrong)
    assert refused.value.code == "U03"


@pytest.fixture(scope="module")
def verdicts(repository):
    before, known = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(repository / "bench"))
    try:
        import accuracy_memory

        yield accuracy_memory.verdicts()[0]
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if not name.startswith("paceline"):
                del sys.modules[name]


def test_no_published_run_that_ran_out_of_memory_is_said_to_fit(verdicts):
    failed = [each for each in verdicts if not each.ran]
    assert len(failed) == 8
    assert not [each for each in failed if each.answer.verdict is Fit.FITS]


def test_few_published_runs_that_fitted_are_said_not_to(verdicts):
    ran = [each for each in verdicts if each.ran]
    wrong = [each for each in ran if each.answer.verdict is Fit.DOES_NOT_FIT]
    assert len(ran) > 1000 and len(wrong) <= 0.03 * len(ran)
