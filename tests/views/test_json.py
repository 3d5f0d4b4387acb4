"""Every JSON document, key by key: data/NAME.json has it with each key, and docs/schemas.md says what each key means.

`python tests/views/test_json.py` writes data/ anew, after a change that was meant.
"""

import ast
import dataclasses
import json
import os
import re
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock

import msgspec
import pytest

# As a program, without pytest's own path.
sys.path.append(str(Path(__file__).parents[1] / "shared"))

from filled import filled

import paceline
from paceline.catalog.compatibility import Reason, Support
from paceline.catalog.lookup import SpotPrice
from paceline.catalog.types import Accelerator, MachineType
from paceline.cli import stop
from paceline.cli.completion.script import completion_facts
from paceline.cli.help import names_facts, page_facts
from paceline.cli.programs.schema_keys import BEFORE, SCHEMAS, keys_of
from paceline.contract.tree import Tree, write_config
from paceline.diagnosis.case import Case, Estimate, Forecast, HeldUp, RankTiming, StepTiming
from paceline.diagnosis.run_comparison import RunComparison
from paceline.diagnosis.run_state import run_state
from paceline.diagnosis.snapshots import Child, Frame, RankSnapshot, Socket, ThreadStack
from paceline.diagnosis.verdict import Diagnosis
from paceline.errors import UsageError
from paceline.facts import Evidence, RankRecord, Run, SecondaryStatus, Status
from paceline.findings import CauseFinding, Confidence, Finding, Judgement, Level, Severity, Verdict
from paceline.job_file import JobFile, job_document
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.run_environment import environment_document
from paceline.launch.run import host_document
from paceline.option import switch
from paceline.parts.comm.planner.regression import Baseline, Change, Figure, Regression
from paceline.parts.comm.planner.strategy_times import StrategyTime
from paceline.parts.engines import endpoints, jobs
from paceline.parts.engines.submission import Package, Submission
from paceline.parts.engines.views import submit as submit_view
from paceline.parts.lab.cli.bench.baselines import BenchResult, JudgedResult, comparisons_json, result_json
from paceline.parts.lab.emulate.network import Delivered, DeliveredPath, Network, network_events
from paceline.parts.lab.nccl_tests import Table
from paceline.parts.lab.slow_pairs import Pair, Slow
from paceline.parts.lab.views import bench, bench_pairs, bench_step
from paceline.parts.lab.views.rehearse import rehearsal_json
from paceline.parts.lab.worker.link_probe import curve_document
from paceline.parts.plan.cli.options import parse_plan
from paceline.parts.plan.cli.question import question_of
from paceline.parts.plan.planner import rehearsal, trace_json
from paceline.parts.plan.planner.advice import Advice
from paceline.parts.plan.planner.against import DifferenceReason, PlanComparison
from paceline.parts.plan.planner.answer import Fit, Formula, Memory, Row, StepTime
from paceline.parts.plan.planner.choice import MachineChoice
from paceline.parts.plan.planner.evaluate import Plan, evaluate
from paceline.parts.plan.planner.question import PlanQuestion
from paceline.parts.plan.planner.rehearsal import Prediction, Probe, Rehearsal, RehearsedSize, Slots
from paceline.parts.plan.planner.workload import Assumption, Measurement, OperationCounts, Precision, Strategy, Workload
from paceline.parts.plan.views import against, instances, plan_json
from paceline.parts.resume.recording.exported_state import ExportedState
from paceline.parts.resume.recording.saved_state import JobFacts, Manifest, SavedFile, SavedRank, manifest_text
from paceline.parts.resume.resumable import InspectedLoop, ResumeInspection
from paceline.parts.resume.views import exported_state
from paceline.parts.resume.views import resume as resume_view
from paceline.parts.sagemaker.cli import sagemaker_local
from paceline.parts.sagemaker.engine import output
from paceline.parts.sagemaker.engine.request import job_file
from paceline.parts.sagemaker.local.records import JobRecord
from paceline.parts.web.cli import web
from paceline.parts.web.serve.live_run import Parts, since_facts
from paceline.parts.web.serve.log_search import Search, found_lines
from paceline.parts.web.views import metrics as metrics_view
from paceline.probes.gpus import Gpu
from paceline.recording.clocks import HostClocks
from paceline.recording.fact_json import to_plain
from paceline.recording.lateness import late_rows
from paceline.recording.layout import RunDirectory
from paceline.recording.log_tails import LogEnd
from paceline.recording.logs import LogChoice
from paceline.recording.prune import OldRun
from paceline.recording.runs import index_folder, register, write_run
from paceline.recording.step_columns import StepColumns, TimeAxis
from paceline.rules import pages
from paceline.views import checks, env, error, why
from paceline.views import compare as compare_view
from paceline.views import logs as log_views
from paceline.views import prune as prune_view
from paceline.views import ps as ps_view
from paceline.views import stack as stack_view
from paceline.views import summary as summary_view
from paceline.views import top as top_view
from paceline.views.host_load import HostUsage, RunLoad
from paceline.views.pace import Pace, RankPace
from paceline.views.report import facts as report

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
            run_id="r-1", step_count=30, mean_step_seconds=0.11, crowding=1.5,
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

