"""`paceline run --job FILE`: what the file says, what a host may say beside it, and what is refused."""

import json
import math
import shlex

import pytest

from paceline.cli.job.job import job_file_of
from paceline.cli.job.options import parse_run
from paceline.cli.programs.job_file_page import job_file_page
from paceline.errors import UsageError
from paceline.facts import Channel, Console, Contract, Job, Program, ProgramKind
from paceline.job_file import HostSetup, JobFile, job_document, job_text, read_job_file
from paceline.job_file import job_file_of as read
from paceline.launch.prepare import on_this_host

SCRIPT = Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--lr", "0.1", "\udcff"))
WIDE = JobFile(
    job=Job(
        name="wide",
        program=SCRIPT,
        min_hosts=2,
        max_hosts=4,
        agents_port=29500,
        signals=("SIGTERM",),
        contract=Contract(
            hyperparameters={"lr": 0.1, "big": 10**30, "rate": math.inf, "none": None, "list": [1, "a"]},
            channels=(Channel(name="train", source="s3://b/p", extra={"a": {"b": [1]}}),),
        ),
        console=Console(redirects={-1: 3, 0: 1}, local_ranks_filter=frozenset({0, 2})),
    ),
    ranks_per_host="gpu",
    run_id="r-7f3a91",
    run_dir_mode=0o750,
    command=("paceline", "submit", "train.py"),
    setup=HostSetup(leash=7, addresses={"algo-1": "127.0.0.2"}, relays=((8, 1), (9, 2)), events=({"event": "x"},)),
)


def file_of(line):
    return job_file_of(parse_run(shlex.split(line), {}), is_local=lambda name: True)


def refusal(line):
    with pytest.raises(UsageError) as refused:
        file_of(line)
    error = refused.value
    assert all((error.code, error.what, error.saw, error.next, error.more)), vars(error)
    return error


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hi')\n")
    (tmp_path / "job.json").write_text(job_text(WIDE))
    return tmp_path


def test_a_job_file_is_read_back_as_it_was_written(project):
    assert read_job_file(str(project / "job.json")) == WIDE
    assert read(job_document(WIDE), "") == WIDE


def test_what_is_as_its_default_is_left_out():
    plain = JobFile(job=Job(name="train", program=Program(kind=ProgramKind.SCRIPT, target="train.py")))
    program = {"kind": "script", "target": "train.py"}
    assert job_document(plain) == {"schema": "paceline.job/1", "job": {"name": "train", "program": program}}


@pytest.mark.parametrize(
    "line",
    [
        "train.py --epochs 3",
        "--nnodes 2 --node-rank 1 --master-addr algo-1 --rdzv-conf join_timeout=60 --max-restarts 3 train.py",
        "--nproc-per-node gpu --hp lr=0.1 --hp sizes=[1,2] --set profile=v3 --max-run 2h --stop-grace 90s --tee 3 -m train",
        "--redirects 0:1,1:2 --local-ranks-filter 0,1 --gradients ring+bf16 --on-hang stop --set run_dir_mode=0700 train.py",
    ],
)
def test_every_command_line_is_a_job_file(line):
    file = file_of(line)
    assert read(json.loads(job_text(file)), "") == file


def test_a_host_says_where_it_stands_and_the_rest_is_the_files():
    file = file_of(
        "--job job.json --node-rank 3 --master-addr node1 --master-port 20001 --set run_id=r-2 --set token_file=t --json"
    )
    job = file.job
    assert (job.node_rank, job.is_first, job.master_addr, job.agents_port) == (3, False, "node1", 20001)
    assert (job.min_hosts, job.max_hosts, job.name, job.contract) == (2, 4, "wide", WIDE.job.contract)
    assert (file.run_id, file.token_file, file.json, file.ranks_per_host) == ("r-2", "t", True, "gpu")
    assert file_of("--job=job.json") == WIDE


def test_how_long_hosts_may_take_is_the_files_unless_the_host_says_otherwise(project):
    WIDE_TEXT = job_text(file_of("--nnodes 2 --rdzv-conf join_timeout=60 train.py"))
    (project / "job.json").write_text(WIDE_TEXT)
    assert file_of("--job job.json --node-rank 1 --master-addr a").job.join_timeout_seconds == 60
    assert file_of("--job job.json --node-rank 1 --rdzv-conf join_timeout=5").job.join_timeout_seconds == 5


