"""What a command line of `paceline run` means as a Job, and what is refused before anything starts."""

import json
import os
import shlex

import pytest

from paceline.cli import values
from paceline.cli.job.job import job_file_of
from paceline.cli.job.options import parse_run
from paceline.cli.run.verb import as_it_ended
from paceline.errors import UsageError
from paceline.facts import Evidence, Job, ProgramKind, Run, SecondaryStatus, Status
from paceline.launch.job.outcome import Outcome
from paceline.launch.prepare import on_this_host


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hi')\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    script = tmp_path / "go.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return tmp_path


def job(
    line: str,
    environ: dict[str, str] | None = None,
    gpu_count: int | None = None,
    local: tuple[str, ...] = ("localhost", "127.0.0.1"),
) -> Job:
    environ = {"PATH": os.defpath, **(environ or {})}
    file = job_file_of(parse_run(shlex.split(line), environ), is_local=lambda name: name in local)
    return on_this_host(file, environ, gpu_count, gpu_reason="NVML: not found")


def refusal(line: str, **more) -> UsageError:
    with pytest.raises(UsageError) as refused:
        job(line, **more)
    error = refused.value
    assert all((error.code, error.what, error.next, error.more)), vars(error)
    return error


def test_the_defaults_are_one_rank_on_one_host_without_any_port():
    found = job("train.py --epochs 3")
    assert (found.min_hosts, found.max_hosts, found.ranks_per_host) == (1, 1, 1)
    assert (found.agents_port, found.store_port, found.node_rank, found.is_first) == (None, None, 0, True)
    assert (found.program.kind, found.program.target, found.program.arguments) == (
        ProgramKind.SCRIPT,
        "train.py",
        ("--epochs", "3"),
    )
    assert (found.name, found.shutdown_timeout_seconds, found.stop_grace_seconds, found.max_run_seconds) == (
        "train",
        30.0,
        120.0,
        None,
    )
    assert found.signals == ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


@pytest.mark.parametrize(
    ("line", "address", "agents_port", "store_port", "node_rank", "is_first"),
    [
        ("--standalone train.py", "127.0.0.1", None, None, 0, True),
        ("--standalone --rdzv-backend etcd --nnodes 1:4 train.py", "127.0.0.1", None, None, 0, True),
        ("--master-port 29511 train.py", "127.0.0.1", None, 29511, 0, True),
        ("--rdzv-backend c10d --rdzv-endpoint localhost:0 train.py", "localhost", None, None, 0, True),
        ("--nnodes 2 --node-rank 1 --master-addr algo-1 train.py", "algo-1", 29500, None, 1, False),
        (
            "--nnodes 2 --master-addr [::1] --master-port 4000 --set store_port=4001 train.py",
            "::1",
            4000,
            4001,
            0,
            True,
        ),
        ("--nnodes 2 --node-rank 1 --rdzv-endpoint algo-1:4000 train.py", "algo-1", 4000, None, 1, False),
        ("--nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint algo-1 train.py", "algo-1", 29400, None, None, False),
        ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:81 train.py", "localhost", 81, None, None, True),
        (
            "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint algo-1:81 --rdzv-conf is_host=true train.py",
            "algo-1",
            81,
            None,
            None,
            True,
        ),
        ("--nnodes 2 --rdzv-backend c10d train.py", "localhost", 29400, None, None, True),
        ("--local-hosts 3 train.py", "127.0.0.1", 0, None, 0, True),
        ("--local-hosts 2 --nnodes 1:2 --master-port 4000 train.py", "127.0.0.1", 4000, None, 0, True),
    ],
)
def test_hosts_meet_where_torchrun_would_let_them_meet(line, address, agents_port, store_port, node_rank, is_first):
    found = job(line)
    assert (found.master_addr, found.agents_port, found.store_port, found.node_rank, found.is_first) == (
        address,
        agents_port,
        store_port,
        node_rank,
        is_first,
    )


def test_a_strategy_is_taken_as_named_and_a_lossy_one_too():
    found = job("--gradients direct+bf16 train.py")
    assert (found.gradients, found.allow_lossy) == ("direct+bf16", False)
    auto = job("--gradients auto --set allow_lossy=true train.py")
    assert (auto.gradients, auto.allow_lossy) == ("auto", True)
    assert job("train.py").gradients is None


@pytest.mark.parametrize(
    ("line", "code", "word"),
    [
        ("--gradients dirct train.py", "U03", "direct"),
        ("--gradients direct+ring train.py", "U03", "--gradients direct"),
        ("--gradients ring --tf-config multi_worker_mirrored train.py", "U05", "--tf-config multi_worker_mirrored ..."),
        ("--set allow_lossy=true train.py", "U05", "--gradients auto --set allow_lossy=true"),
        ("--gradients ring --set allow_lossy=true train.py", "U05", "leave --set allow_lossy out"),
    ],
)
def test_a_strategy_that_cannot_be_meant_is_refused_before_anything_starts(line, code, word):
    error = refusal(line)
    assert error.code == code and word in error.next


