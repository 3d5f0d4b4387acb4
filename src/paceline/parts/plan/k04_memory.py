"""K04: the plan says that a step does not fit into a device."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.parts.plan.planner.answer import Fit, Row
from paceline.rules.job_facts import BeforeRun

PAGE = """\
A step does not fit into the memory of a device

What it means: The planner added up everything that the traced script keeps on a device: parameters, gradients,
  buckets, optimizer state, activations. The sum exceeds the memory that the driver of that device reports. Near the
  limit the step may or may not fit; then the finding is a warning.
Why it matters: The job ends with "CUDA out of memory" on every rank, after the data were downloaded and paid for.
What to do: Use the batch size under "next" or a device with more memory, or keep less on each device: FSDP,
  activation checkpointing, another optimizer. `paceline plan SCRIPT --explain` shows every part of the sum.
Source: paceline/parts/plan/planner/memory.py; docs/plan.md; docs/accuracy.md shows how often the answer is right.
"""

_GIB = 2**30


def find(before: BeforeRun) -> Iterator[Finding]:
    """What the plan's verdict on memory means for the job."""
    plan = before.plan
    if not isinstance(plan, Row):
        raise Unknown(f"a plan (paceline plan {before.script_path or 'SCRIPT'})")
    memory = plan.memory
    if memory.verdict is Fit.NOT_JUDGED:
        raise Unknown(memory.missing or "what a step needs of memory")
    if memory.verdict is Fit.FITS:
        return
    device = plan.machines.device
    name = device.name if device is not None else "the host's memory"
    grey = memory.verdict is Fit.GREY
    need, has = (f"{(size or 0) / _GIB:.3g} GiB" for size in (memory.need_bytes, memory.capacity_bytes))
    batch = memory.largest_batch
    yield Finding(
        code="K04",
        severity=Severity.WARNING if grey else Severity.ERROR,
        what=f"a step may not fit into {name}" if grey else f"a step does not fit into {name}",
        saw=f"the tensors of a step need {need}, the device has {has}"
        + (f"; the largest part: {_largest(memory.parts_bytes)}" if memory.parts_bytes else ""),
        next=f"a batch of {batch} on each rank still fits"
        if batch
        else "take a device with more memory, or split the model (FSDP)",
    )


def _largest(parts: object) -> str:
    assert isinstance(parts, dict)
    name, size = max(parts.items(), key=lambda item: item[1])
    return f"{name}, {size / _GIB:.3g} GiB"


RULE = Rule(code="K04", page=PAGE, find=find)