def test_the_tree_of_a_container_is_the_hosts_to_name():
    assert file_of("--job job.json --set opt_ml=true").job.contract.opt_ml
    assert file_of("--job job.json --local-hosts 2 --set opt_ml=true").job.contract.shown_at_opt_ml
    assert file_of("--job job.json --set base_dir=/b").job.contract.base_dir == "/b"
    assert refusal("--job job.json --set base_dir=/b --set opt_ml=true").code == "U03"


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--job job.json --max-run 1h", "U05", "--max-run says it otherwise"),
        ("--job job.json --hp a=1", "U05", "--hp says it otherwise"),
        ("--job job.json train.py", "U05", "a script names another one"),
        ("--job job.json --node-rnak 1", "U01", "unknown option --node-rnak"),
        ("--job missing.json", "U27", "missing.json is not a job file"),
        ("--job train.py", "U27", "train.py is not a job file"),
        ("--job job.json --node-rank 4 --master-addr a", "U05", "--node-rank 4 is not a host"),
    ],
)
def test_what_contradicts_the_file_is_refused(line, code, says):
    error = refusal(line)
    assert error.code == code and says in error.what


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        ({"schema": "paceline.job/2"}, "paceline.job/2"),
        ({"job": None}, "Expected `object`"),
        ({"jbo": {}}, "no field 'jbo'"),
        ({"job": {"name": "a", "program": {"kind": "script", "target": "t"}, "max_run": 1}}, "no field 'job.max_run'"),
        ({"job": {"name": "a", "program": {"kind": "scrpt", "target": "t"}}}, "scrpt"),
        ({"job": {"name": "a"}}, "program"),
        ({"ranks_per_host": 2}, "ranks_per_host"),
    ],
)
def test_a_file_that_is_no_job_says_what_is_wrong_with_it(project, change, saw):
    (project / "job.json").write_text(json.dumps({**job_document(WIDE), **change}))
    error = refusal("--job job.json")
    assert error.code == "U27" and saw in error.saw


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100000, "null"])
def test_what_is_no_json_object_is_refused(project, text):
    (project / "job.json").write_text(text)
    assert refusal("--job job.json").code == "U27"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_hosts": 0}, "min_hosts 1"),
        ({"node_rank": 7}, "node_rank 7"),
        ({"agents_port": 70000}, "port 70000"),
        ({"max_run_seconds": -1.0}, "max_run_seconds -1.0"),
        ({"on_hang": "explode"}, "on_hang 'explode'"),
        ({"on_hang": "resume"}, "on_hang without resume: 'resume'"),
        ({"tf_config": "x"}, "tf_config 'x'"),
        ({"stop_grace_seconds": -1.0}, "stop_grace_seconds -1.0"),
        ({"max_hosts": 2}, "agents_port None"),
    ],
)
def test_a_value_that_no_job_has_is_refused_before_anything_starts(fields, says):
    document = job_document(JobFile(job=Job(name="train", program=SCRIPT)))
    document["job"] |= fields
    with pytest.raises(UsageError) as refused:
        on_this_host(read(document, "job.json"), {}, None)
    assert refused.value.code == "U27" and says in refused.value.what


@pytest.mark.parametrize("fields", [{"run_id": "../x"}, {"run_id": ""}, {"run_dir_mode": 0o777}, {"run_dir_mode": 0}])
def test_a_recording_that_could_lie_elsewhere_or_be_anybodys_is_refused(fields):
    file = JobFile(job=Job(name="train", program=SCRIPT), **fields)
    with pytest.raises(UsageError) as refused:
        on_this_host(file, {}, None)
    assert refused.value.code == "U27"


@pytest.mark.parametrize("text", ["many", "0", "4097", "9" * 5000])
def test_a_number_of_ranks_that_no_host_has_is_refused_as_on_the_command_line(text):
    with pytest.raises(UsageError) as refused:
        on_this_host(JobFile(job=Job(name="train", program=SCRIPT), ranks_per_host=text), {}, None)
    assert refused.value.code == "U03" and text in refused.value.what


def test_an_unknown_strategy_of_a_file_is_refused_as_on_the_command_line():
    file = JobFile(job=Job(name="train", program=SCRIPT, gradients="rnig"))
    with pytest.raises(UsageError) as refused:
        on_this_host(file, {}, None)
    assert refused.value.code == "U03"


def test_the_page_of_the_job_file_is_made_from_the_classes(repository):
    assert (repository / "docs/job_file.md").read_text() == job_file_page(), "run `make docs`"


def test_hosts_of_this_machine_have_an_opt_ml_of_their_own():
    contract = file_of("--local-hosts 2 --set opt_ml=true train.py").job.contract
    assert contract.shown_at_opt_ml and not contract.opt_ml
    contract = file_of("--set opt_ml=true train.py").job.contract
    assert contract.opt_ml and not contract.shown_at_opt_ml


def test_a_plan_is_part_of_the_file(project):
    plan = {"schema": "paceline.plan/2", "rows": []}
    (project / "plan.json").write_text(json.dumps(plan))
    assert file_of("--set plan=plan.json train.py").plan == plan
    assert file_of("--job job.json --set plan=plan.json").plan == plan
    assert file_of("train.py").plan is None


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"schema": "paceline.why/1"}', "[" * 100_000])
def test_a_plan_that_is_none_is_refused(project, text):
    if text is not None:
        (project / "plan.json").write_text(text)
    assert refusal("--set plan=plan.json train.py").code == "U03"
