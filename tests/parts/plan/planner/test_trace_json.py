"""A saved trace comes back as it was, and one with a value that cannot be is refused."""

import pytest

from paceline.errors import UsageError
from paceline.parts.plan.planner.trace_json import from_plain, to_plain
from paceline.parts.plan.planner.workload import Assumption, OperationCounts, Precision, Strategy, Workload

TRACED = Workload(
    name="train.py",
    parameter_count=10,
    gradient_bytes=40,
    bucket_bytes=(16, 24),
    precision=Precision.BF16,
    strategy=Strategy.FSDP,
    batch=8,
    microbatches=2,
    flops=1e12,
    loading_seconds=0.5,
    operations=(
        OperationCounts(name="mm", kind="matmul", precision=Precision.BF16, count=1, flops=1e12, moved_bytes=2e9),
    ),
    assumptions=(Assumption(what="a branch", file="train.py", line=3),),
)


def test_a_saved_trace_is_the_same_step():
    assert from_plain(to_plain(TRACED)) == TRACED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("microbatches", 0),
        ("microbatches", None),
        ("gradient_bytes", -1),
        ("parameter_count", 1.5),
        ("flops", "many"),
        ("flops", float("nan")),
        ("loading_seconds", -1.0),
        ("precision", "fp7"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name, value):
    with pytest.raises(UsageError) as refused:
        from_plain({**to_plain(TRACED), name: value})
    assert refused.value.code == "P06"