def test_a_strategy_that_is_only_compared_with_is_refused_and_says_where_it_is():
    error = refusal("--gradients parameter_server_central train.py")
    assert error.code == "U03" and "bench/exchange_network.py" in error.saw
    assert error.next == "--gradients parameter_server"


def test_waiting_times_come_from_rdzv_conf():
    assert job("train.py").join_timeout_seconds == 900
    assert job("--rdzv-conf timeout=7 train.py").join_timeout_seconds == 7
    arriving = job(
        "--nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint a:1 --rdzv-conf join_timeout=60,last_call_timeout=3 train.py"
    )
    assert (arriving.join_timeout_seconds, arriving.last_call_seconds, arriving.min_hosts, arriving.max_hosts) == (
        60,
        3,
        1,
        2,
    )


def test_ranks_per_host_counts_gpus_and_cpus():
    assert job("--nproc-per-node gpu train.py", gpu_count=8).ranks_per_host == 8
    assert job("--nproc-per-node auto train.py", gpu_count=8).ranks_per_host == 8
    cpus = len(os.sched_getaffinity(0))
    assert (
        job("--nproc-per-node auto train.py").ranks_per_host
        == job("--nproc-per-node cpu train.py").ranks_per_host
        == cpus
    )
    for count in (0, None):
        assert refusal("--nproc-per-node gpu train.py", gpu_count=count).code == "U11"
    assert refusal("--nproc-per-node gpu train.py").saw == "NVML: not found"
    assert refusal("--nproc-per-node xpu train.py").code == "U11"
    assert refusal("--numa-binding node train.py").code == "U11"
    assert job("--numa-binding node train.py", gpu_count=1).numa_binding == "node"


def test_each_kind_of_program_is_recognised(project):
    (project / "package" / "train.py").write_text("")
    assert job("-m package.train a").program.kind is ProgramKind.MODULE
    assert job("-m package.train a").name == "train"
    assert job("--no-python ./go.sh a").program.kind is ProgramKind.EXECUTABLE
    assert job("--no-python sh -c true").program.arguments == ("-c", "true")
    assert job("--run-path --no-python train.py").program.kind is ProgramKind.RUN_PATH
    assert job("./go.sh a").program.kind is ProgramKind.SCRIPT


@pytest.mark.parametrize(
    "line",
    [
        "trian.py",
        "package",
        "-m packaje.train",
        "-m train.py",
        "--no-python nosuchprogram",
        "--no-python ./train.py",
    ],
)
def test_a_program_that_is_not_there_is_refused(line):
    assert refusal(line).code == "U02"


def test_the_nearest_script_is_named():
    assert refusal("trian.py").next == "train.py instead of trian.py"


def test_a_program_of_this_directory_is_refused_with_the_way_to_name_it(project):
    (project / "train.py").chmod(0o755)
    assert refusal("--no-python train.py").next == "./train.py instead of train.py"


def test_a_path_that_cannot_be_looked_at_is_refused():
    assert refusal("x" * 300).code == "U02"
    assert refusal("--source-dir " + "x" * 300 + " train.py").code == "U02"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_script_is_refused(project):
    (project / "train.py").chmod(0)
    assert "denied" in refusal("train.py").saw


@pytest.mark.parametrize(
    "line",
    [
        "--nnodes x train.py",
        "--nnodes 1:2:3 train.py",
        "--nproc-per-node zero train.py",
        "--nproc-per-node 0 train.py",
        "--nproc-per-node 4097 train.py",
        f"--nproc-per-node {'9' * 5000} train.py",
        "-r 4 train.py",
        "-t 0:1,11:2 train.py",
        "--local-ranks-filter 0,a train.py",
        "--signals-to-handle SIGTERN train.py",
        "--signals-to-handle SIGKILL train.py",
        "--max-run soon train.py",
        "--max-run 0 train.py",
        "--stop-grace= train.py",
        "--rdzv-conf join_timeout train.py",
        "--rdzv-conf join_timout=3 train.py",
        "--rdzv-conf timeout=x train.py",
        "--nnodes 2 --rdzv-backend c10d --rdzv-conf is_host=maybe train.py",
        "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:b train.py",
        "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:0 train.py",
        "--master-port 70000 train.py",
        "--nnodes 2 --master-port 4000 --set store_port=4000 train.py",
        "--max-restarts -1 train.py",
        "--monitor-interval -1 train.py",
        "--shutdown-timeout -1 train.py",
        "-m --no-python package",
        "--set base_dir=x --set opt_ml=true train.py",
        "--local-hosts 0 train.py",
        "--node-rank -1 train.py",
    ],
)
def test_a_value_that_means_nothing_is_refused(line):
    assert refusal(line).code == "U03"


