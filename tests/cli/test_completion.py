"""`paceline help --completion`: what the scripts offer, asked of the shells themselves where they are installed."""

import json
import shlex
import shutil
import subprocess

import pytest

from paceline import cli
from paceline.cli.completion.script import script
from paceline.cli.completion.words import Completions, Kind, completions

SHELLS = ("bash", "zsh", "fish")
needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
needs_fish = pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")

# As bash hands the words over: --option=value and host:port in three.
ASK_BASH = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_paceline
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(script(shell))
    return folder


@pytest.fixture
def offered(scripts, tmp_path, user_environment):
    """What bash offers for the last of the words."""
    (tmp_path / "train.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / ".paceline/runs/r-7f3a91").mkdir(parents=True)

    def ask(*words: str) -> list[str]:
        argv = ["bash", "--norc", "-c", ASK_BASH, "bash", str(scripts / "bash"), "paceline", *words]
        done = subprocess.run(argv, cwd=tmp_path, env=user_environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return ask


def test_a_metavar_says_what_can_be_completed():
    assert completions("FILE|latest", {}) == Completions(words=("latest",), kind=Kind.FILE)
    assert completions("N|gpu|cpu|auto", {}) == Completions(words=("gpu", "cpu", "auto"))
    assert completions("CODE", {"CODE": ["U01"]}) == Completions(words=("U01",))
    assert completions("RUN", {}).kind is Kind.RUN and completions("DIR", {}).kind is Kind.DIRECTORY
    assert completions("N,...", {}) == completions("", {}) == Completions()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_every_verb_and_every_option(shell, scripts):
    text = (scripts / shell).read_text()
    for verb in cli.all_verbs():
        assert verb in text
        for row in cli.verb_module(verb).VERB.rows:
            if not row.hidden and not row.is_positional:
                assert (f"-l {row.name} " if shell == "fish" else f"--{row.name}") in text


@pytest.mark.parametrize("shell", SHELLS)
def test_the_quotes_of_a_script_are_closed(shell, scripts):
    for line in (scripts / shell).read_text().splitlines():
        if shell != "fish" and not line.lstrip().startswith("#"):
            shlex.split(line.rstrip("\\"))


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_as_text_or_json(shell, capsys):
    assert cli.main(["help", "--completion", shell]) == 0
    text = capsys.readouterr().out
    assert cli.main(["help", "--completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": "paceline.completion/1", "shell": shell, "script": text}


def test_another_shell_is_refused(capsys):
    assert cli.main(["help", "--completion", "tcsh"]) == 2
    assert "error[U03]" in capsys.readouterr().err
    assert cli.main(["help", "--completion"]) == 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["co"], ["compare"]),
        (["--c"], ["--color"]),
        (["--color", "al"], ["always"]),
        (["--color", "always", "lo"], ["logs"]),
        (["run", "--on-hang", ""], ["report", "stop", "restart", "resume"]),
        (["run", "--on-hang", "=", "re"], ["report", "restart", "resume"]),
        (["run", "--on-hang", "="], ["report", "stop", "restart", "resume"]),
        (["run", "--nno"], ["--nnodes"]),
        (["run", "--nnodes", "2", "--stand"], ["--standalone"]),
        (["run", "--nnodes", "=", "2", "--stand"], ["--standalone"]),
        (["run", "--rdzv-endpoint", "a", ":", "1", "--stand"], ["--standalone"]),
        (["run", "--nproc_per_node", ""], ["gpu", "cpu", "auto"]),
        (["run", "--run-dir", "d"], ["data"]),
        (["run", "-m", "tr"], ["train.py"]),
        (["run", "tr"], ["train.py"]),
        (["run", "train.py", "--nno"], []),
        (["run", "train.py", "da"], ["data"]),
        (["run", "--", "--nno"], []),
        (["submit", "--engine", "sl"], ["slurm"]),
        (["submit", "--max-res"], ["--max-restarts"]),
        (["submit", "--node-r"], []),
        (["plan", "--rehearsal", "la"], ["latest"]),
        (["plan", "--rehearsal", "tr"], ["train.py"]),
        (["bench", "all_r"], ["all_reduce"]),
        (["bench", "all_reduce", "-o", "av"], ["avg"]),
        (["bench", "all_reduce", "--warm"], ["--warmup-iters"]),
        (["bench", "step", "tr"], ["train.py"]),
        (["bench", "step", "train.py", "--warm"], []),
        (["logs", ""], ["r-7f3a91"]),
        (["logs", "--ra"], ["--rank", "--raw"]),
        (["plan", "--against", "r"], ["r-7f3a91"]),
        (["help", "U0"], [f"U0{digit}" for digit in (*range(1, 8), 9)]),
        (["plan", "--instances", "p4d."], ["p4d.24xlarge"]),
        (["help", "--completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_bash_offers_what_can_stand_there(offered, words, expected):
    assert offered(*words) == expected


@pytest.mark.process
@needs_zsh
def test_zsh_reads_the_script_by_its_syntax_alone(scripts):
    subprocess.run(["zsh", "-n", str(scripts / "zsh")], check=True)


@pytest.mark.process
@needs_fish
def test_fish_offers_what_can_stand_there(scripts, user_environment):
    for line, expected in (
        ("paceline compa", ["compare"]),
        ("paceline run --on-hang ", ["report", "restart", "resume", "stop"]),
        ("paceline --color always help --completion ", ["bash", "fish", "zsh"]),
        ("paceline logs --ra", ["--rank", "--raw"]),
        ("paceline run --nnodes 2 --stand", ["--standalone"]),
        ("paceline run --tee=1 --stand", ["--standalone"]),
        ("paceline run train.py --stand", []),
        ("paceline bench all_reduce --warm", ["--warmup-iters"]),
        ("paceline bench step train.py --warm", []),
    ):
        asked = f"source {shlex.quote(str(scripts / 'fish'))}; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "-N", "-c", asked], env=user_environment, capture_output=True, text=True, check=True
        )
        assert [found.split("\t")[0] for found in done.stdout.splitlines()] == expected