CHECKED = {"event": "source_check", "findings": [{"code": "K15", "place": "train.py:17", "what": "a port"}]}
ROW = filled(Row)
PLAN = Plan(
    question=PlanQuestion(workload=WORKLOAD, candidates=()), rows=(ROW,), advice=(filled(Advice, before=ROW, after=ROW),),
    choice=MachineChoice(row=ROW, why="the cheapest", code="P10", nearest=ROW),
    assumptions=(Assumption(what="a branch", file="train.py", line=3), Assumption(what="dense")), warnings=("w",), not_judged=("n",),
)  # fmt: skip
STATED = ("--device", "A100", "--devices-per-host", "8", "--gradient-mib", "100", "--measured-step-ms", "100")

RUN = filled(Run, id="r-1", status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, directory="/a/r-1")
EARLIER = {
    "event": "cause", "attempt": 0, "t_ns": RUN.started_ns + 2_500_000_000,
    "finding": to_plain(dataclasses.replace(FINDING, ranks=(2,))),
}  # fmt: skip
RANK = filled(RankRecord, rank=3, host="algo-1", attempt=0, exit=None, steps=())
TIMING = StepTiming(
    window_seconds=60.0, from_step=900, to_step=950, step_seconds=0.4,
    ranks=tuple(RankTiming(rank=rank, host="algo-1", steps=50, step_seconds=0.4) for rank in range(4)),
    held_up=HeldUp(ranks=(3,), gain=Estimate(seconds=0.1, low=0.09, high=0.11, blocks=20)),
)  # fmt: skip
EVENTS = (
    {"event": "tempo", "attempt": 0, "tempo": to_plain(TIMING)},
    {"event": "notice", "topic": "gradients", "text": "--gradients ring"},
    {"event": "cause", "finding": to_plain(FINDING)},
    *network_events(filled(Network), ("algo-1", "algo-2"), filled(Delivered, paths=(filled(DeliveredPath),)), None),
)
EVIDENCE = Evidence(run=RUN, hosts=("algo-1",), ranks=(RANK,), events=EVENTS, telemetry={}, not_judged=("gpus",))
USAGE = filled(HostUsage)
FRAME = filled(Frame)
SNAPSHOT = filled(
    RankSnapshot,
    stacks=(filled(ThreadStack, frames=(FRAME,)),),
    children=(filled(Child, stack=(FRAME,)),),
    sockets=(filled(Socket),),
)
COMPARED = JudgedResult(
    result=BenchResult(name="float sum", key={"what": "all_reduce"}, points={"1M": Figure(seconds=2.0, mad_seconds=0.1, count=20)}),
    past=Baseline(made_ns=1, points={}), confirmed=True,
    comparison=Regression(
        changes=(filled(Change, slower_fraction=0.5, margin_fraction=0.1),), since_ns=1, too_noisy=("2M",), new=("4M",)
    ),
)  # fmt: skip
TABLE = filled(Table, collective="all_reduce", asked={"sizes": [8], "iterations": 20})
JOB = filled(Submission, package=filled(Package), platform={"Tags": [{"Key": "a", "Value": "b"}]})
FOUND = filled(Finding, code="K07", severity=Severity.ERROR)
VERDICTS = (
    Verdict("K07", Judgement.FIRED, findings=(FOUND,), ignored=(FOUND,)),
    Verdict("K08", Judgement.SILENT),
    Verdict("K09", Judgement.NOT_JUDGED, missing="GPUs"),
)
RESUME_INSPECTION = filled(ResumeInspection, findings=(FOUND,), loops=(filled(InspectedLoop),))
ENVIRONMENT = {
    "paceline": {"version": "1.0"}, "packages": {"msgspec": "1.0"}, "python": {"version": "3.11", "executable": "/usr/bin/python3"},
    "torch": {"version": "2.13", "cuda": "13.0", "reason": "", "not_tried": "",
              "features": [{"name": "hook", "for": "strategies", "found": True, "reason": ""}]},
    "system": {"os": "Debian", "kernel": "6.1", "architecture": "x86_64", "libc": "glibc 2.36"},
    "cpu": {"model": "EPYC", "count": 8, "usable_count": 4, "quota_cpus": 2.0, "cgroup_version": 2},
    "memory": {
        "total_bytes": 8, "available_bytes": 4, "used_bytes": 4, "swap_used_bytes": 0, "cgroup_limit_bytes": 6, "cgroup_used_bytes": 3,
        "cgroup_version": 2, "shm": {"total_bytes": 2, "available_bytes": 1},
    },
    "namespaces": {"allowed": True, "reason": ""},
    "gpus": {"devices": [dataclasses.asdict(filled(Gpu))], "reason": "", "visible_count": 1, "visible_reason": ""},
    "interfaces": [{"name": "eth0", "up": True, "addresses": ["10.0.0.1"], "speed_mbps": 1000, "mtu_bytes": 1500}],
    "limits": {"open_files": 1024, "stack_bytes": None}, "variables": {"OMP_NUM_THREADS": "4"},
}  # fmt: skip