@pytest.mark.parametrize(
    "line",
    [
        "--nnodes 0 train.py",
        "--nnodes 3:2 train.py",
        "--nnodes 2 --node-rank 2 train.py",
        "--node-rank 1 train.py",
        "--standalone --nnodes 2 train.py",
        "--local-hosts 3 --nnodes 2 train.py",
        "--local-hosts 2 --node-rank 1 train.py",
        "--local-hosts 2 --rdzv-endpoint a:1 train.py",
    ],
)
def test_hosts_that_disagree_are_refused(line):
    assert refusal(line).code == "U05"


@pytest.mark.parametrize(
    "line",
    [
        "--logs-specs mine train.py --lr 'a b'",
        "--event-log-handler kafka train.py",
        "--rdzv-backend etcd-v2 --rdzv-endpoint a:1 train.py",
        "--rdzv-backend c10d --rdzv-conf store_type=file train.py",
    ],
)
def test_what_loads_torch_plug_ins_is_refused_with_the_torchrun_command(line):
    error = refusal(f"--hp a=1 {line}")
    assert error.code == "U32"
    options, script = error.next.split(" train.py")
    assert options.startswith("torchrun --") and "--hp" not in options
    assert script == line.split(" train.py")[1]


def test_hyperparameters_and_channels_are_checked_before_anything_starts(project):
    (project / "hp.json").write_text(json.dumps({"lr": 0.1, "batch": 32}))
    (project / "data").mkdir()
    (project / "data" / "a").touch()
    found = job(
        "--set hyperparameters=hp.json --hp lr=0.2 --hp name=it\\'s --set profile=v3 "
        "--channel train=data:ShardedByS3Key train.py"
    ).contract
    assert found.hyperparameters == {"lr": 0.2, "batch": 32, "name": "it's"}
    assert (found.profile, found.channels[0].name, found.channels[0].distribution) == ("v3", "train", "ShardedByS3Key")
    assert refusal("--hp lr train.py").code == "U07"
    assert refusal("--set hyperparameters=none.json train.py").code == "U07"
    assert refusal("--channel train train.py").code == "U06"
    assert refusal("--channel train=nowhere train.py").code == "U06"


def test_what_reaches_the_terminal_comes_from_torchrun_options():
    console = job(
        "-r 1 -t 0:3,1:0 --local-ranks-filter 0,2 --duplicate-stderr-filters 'a,,b' --log-dir logs train.py",
        {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${rank}]"},
    ).console
    assert (console.redirects, console.tee, console.local_ranks_filter) == ({-1: 1}, {0: 3, 1: 0}, {0, 2})
    assert (console.stdout_filters, console.stderr_filters, console.log_dir, console.line_prefix_template) == (
        (),
        ("a,b",),
        "logs",
        "[${rank}]",
    )


def test_the_shutdown_timeout_also_comes_from_torchs_variable():
    assert job("train.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}).shutdown_timeout_seconds == 7
    assert job("--shutdown-timeout 3 train.py", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}).shutdown_timeout_seconds == 3
    assert refusal("train.py", environ={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"}).code == "U03"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("30s", 30),
        ("90m", 5400),
        ("12h", 43200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("0.5", 0.5),
        (" 2H ", 7200),
    ],
)
def test_durations_are_seconds_or_carry_their_unit(text, seconds):
    assert values.duration_seconds("--max-run", text) == seconds


def test_streams_are_read_as_torch_reads_them():
    api = pytest.importorskip("torch.distributed.elastic.multiprocessing.api")
    for text in ("0", "1", "2", "3", "0:3,1:0,2:1", "4", "", "0:4", "10:1", "0:1,", "a"):
        try:
            expected = api.Std.from_str(text)
            expected = (
                {rank: int(bits) for rank, bits in expected.items()}
                if isinstance(expected, dict)
                else {-1: int(expected)}
            )
        except ValueError:
            with pytest.raises(UsageError):
                values.streams("--tee", text)
        else:
            assert (values.streams("--tee", text) or {-1: 0}) == expected


def test_rdzv_conf_and_endpoint_are_read_as_torch_reads_them():
    utils = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")
    for text in ("", " join_timeout = 3 , is_host=1", "store_type=a=b"):
        assert values.rendezvous_conf(text) == utils._parse_rendezvous_config(text)
    for text in ("a:1", "a", "[::1]:5", "[::1]", "10.0.0.1:29500"):
        assert values.endpoint(text, 29400) == utils.parse_rendezvous_endpoint(text, 29400)


def test_the_end_that_a_full_disk_kept_out_of_the_recording_is_told_all_the_same():
    run = Run(id="r-1", name="", directory="/small/r-1", command=(), started_ns=1, first_host="algo-1")
    outcome = Outcome(
        exit_code=202, status=Status.FAILED, secondary_status=SecondaryStatus.FAILED, reason="a confirmed hang"
    )
    ended = as_it_ended(Evidence(run=run, hosts=(), ranks=(), events=(), telemetry={}), outcome, 9)
    assert (ended.run.exit_code, ended.run.reason, ended.run.finished_ns) == (202, "a confirmed hang", 9)
    assert "df -h /small/r-1" in ended.not_judged[0]
    assert as_it_ended(ended, outcome, 10) == ended
