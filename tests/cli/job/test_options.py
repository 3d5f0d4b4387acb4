"""The grammar of `paceline run` against that of the newest torchrun, which is kept as it was read from torch's own parser."""

import argparse
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from torchrun_grammar import PAGE, at, grammar, numbers, options_of, page, parser_of, rendezvous_keys_of

from paceline.cli.job.option_tables import CompletionAsked, comma_separated
from paceline.cli.job.options import KEYS, OURS, TORCHRUN, RunParser, parse_run, torchrun_command
from paceline.cli.run import verb
from paceline.cli.values import RENDEZVOUS_KEYS, rendezvous_conf, unknown_rendezvous_keys
from paceline.errors import UsageError

GRAMMAR = grammar()
NEWEST = at(GRAMMAR["options"], GRAMMAR["releases"][-1])

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
    "--log-line-prefix-template '[${hostname}] ' -t 3 train.py",
    "--logs_specs=default --log_line_prefix_template= train.py",
    "--print-completion zsh",
    "--print-comp bash train.py",
    "-h",
    # refused by both
    "",
    "--nnodes",
    "--nnodes 2",
    "--max-restarts many train.py",
    "--monitor-interval x train.py",
    "--start-method thread train.py",
    "--numa-binding core train.py",
    "--print-completion ksh train.py",
    "--no-such-option train.py",
    "--standalone=1 train.py",
    "-x train.py",
    "--rdzv train.py",
    "--master-port train.py",
]


def mine(argv: list[str], environ: dict[str, str] | None = None) -> dict | str:
    return _outcome(lambda: parse_run(argv, environ or {}))


def theirs(argv: list[str]) -> dict | str:
    return _outcome(lambda: parser_of(NEWEST).parse_args(argv))