def since_document():
    parts = Parts()
    parts.put({"html verdict": "<section id=verdict>", "model axis": "{}"})
    # A cursor is another one each time.
    behind = {"behind_seconds": 3.0, "step": 7, "last_step_seconds_ago": 0.4}
    return {**since_facts(parts.since(""), "r-1"), **behind, "cursor": "c.1"}


def written_log():
    with tempfile.TemporaryDirectory() as folder:
        log = RunDirectory(Path(folder)).log_file("algo-1", 0, 3, "err")
        log.parent.mkdir(parents=True)
        log.write_text("text\n")
        return found_lines([Path(folder)], Search(LogChoice()), HostClocks())


def written(name, write):
    """What `write` wrote to a file of this name in a folder of its own; the folder is TMP in it, and stamps of the clock are 1."""
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.dict(os.environ, {"XDG_STATE_HOME": folder}):
            write(Path(folder))
            (file,) = Path(folder).rglob(name)
        text = file.read_text().replace(os.path.realpath(folder), "TMP").replace(folder, "TMP")
    document = json.loads(text)
    return document | {key: 1 for key in document if key == "submitted_ns"}


def of_a_type(value):
    """A document with the values of this machine left out."""
    if isinstance(value, dict):
        return {name: value[name] if name == "schema" else of_a_type(value[name]) for name in value}
    return type(value).__name__


def a_run(folder):
    (folder / "r-1").mkdir()
    write_run(dataclasses.replace(RUN, directory=str(folder / "r-1")))


def a_tree(folder):
    tree = Tree(base=folder)
    tree.input_config.mkdir(parents=True)
    write_config(tree, wire={}, channels={}, resources={}, job_name="train")


def fetched(folder):
    (folder / "r-1").mkdir()
    described = {"OutputDataConfig": {"S3OutputPath": f"file://{folder}"}, "TrainingJobName": "train"}
    output.fetch(described, "r-1", lambda: None, folder / "r-1")


SAVED_RANK = SavedRank(SavedFile("rank-0.ab.safetensors", 5752, "ab"), SavedFile("rank-0.ab.msgpack", 38805, "cd"), 7)
MANIFEST = Manifest(
    step=9,
    saved_ns=1,
    job=JobFacts(run_id="r-1", script="/t.py", script_sha256="ef", hash_seed="7"),
    python="3.11.9",
    torch="2.13.0",
    ranks=(SAVED_RANK,),
)

