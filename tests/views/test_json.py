"""What --json prints and what is kept as JSON, byte for byte: data/NAME.json was written when keys and their order were written by hand."""

import json
from pathlib import Path

import msgspec
import pytest

from paceline.catalog.compatibility import Reason, Support
from paceline.catalog.lookup import SpotPrice
from paceline.catalog.types import Accelerator, MachineType
from paceline.diagnosis.verdict import Diagnosis
from paceline.findings import CauseFinding, Confidence, Level
from paceline.planner import rehearsal, trace_json
from paceline.planner.answer import Fit, Formula, Memory, StepTime
from paceline.planner.choice import MachineChoice
from paceline.planner.evaluate import Plan
from paceline.planner.question import PlanQuestion
from paceline.planner.rehearsal import Prediction, Probe, Rehearsal, RehearsedSize, Slots
from paceline.planner.workload import Assumption, Measurement, OperationCounts, Precision, Strategy, Workload
from paceline.views import instances, plan_json, why
from paceline.views.rehearse import rehearsal_json

DATA = Path(__file__).parent / "data"

FINDING = CauseFinding(
    code="N01", title="rank 3 sleeps", level=Level.STALL, ranks=(3,), hosts=("algo-2",), confidence=Confidence.LIKELY,
    since_step=12, detected_after_seconds=3.25, saw=("µs", 'a "quote"'), ruled_out=("N02",), next=("py-spy dump",),
)  # fmt: skip
FORMULA = Formula(
    name="T", text="a * b", values={"a": 1, "b": 2.5, "c": None, "kind": "ring"}, result=2.5, unit="s", source="fit"
)
WORKLOAD = Workload(
    name="train.py", parameter_count=10, gradient_bytes=40, bucket_bytes=(16, 24), precision=Precision.BF16, autocast=True,
    strategy=Strategy.FSDP, batch=8, microbatches=2, flops=1e12, loading_seconds=0.1 + 0.2,
    operations=(OperationCounts(name="mm", kind="matmul", precision=Precision.BF16, count=1, flops=1e12, moved_bytes=2e9),),
    assumptions=(Assumption(what="a branch", file="train.py", line=3),),
)  # fmt: skip
REHEARSAL = Rehearsal(
    id="rh-1", program=("train.py", "--lr", "1"),
    sizes=(
        RehearsedSize(
            measurement=Measurement(hosts=1, devices=2, step_seconds=0.1, batch=4, exposed_communication_seconds=0.01),
            run="r-1", steps=30, mean_step_seconds=0.11, crowding=1.5,
        ),
    ),
    room=Slots(cpus=2.0, devices=0), probe=Probe(points=((4096.0, 1e-4), (8192.0, 2e-4)), ranks=2, backend="gloo"),
    script_hash="ab", machine="m", started_ns=1, notes=("one",),
)  # fmt: skip
PREDICTION = Prediction(
    hosts=1, ranks_per_host=4, efficiency_fraction=0.9, crowding=2.0, here_seconds=0.2,
    step=StepTime(seconds=0.1, low_seconds=0.09, high_seconds=0.12, tier=2, terms={"compute": 0.08}, warnings=("few",)),
)  # fmt: skip
MACHINE = instances.Described(
    machine=MachineType(name="p4d.24xlarge", vcpu_count=96, memory_gib=1152.0, efa=True, sources={"": "a", "memory_gib": "b"}),
    accelerator=Accelerator(name="A100", bf16_tflops=312.0, doubtful=frozenset({"power_watts", "bf16_tflops"})),
    spot=(SpotPrice(zone="us-east-1a", usd_per_hour=9.5, source="aws"),),
    kinds={"smddp": Support(allowed=False, reasons=(Reason(text="no EFA", forbids=True, numbers={"gpu_count": 4}),), nearest=("x",))},
)  # fmt: skip

EARLIER = why.Earlier(finding=FINDING, attempt=1, after_seconds=2.5, because="it went on")
PLAN = Plan(
    question=PlanQuestion(workload=WORKLOAD, candidates=()), rows=(), choice=MachineChoice(row=None, why="no row", code="P10"),
    assumptions=(Assumption(what="a branch", file="train.py", line=3), Assumption(what="dense")), warnings=("w",), not_judged=("n",),
)  # fmt: skip

RENDERED = {
    "plan": lambda: plan_json.plan_json(PLAN),
    "finding": lambda: why.why_json(Diagnosis(findings=(FINDING,), not_judged=("S01",)), "r-1", "hung", [EARLIER]),
    "formula": lambda: msgspec.to_builtins(FORMULA),
    "memory": lambda: plan_json.memory_facts(Memory(fit=Fit.FITS, need_bytes=1, parts={"gradients": 1})),
    "instances": lambda: instances.instances_facts([MACHINE, instances.Described(machine=MachineType(name="bare"))]),
    "accelerators": lambda: instances.accelerators_facts([MACHINE.accelerator]),
    "trace": lambda: trace_json.to_plain(WORKLOAD),
    "bare_trace": lambda: trace_json.to_plain(Workload()),
    "rehearsal": lambda: rehearsal_json(REHEARSAL, [PREDICTION], "rehearsal.json"),
}


@pytest.mark.parametrize("name", RENDERED)
def test_keys_order_and_values_stay(name):
    assert json.dumps(RENDERED[name]()) + "\n" == (DATA / f"{name}.json").read_text(encoding="utf-8")


def test_what_is_kept_is_read_again():
    assert trace_json.from_plain(json.loads((DATA / "trace.json").read_text(encoding="utf-8"))) == WORKLOAD
    assert trace_json.from_plain(json.loads((DATA / "bare_trace.json").read_text(encoding="utf-8"))) == Workload()
    assert rehearsal.from_plain(json.loads((DATA / "rehearsal.json").read_text(encoding="utf-8"))) == REHEARSAL
