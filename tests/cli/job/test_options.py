"""The grammar of `paceline run` against torchrun's own parser."""

import argparse
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys

import pytest

from paceline.cli.job.option_tables import comma_separated
from paceline.cli.job.options import OURS, TORCHRUN, RunParser, parse_run, torchrun_command
from paceline.errors import UsageError

torchrun = pytest.importorskip("torch.distributed.run")

VARIABLES = {
    "PET_NNODES": "1:4",
    "PET_NPROC_PER_NODE": "auto",
    "PET_NODE_RANK": "3",
    "PET_MASTER_PORT": "29777",
    "PET_MAX_RESTARTS": "5",
    "PET_MONITOR_INTERVAL": "0.5",
    "PET_STANDALONE": "1",
    "PET_MODULE": "0",
    "PET_RUN_PATH": "2",
    "PET_REDIRECTS": "3",
    "PET_DUPLICATE_STDOUT_FILTERS": "a,,b,c",
    "PET_LOGS_SPECS": "ignored",
    "PET_NUMA_BINDING": "ignored",
    "PET_TRAINING_SCRIPT": "ignored",
    "PET_START_METHOD": "fork",
    "PET_VIRTUAL_LOCAL_RANK": "1",
}

COMMAND_LINES = [
    "train.py",
    "train.py --nnodes 9 -m --lr 0.1 -- x",
    "--nnodes 2 --nproc_per_node 8 train.py",
    "--nnodes=1:4 --nproc-per-node=gpu train.py --epochs 3",
    "--standalone --nproc-per-node=auto -m package.train --x=1",
    "--no-python ./go.sh a 'b c'",
    "--no_python bash -c 'echo $RANK'",
    "--run-path /abs/train.py",
    "--run_path --no-python /abs/train.py",
    "-r 3 -t 0:1,1:2 train.py",
    "-r3 -t1 train.py",
    "-mr3 package.train",
    "--redirects=1 --tee=2 --log_dir logs --local_ranks_filter=0,1 train.py",
    "--duplicate-stdout-filters 'a,,b,c' --duplicate_stderr_filters x train.py",
    "--rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id job7 --rdzv-conf join_timeout=10,is_host=1 train.py",
    "--rdzv_backend=etcd --rdzv_endpoint='[::1]:80' --rdzv_id= --rdzv_conf '' train.py",
    "--max-restarts 3 --monitor_interval 5 --start-method fork --role trainer train.py",
    "--node_rank=1 --master_addr 10.0.0.1 --master-port 1234 --local_addr 10.0.0.2 train.py",
    "--logs-specs x --numa_binding exclusive --event_log_handler console train.py",
    "--signals-to-handle SIGTERM,SIGUSR1 --shutdown-timeout 5 --virtual-local-rank train.py",
    "--nnodes 2 --nnodes 3 train.py",
    "--nnodes -1 train.py",
    "-- train.py --nnodes 2",
    "train.py -- --nnodes 2",
    "-h",
    # refused by both
    "",
    "--nnodes",
    "--nnodes 2",
    "--max-restarts many train.py",
    "--monitor-interval x train.py",
    "--start-method thread train.py",
    "--numa-binding core train.py",
    "--no-such-option train.py",
    "--standalone=1 train.py",
    "-x train.py",
    "--rdzv train.py",
    "--master-port train.py",
]


def mine(argv: list[str], environ: dict[str, str] | None = None) -> dict | str:
    return _outcome(lambda: parse_run(argv, environ or {}))


def theirs(argv: list[str]) -> dict | str:
    return _outcome(lambda: torchrun.get_args_parser().parse_args(argv))