DOCUMENTS = {
    "bench": lambda: (
        bench.table_json(TABLE) | result_json([COMPARED.result]) | {"made_ns": 1} | comparisons_json([COMPARED])
    ),
    "bench_pairs": lambda: bench_pairs.pairs_json([filled(Pair)], [filled(Slow)], TABLE.world, {"pairs": True}),
    "bench_step": lambda: bench_step.step_json([filled(StrategyTime)], ("train.py",), {"steps": 30}),
    "checks": lambda: checks.checks_facts(VERDICTS),
    "completion": lambda: completion_facts("bash", "complete"),
    "container": lambda: json.loads(job_file(JOB, "paceline.whl")),
    "curve": lambda: curve_document(
        2,
        4,
        "gloo",
        [[4096, 0.1]],
        {"within": {"ranks": 2, "points": [[4096, 0.1]]}, "among": {"ranks": 2, "points": [[4096, 0.1]]}},
    ),
    "endpoints": lambda: written("endpoints.json", lambda _: endpoints.remember({"endpoint_url": "http://a"})),
    "env": lambda: msgspec.convert(ENVIRONMENT, env.EnvDocument),
    "error": lambda: error.error_json(UsageError("U03", "what", saw="saw", next="next", more="more")),
    "explain": lambda: page_facts("N01", pages()["N01"]),
    "explain_all": lambda: names_facts(
        {"ps": "list runs"}, {"U04": pages()["U04"]}, [switch("no_token", "Take hosts in without a token.")]
    ),
    "fetched": lambda: written("sagemaker.json", fetched),
    "saved_state": lambda: json.loads(manifest_text(MANIFEST)),
    "environment": lambda: of_a_type(
        {
            **environment_document(
                HostIdentity(run_id="r-1", job_name="j", name="algo-1", mark="m", environ={"NCCL_DEBUG": "INFO"}),
                Path("/"),
            ),
            # What another machine knows, this one need not know.
            **dict.fromkeys(("cuda", "driver", "commit", "instance_type", "instance_from", "region", "price_from"), ""),
            "usd_per_hour": 1.0,
        }
    ),
    "host": lambda: of_a_type(host_document("algo-1")),
    "job": lambda: job_document(filled(JobFile)),
    "known_run": lambda: written("r-1.json", lambda folder: register("r-1", folder, index_folder())),
    "listening": lambda: sagemaker_local.listening_facts(
        "http://127.0.0.1:1", Path("/a"), Namespace(s3_endpoint="http://b", opt_ml=True)
    ),
    "web": lambda: {**web.web_facts("http://127.0.0.1:1/#k=t", "ssh -L 1:127.0.0.1:1 a", "r-1"), "pid": 1},
    "since": lambda: since_document(),
    "log_lines": lambda: written_log(),
    "logs": lambda: json.loads(log_views.log_line_json("r-1", "algo-1", 0, 3, "err", b"text", 1)),
    "plan": lambda: plan_json.plan_json(PLAN),
    "plan_against": lambda: {
        **plan_json.plan_json(PLAN),
        "against": against.against_facts(filled(PlanComparison, reasons=(filled(DifferenceReason),))),
    },
    "plan_explained": lambda: plan_json.plan_json(evaluate(question_of(parse_plan(STATED))), explain=True),
    "finding": lambda: why.why_json(
        Diagnosis(findings=(FINDING,), not_judged=("S01",)),
        Case(run=RUN, now_ns=4, lasts=False, events=(CHECKED, EARLIER)),
    ),
    "formula": lambda: msgspec.to_builtins(FORMULA),
    "memory": lambda: plan_json.memory_facts(Memory(verdict=Fit.FITS, need_bytes=1, parts_bytes={"gradients": 1})),
    "instances": lambda: instances.instances_facts(
        [MACHINE, instances.Described(machine=MachineType(name="bare"))], ["efa"]
    ),
    "accelerators": lambda: instances.accelerators_facts([MACHINE.accelerator]),
    "prune": lambda: prune_view.prune_facts([filled(OldRun)], dry_run=True),
    "metrics": lambda: metrics_view.metrics_facts([filled(metrics_view.Metric, samples=(({"run": "r-1"}, 1.0),))], RUN),
    "page": lambda: page_facts_of_a_run(),
    "compare": lambda: compare_view.compare_facts(filled(RunComparison), EVIDENCE, EVIDENCE),
    "ps": lambda: ps_view.ps_facts([ps_view.ListedRun(RUN, run_state(RUN, EVENTS), (RANK,), "slurm")]),
    "rehearsal": lambda: rehearsal_json(REHEARSAL, [PREDICTION], "rehearsal.json"),
    "request": lambda: submit_view.request_facts("r-1", "slurm", {"argv": ["sbatch"]}, {"script": "text"}),
    "resume": lambda: resume_view.resume_facts(RESUME_INSPECTION),
    "resume_export": lambda: exported_state.exported_facts(filled(ExportedState)),
    "run": lambda: written("run.json", a_run),
    "sagemaker_local": lambda: msgspec.to_builtins(filled(JobRecord, metrics=({"MetricName": "loss"},))),
    "stack": lambda: stack_view.stack_facts("r-1", [SNAPSHOT], lasts=True, not_judged=("rank 4",)),
    "stop": lambda: stop.stop_facts(filled(stop.Stopped, run_id="r-1"), now=True),
    "submission": lambda: written(
        "submission.json", lambda folder: jobs.note(JOB, "slurm", {"job_id": "4711"}, folder)
    ),
    "submitted": lambda: submit_view.submitted_facts(filled(submit_view.Taken, run_id="r-1")),
    "summary": lambda: summary_view.summary_facts(EVIDENCE),
    "top": lambda: top_view.top_facts(EVIDENCE, filled(Pace, ranks=(filled(RankPace),)), [filled(RunLoad)], now_ns=1),
    "trace": lambda: trace_json.to_plain(WORKLOAD),
    "bare_trace": lambda: trace_json.to_plain(Workload()),
    "tree": lambda: written(".paceline.json", a_tree),
}
# Written in a rank or by a traced script, with torch: tests/parts/plan/trace holds their keys to the page.
ELSEWHERE = {
    "paceline.trace/1": (
        "trace_seconds", "lacks", "trainable_count", "unused_tensors", "buffer_bytes", "sparse_gradients", "replicas", "peak_parts",
        "autocast_dtype", "stepped", "distributed", "attention", "device_type", "torch", "code", "what", "saw", "file", "line", "text",
    ),
}  # fmt: skip
# Names that facts had, and that no schema has now. Keys of nccl-tests are its own.
RETIRED = {
    "because", "communication_exposed_fraction", "communication_exposed_seconds", "data_fraction", "data_seconds", "instance",
    "lasts", "looks", "run", "since", "step_ms", "terms_ms", "times_median", "throughput_per_second", "why",
}  # fmt: skip