def _outcome(parse) -> dict | str:
    """The values of torchrun's options; "help" or "refused" where there are none."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            found = vars(parse())
    except SystemExit as stop:
        return "help" if stop.code == 0 else "refused"
    except CompletionAsked:
        return "help"
    except UsageError:
        return "refused"
    return {name: value for name, value in found.items() if name not in {row.dest for row in (*OURS, *KEYS)}}


def actions(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {action.dest: action for action in parser._actions}


@pytest.fixture
def parser() -> RunParser:
    return RunParser({})


def test_the_installed_torchrun_has_the_grammar_that_was_kept_of_its_release():
    torch = pytest.importorskip("torch")
    if numbers(torch.__version__) > numbers(GRAMMAR["releases"][-1]):
        pytest.skip(f"torch {torch.__version__} is newer than what tests/torches/torchrun_grammar.py has read")
    packages = Path(torch.__file__).parent.parent
    for found, kept in (
        (options_of(packages), GRAMMAR["options"]),
        (rendezvous_keys_of(packages), GRAMMAR["rendezvous_keys"]),
    ):
        assert sorted(found, key=str) == sorted(at(kept, torch.__version__), key=str)


def test_the_installed_torchrun_parses_as_its_kept_grammar_says(monkeypatch):
    torch, torchrun = pytest.importorskip("torch"), pytest.importorskip("torch.distributed.run")
    kept = actions(parser_of(at(GRAMMAR["options"], torch.__version__)))
    found = actions(torchrun.get_args_parser())
    assert kept.keys() == found.keys() or numbers(torch.__version__) > numbers(GRAMMAR["releases"][-1])
    for dest in kept:
        for name in ("option_strings", "default", "nargs", "required"):
            assert getattr(kept[dest], name) == getattr(found[dest], name), (dest, name)
        for text in ("7", "7.5", "a,,b,c", "", "x y"):
            assert _converted(kept[dest].type, text) == _converted(found[dest].type, text)


def test_the_table_has_every_option_of_the_newest_torchrun_and_no_other(parser):
    assert [option.dest for option in TORCHRUN] == [row["dest"] for row in NEWEST]
    assert [option.variable for option in TORCHRUN] == [row["variable"] for row in NEWEST]
    assert set(actions(parser)) == {*actions(parser_of(NEWEST)), *(option.dest for option in OURS)}


@pytest.mark.parametrize("release", GRAMMAR["releases"])
def test_what_any_torchrun_takes_is_taken(release):
    """Every option of every release, in both spellings, and by its variable."""
    for row in at(GRAMMAR["options"], release):
        value = [] if row["is_flag"] else [(row["choices"] or ["7"])[0]]
        for spelling in row["spellings"]:
            taken = mine([spelling, *value, "train.py"])
            assert taken == "help" if row["exits"] else taken[row["dest"]] not in (None, False, "refused"), spelling
        if row["variable"]:
            by_variable = mine(["train.py"], {row["variable"]: (row["choices"] or ["7"])[-1]})
            assert by_variable[row["dest"]] != row["default"], row["variable"]


@pytest.mark.parametrize("key", sorted({row["key"] for row in GRAMMAR["rendezvous_keys"]}))
def test_a_key_that_any_rendezvous_of_torch_reads_is_taken(key):
    assert rendezvous_conf(f"{key}=7") == {key: "7"} and not unknown_rendezvous_keys(f"{key}=7")


def test_no_key_of_a_rendezvous_is_known_that_torch_never_read():
    assert {row["key"] for row in GRAMMAR["rendezvous_keys"]} == set(RENDEZVOUS_KEYS)


@pytest.mark.parametrize("key", RENDEZVOUS_KEYS)
def test_a_misspelled_key_is_refused_with_the_one_that_was_meant(key):
    for wrong in (key + "s", key[:-1] + key[-1] * 2, key.replace("_", "", 1)):
        if len(key) > 5 and wrong not in RENDEZVOUS_KEYS:
            with pytest.raises(UsageError) as refused:
                rendezvous_conf(f"{wrong}=7")
            assert refused.value.code == "U03" and key in refused.value.saw


def test_a_key_that_is_like_none_is_named_and_left_to_whoever_reads_it():
    assert unknown_rendezvous_keys("join_timeout=5,wandb_project=x,ttl=9") == ["wandb_project", "ttl"]
    assert rendezvous_conf("ttl=9") == {"ttl": "9"}


def test_the_page_of_torchruns_options_is_what_its_program_writes():
    assert PAGE.read_text() == page(GRAMMAR)


def test_completion_is_printed_as_torchrun_prints_it_and_tcsh_has_none(capsys):
    with pytest.raises(SystemExit) as ended:
        verb.parse(["--print-completion", "bash"])
    assert ended.value.code == 0 and "complete -F" in capsys.readouterr().out
    with pytest.raises(UsageError) as refused:
        parse_run(["--print_completion=tcsh", "train.py"], {})
    assert (refused.value.code, "tcsh" in refused.value.what) == ("U03", True)


@pytest.mark.parametrize("dest", actions(parser_of(NEWEST)))
def test_each_option_is_spelled_and_typed_as_in_torchrun(parser, dest):
    ours, expected = actions(parser)[dest], actions(parser_of(NEWEST))[dest]
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


def test_a_misspelled_option_gets_the_nearest_spelling():
    with pytest.raises(UsageError) as refused:
        parse_run(["--nproc-per-nod=2", "--max-rnu", "60", "train.py", "--lr", "1"], {})
    assert refused.value.code == "U01"
    with pytest.raises(UsageError) as refused:
        parse_run(["--max-rnu", "60", "train.py", "--lr", "1"], {})
    assert "--max-rnu" in refused.value.what
    assert refused.value.next == "--max-run instead of --max-rnu"
    with pytest.raises(UsageError) as refused:
        parse_run(["--nnodez", "60"], {})
    assert refused.value.code == "U01"


def test_a_missing_script_and_a_refused_value_name_themselves():
    for argv, code, name in (
        (["--nnodes", "2"], "U02", "script"),
        (["--max-restarts", "x", "t.py"], "U03", "--max-restarts"),
        (["-t"], "U03", "-t"),
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