def _outcome(parse) -> dict | str:
    """The values of torchrun's options; "help" or "refused" where there are none."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = vars(parse())
    except SystemExit as stop:
        return "help" if stop.code == 0 else "refused"
    except UsageError:
        return "refused"
    return {name: value for name, value in found.items() if name not in {option.dest for option in OURS}}


def actions(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {action.dest: action for action in parser._actions}


@pytest.fixture
def parser() -> RunParser:
    return RunParser({})


def test_the_table_has_every_option_of_torchrun_and_no_other(parser):
    expected = actions(torchrun.get_args_parser())
    assert [option.dest for option in TORCHRUN] == [
        dest for dest in expected if dest not in ("help", "training_script", "training_script_args")
    ]
    assert len(TORCHRUN) == 30
    assert set(actions(parser)) == {*expected, *(option.dest for option in OURS)}


@pytest.mark.parametrize("dest", actions(torchrun.get_args_parser()))
def test_each_option_is_spelled_and_typed_as_in_torchrun(parser, dest):
    ours, expected = actions(parser)[dest], actions(torchrun.get_args_parser())[dest]
    assert ours.option_strings == expected.option_strings
    assert ours.default == expected.default
    assert ours.nargs == expected.nargs
    assert ours.const == expected.const
    assert ours.required == expected.required
    assert list(ours.choices or ()) == list(expected.choices or ())
    for text in ("7", "7.5", "a,,b,c", "", "x y"):
        # Of a time, durations are taken besides torchrun's numbers.
        if ours.metavar != "DURATION" or _converted(expected.type, text) is not ValueError:
            assert _converted(ours.type, text) == _converted(expected.type, text)


def _converted(kind, text: str):
    try:
        return (kind or str)(text)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_line_means_what_torchrun_makes_of_it(line):
    argv = shlex.split(line)
    assert mine(argv) == theirs(argv)


def test_every_prefix_of_every_option_means_what_torchrun_makes_of_it():
    """But for those that torchrun takes for two options because one option has two spellings: there they mean that one."""
    words_of = [
        [spelling[:length], *([] if option.is_flag else ["7"]), "train.py"]
        for option in TORCHRUN
        for spelling in option.spellings
        for length in range(3, len(spelling))
    ]
    differing = [argv for argv in words_of if mine(argv) != theirs(argv)]
    assert len(words_of) > 500
    assert all(theirs(argv) == "refused" and mine(argv) != "refused" for argv in differing)
    dests = {spelling: option.dest for option in TORCHRUN for spelling in option.spellings}
    meant = [{dest for spelling, dest in dests.items() if spelling.startswith(argv[0])} for argv in differing]
    assert all(len(one) == 1 for one in meant)


def test_pet_variables_are_read_as_torchrun_reads_them(monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for argv in (["train.py"], ["--nnodes", "2", "--max-restarts=1", "train.py"], ["--start-method", "spawn", "x.py"]):
        assert mine(argv, dict(os.environ)) == theirs(argv)


def test_our_own_options_are_long_and_never_abbreviated():
    assert all(spelling.startswith("--") for option in OURS for spelling in option.spellings)
    with pytest.raises(UsageError) as refused:
        parse_run(["--hyper", "x.json", "train.py"], {})
    assert refused.value.code == "U01"
    assert parse_run(["--max-r", "3", "train.py"], {}).max_restarts == 3


def test_a_misspelled_option_gets_the_nearest_spelling_and_the_whole_command_again():
    with pytest.raises(UsageError) as refused:
        parse_run(["--nproc-per-nod=2", "--max-rnu", "60", "train.py", "--lr", "1"], {})
    assert refused.value.code == "U01"
    with pytest.raises(UsageError) as refused:
        parse_run(["--max-rnu", "60", "train.py", "--lr", "1"], {})
    assert "--max-rnu" in refused.value.what
    assert refused.value.next == "paceline run --max-run 60 train.py --lr 1"
    with pytest.raises(UsageError) as refused:
        parse_run(["--nnodez", "60"], {})
    assert refused.value.code == "U01"


def test_a_missing_script_and_a_refused_value_name_themselves():
    for argv, code, name in (
        (["--nnodes", "2"], "U02", "script"),
        (["--max-restarts", "x", "t.py"], "U03", "--max-restarts"),
        (["-t"], "U03", "--tee"),
    ):
        with pytest.raises(UsageError) as refused:
            parse_run(argv, {})
        assert (refused.value.code, name in refused.value.what) == (code, True)
    with pytest.raises(UsageError) as refused:
        parse_run(["t.py"], {"PET_STANDALONE": "true"})
    assert refused.value.code == "U03"


def test_the_torchrun_command_reads_back_to_the_same_values():
    for line in COMMAND_LINES:
        argv = shlex.split(line)
        if isinstance(mine(argv), dict):
            said = shlex.split(torchrun_command(parse_run(["--hp", "a=1", "--max-run=12h", *argv], {})))
            assert said[0] == "torchrun"
            assert theirs(said[1:]) == theirs(argv), line


def test_doubled_commas_are_one_comma():
    assert comma_separated("a,,b,c") == ["a,b", "c"]


@pytest.mark.process
def test_parsing_and_describing_a_job_load_no_torch(tmp_path):
    (tmp_path / "t.py").touch()
    code = (
        "import json, sys\n"
        "from paceline.cli.job.options import parse_run\n"
        "from paceline.cli.job.job import job_file_of\n"
        "job_file_of(parse_run(['t.py'], {}))\n"
        "print(json.dumps([name for name in ('torch', 'pynvml', 'numpy') if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert json.loads(done.stdout) == []