def page_facts_of_a_run():
    timing = StepTiming(
        window_seconds=1e-9,
        from_step=1,
        to_step=2,
        step_seconds=0.2,
        ranks=(RankTiming(rank=0, host="algo-1", steps=2, step_seconds=0.2, late_seconds=0.1),),
        at_ns=2,
    )
    events = (
        *EVENTS,
        {"t_ns": 2, "event": "tempo", "attempt": 0, "tempo": to_plain(timing)},
        {"t_ns": 2, "event": "notice", "text": "told"},
        {"t_ns": 2, "event": "sensor_missing", "host": "algo-1", "sensor": "gpu", "reason": "no permission"},
        {"t_ns": 3, "event": "standstill", "standstill": {"since_ns": 2, "late": [0]}},
    )
    sample = {"t_ns": 3, "cpu": {"busy_fraction": 0.5}, "memory": {"used_bytes": 1, "total_bytes": 2}}
    return report.page_facts(
        report.Recorded(
            evidence=dataclasses.replace(EVIDENCE, events=events, telemetry={"algo-1": (sample,)}),
            case=Case(run=RUN, now_ns=4, lasts=True, forecast=filled(Forecast), snapshots={0: SNAPSHOT}),
            diagnosis=Diagnosis(findings=(dataclasses.replace(FINDING, since_step=13),), not_judged=("S01",)),
            pace=filled(Pace, ranks=(filled(RankPace),)),
            loads=[filled(RunLoad)],
            axis=TimeAxis(1, 5, 2),
            steps=[StepColumns("algo-1", 0, 0, [0, 2], [0, 8], [0, 5])],
            late=late_rows((), events, TimeAxis(1, 5, 2))[0],
            logs=[filled(LogEnd)],
            not_shown=["the output of rank 7"],
            now_ns=4,
            usd_per_hour=3.6e12,
            price_from="--price",
            hosts_read=("algo-2",),
        )
    )


@cache
def document(name):
    return json.loads(
        json.dumps(msgspec.to_builtins(DOCUMENTS[name]())), parse_float=lambda text: float(f"{float(text):.9g}")
    )


def golden(name):
    return json.dumps(document(name), indent=1) + "\n"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_keys_order_and_values_stay(name):
    assert golden(name) == (DATA / f"{name}.json").read_text(encoding="utf-8"), f"python {Path(__file__).name}?"


def test_what_is_kept_is_read_again():
    assert trace_json.from_plain(trace_json.to_plain(WORKLOAD)) == WORKLOAD
    assert trace_json.from_plain(document("bare_trace")) == Workload()
    assert rehearsal.from_plain(document("rehearsal")) == REHEARSAL


def test_a_rehearsal_that_an_earlier_version_wrote_is_read():
    before = document("rehearsal") | {"schema": "paceline.rehearsal/1"}
    before["sizes"] = [
        {{"run_id": "run", "step_count": "steps"}.get(name, name): value for name, value in size.items()}
        for size in before["sizes"]
    ]
    before["room"] = {"device" if name == "accelerator" else name: value for name, value in before["room"].items()}
    assert "run" in before["sizes"][0] and "device" in before["room"]
    assert rehearsal.from_plain(before) == REHEARSAL


# ------------------------------------------------------------------------------------------------------------ docs/schemas.md


def paths_of(value, path="") -> Iterator[str]:
    """Every key of a document: "runs", "runs[].run_id"."""
    if isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from paths_of(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_of(inner, f"{path}[]")


def keys_in(schema):
    """Every key of this schema that a document of DOCUMENTS has."""
    made = [document(name) for name in DOCUMENTS]
    return {path for one in made if one.get("schema") == schema for path in paths_of(one) if path != "schema"}


@cache
def pattern(path):
    """A path of the page as a regular expression."""
    parts = re.split(r"(\{\w+\}|\*)", path)
    return re.compile(
        "".join({"*": r".+"}.get(part, r"[^.\[\]]*" if part[:1] == "{" else re.escape(part)) for part in parts)
    )


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_the_page_has_every_key_and_no_other(schema):
    seen, told = keys_in(schema.name), [key.path for key in keys_of(schema)]
    assert seen, "no document of DOCUMENTS is of this schema"
    assert [path for path in sorted(seen) if not any(pattern(one).fullmatch(path) for one in told)] == []
    elsewhere = ELSEWHERE.get(schema.name, ())
    unseen = [one for one in told if not any(pattern(one).fullmatch(path) for path in seen)]
    assert [one for one in unseen if one.partition(".")[0] not in elsewhere] == []


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_key_has_a_meaning_and_none_has_a_retired_name(schema):
    keys = list(keys_of(schema))
    assert [key.path for key in keys if not key.meaning] == []
    assert [key.path for key in keys if key.path.rpartition(".")[2] in RETIRED] == []


def test_every_schema_in_the_source_is_on_the_page():
    named = set()
    for file in Path(paceline.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= {node.value} if re.fullmatch(r"paceline\.[a-z_.]+/\d+", node.value) else set()
    assert named == {schema.name for schema in SCHEMAS} | set(BEFORE)


def test_the_keys_of_this_machine_are_on_the_page():
    from paceline.cli.env import env_document
    from paceline.probes.torch_version import read_torch

    found = {path for path in paths_of(msgspec.to_builtins(env_document(read_torch(None)))) if path != "schema"}
    told = [key.path for schema in SCHEMAS if schema.name == "paceline.env/2" for key in keys_of(schema)]
    assert [path for path in sorted(found) if not any(pattern(one).fullmatch(path) for one in told)] == []


if __name__ == "__main__":
    for name in DOCUMENTS:
        (DATA / f"{name}.json").write_text(golden(name), encoding="utf-8")
