"""The kernel and its parts: what is there is found, and without any the kernel runs a job; a companion and the options of a part."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kernel_and_parts import KERNEL, OUTSIDE, PARTS

import paceline
from paceline.cli import VERBS, verb_module
from paceline.part import HostPart, Part, RunPart, parts

PACKAGE = Path(paceline.__file__).parent
COMPANION = """
import sys
from paceline.part import Companion, HostPart, Part

class OnHost(HostPart):
    def begins(self, attempt, placements):
        yield f"{placements[0].ranks} rank on {placements[0].host}"

    def variables(self, placements, rank):
        return {"GREETING": f"hello {rank}"}

    def companion(self, placements):
        return Companion(name="echo server", argv=[sys.executable, "-c", CODE], environment={"ANSWER": "42"})

class Example(Part):
    def on_host(self, host):
        return OnHost()

PART = Example()
"""
RUN = """
from paceline.option import Option
from paceline.part import Part, RunPart

def start_hosts(file, environ):
    print(file.job.max_hosts, "host of", file.job.name, "with", environ["WITH"])
    return 8

class Example(Part):
    def options(self, verb):
        return {"name": [Option("example-way", "Run so.", "WAY")]} if verb == "run" else {}

    def on_run(self, args):
        if args.example_way == "elsewhere":
            return RunPart(elsewhere=lambda: print("elsewhere") or 7)
        if args.example_way == "hosts":
            return RunPart(start_hosts=start_hosts)
        if args.example_way == "beside":
            return RunPart(beside=lambda directory: print("beside", directory.name, directory.exists(), flush=True))
        return RunPart()

PART = Example()
"""
REFUSES = """
from paceline.errors import UsageError
from paceline.part import Part, RunPart

class Refusing(Part):
    def on_run(self, args):
        if args.name == "refused":
            raise UsageError("U03", "no run has this name", next="--name other")
        return RunPart()

PART = Refusing()
"""


CHECKS = """
from paceline.findings import Finding, Rule, Severity
from paceline.part import Part

def find(before):
    yield Finding(code="K98", severity=Severity.ERROR, what="no part likes it", saw=before.script_path, next="take another")

class Example(Part):
    def checks(self):
        return [Rule("K98", "It is not liked\\n\\nWhat it means: Nothing.\\n", find)]

PART = Example()
"""

FOLLOWS = """
from paceline.part import HostPart, Part

class OnHost(HostPart):
    def __init__(self, host):
        self.host = host

    def argv(self, argv):
        return [*argv[:2], "-X", "example", *argv[2:]]

    def ranks_started(self):
        self.host.say("they have started")

    def end_is_near(self):
        self.host.say("the end is near")

    async def ended(self, exit_code):
        self.host.say(f"{self.host.run_id} ended with {exit_code}")

class Example(Part):
    def on_host(self, host):
        return OnHost(host)

PART = Example()
"""


def test_every_folder_is_a_part():
    folders = sorted(path.parent.name for path in (PACKAGE / "parts").glob("*/part.py"))
    assert [type(part).__module__.split(".")[-2] for part in parts()] == folders
    assert all(isinstance(part, Part) for part in parts())


def test_a_part_may_leave_out_each_hook():
    assert (Part().ports(None), Part().on_host(None), tuple(Part().wrong(None))) == ((), None, ())
    assert Part().submitted(Path(), {}) is None and not Part().checks() and not Part().verbs()
    assert (Part().options("run"), Part().job_fields(None), Part().on_run(None)) == ({}, {}, RunPart())
    assert Part().beginning(None, None, {}, Path()) is None
    part = HostPart()
    assert (tuple(part.begins(0, ())), part.variables((), 0), part.companion(())) == ((), {}, None)
    assert (part.kept_state((), None, None, keeps_state=True), part.argv(["p"])) == (None, ["p"])


def test_each_option_of_a_part_stands_behind_the_one_that_it_names():
    for verb in VERBS:
        names = [row.name for row in (*verb_module(verb).VERB.options, *verb_module(verb).VERB.keys)]
        for place, options in ((place, options) for part in parts() for place, options in part.options(verb).items()):
            assert all(place in names and names.index(place) < names.index(row.name) for row in options), (verb, place)


@pytest.mark.process
def test_a_part_is_loaded_without_the_command_line(user_environment):
    # The options of `paceline run` are made while parts are loaded.
    program = "import sys; from paceline.part import parts; parts(); print('paceline.cli' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=user_environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.fixture
def installed(tmp_path, user_environment):
    """Runs a copy of paceline with the parts of which `has(part)` is true, and the given parts: folder -> the text of its part.py."""

    def run(has: Callable[[str], bool], parts: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
        copy = tmp_path / "src" / "paceline"
        if not copy.exists():
            shutil.copytree(PACKAGE, copy, ignore=lambda folder, names: [n for n in names if _left_out(folder, n, has)])
            for name, text in parts.items():
                (copy / "parts" / name).mkdir(parents=True)
                (copy / "parts" / name / "__init__.py").touch()
                (copy / "parts" / name / "part.py").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "paceline", *argv],
            cwd=tmp_path,
            env={**user_environment, "PYTHONPATH": str(copy.parent)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


@pytest.fixture
def paceline_with(installed):
    """Runs the kernel with the given parts and no others."""
    return partial(installed, KERNEL.__eq__)


@pytest.mark.process
def test_without_any_part_a_job_is_run_watched_and_explained(paceline_with, examples):
    digits = str(examples / "digits_ddp.py")
    done = paceline_with({}, "run", "--nproc-per-node", "2", digits)
    assert done.returncode == 0, done.stderr
    for verb in ("top", "logs", "why", "stack", "report"):
        options = {"top": ["--once"], "report": ["-o", "page.html"]}.get(verb, [])
        shown = paceline_with({}, verb, *options)
        assert "Traceback" not in shown.stderr and (shown.returncode == 0 or "error[U20]" in shown.stderr), shown


@pytest.mark.process
@pytest.mark.slow_but_first
@pytest.mark.parametrize("part", PARTS)
def test_without_one_part_the_kernel_works_and_what_another_part_lacks_is_said(installed, examples, part):
    run = partial(installed, part.__ne__, {})
    assert run("run", "--nproc-per-node", "2", str(examples / "digits_ddp.py")).returncode == 0
    assert run("check", str(examples / "digits_ddp.py")).returncode == 0
    lacking = set()
    for verb in re.findall(r"^  ([a-z-]+)  +\w", run("--help").stdout, re.M):
        helped = run(verb, "--help")
        if helped.returncode:
            assert "error[E01]: this needs a part of paceline that is not here" in helped.stderr, helped
            lacking.add(verb)
    assert lacking == set()


@pytest.mark.process
def test_without_any_part_each_module_of_the_kernel_can_be_imported_and_each_verb_has_help(paceline_with, tmp_path):
    helped = paceline_with({}, "--help")
    assert "submit" not in helped.stdout and "  check " in helped.stdout
    for verb in re.findall(r"^  ([a-z]+)  ", helped.stdout, re.M):
        assert paceline_with({}, verb, "--help").returncode == 0, verb
    (tmp_path / "train.py").write_text("print(1)\n")
    checked = paceline_with({}, "check", "train.py")
    assert checked.returncode == 0 and "Traceback" not in checked.stderr, checked
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=tmp_path / "src", capture_output=True, text=True)
    assert not done.stdout and done.returncode == 0, done


# Of what lives in a rank, only what imports torch by itself; programs end the process that imports them.
IMPORT_ALL = f"""
import importlib, pathlib
public_names_of_parts = {sorted(OUTSIDE)}
for path in sorted(pathlib.Path("paceline").rglob("*.py")):
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if path.stem in ("__main__", "sitecustomize") or path.name in public_names_of_parts:
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("paceline"):
            print(name, error)
"""


@pytest.mark.parametrize(
    ("argv", "exit_code"), [(["stop"], 2), (["logs"], 2), (["ps"], 0), (["ps", "--prune", "--older-than", "1s"], 0)]
)
def test_without_the_part_of_its_engine_a_submitted_job_is_not_judged(paceline_with, tmp_path, argv, exit_code):
    run_dir = tmp_path / ".paceline" / "runs" / "r-000001"
    run_dir.mkdir(parents=True)
    (run_dir / "run.json").write_text(json.dumps({"schema": "paceline.run/1", "run_id": "r-000001", "name": "train"}))
    (run_dir / "submission.json").write_text(json.dumps({"engine": "slurm", "job": {"retries": 1}}))
    for path in (run_dir / "submission.json", run_dir / "run.json", run_dir):
        os.utime(path, (0, 0))
    done = paceline_with({}, *argv)
    assert done.returncode == exit_code, done
    assert "nothing here can ask the engine of r-000001" in done.stderr and "slurm" in done.stderr
    assert run_dir.exists()


@pytest.mark.process
@pytest.mark.parametrize("option", ["--hosts=a,b", "--local-hosts=2", "--web"])
def test_without_a_part_its_options_are_unknown(paceline_with, option):
    done = paceline_with({}, "run", option, "train.py")
    assert done.returncode == 2 and f"error[U01]: unknown option {option.partition('=')[0]}" in done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("argv", "exit_code", "said"),
    [
        (("--example-way", "elsewhere"), 7, "elsewhere\n"),
        (("--example_way", "hosts", "--name", "mine"), 8, "1 host of mine with variables\n"),
        (("--example-way", "beside", "--set", "run_id=r-1"), 0, "beside r-1 False\ntrained\n"),
        (("--name", "mine"), 0, "trained\n"),
        (("--example-way", "elsewhere", "--name", "refused"), 2, ""),
    ],
    ids=["elsewhere", "hosts", "beside", "not asked", "refused first"],
)
def test_a_part_takes_a_run_over_starts_its_hosts_or_stands_beside_it(
    paceline_with, tmp_path, user_environment, argv, exit_code, said
):
    user_environment["WITH"] = "variables"
    (tmp_path / "train.py").write_text("print('trained')\n")
    done = paceline_with({"example": RUN, "refusing": REFUSES}, "run", *argv, "train.py")
    assert (done.returncode, done.stdout) == (exit_code, said), done.stderr
    assert (tmp_path / ".paceline").exists() == (exit_code == 0)


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("import os, time; print('answer', os.environ['ANSWER'], flush=True); time.sleep(60)", 0, ""),
        (
            "import time; time.sleep(0.5); raise SystemExit('it broke')",
            1,
            "the echo server of localhost ended with 1: it broke",
        ),
    ],
    ids=["serves", "fails"],
)
def test_a_part_has_variables_lines_and_a_companion_whose_end_is_the_hosts(
    paceline_with, tmp_path, code, exit_code, said
):
    (tmp_path / "train.py").write_text(
        "import os, time\nprint(os.environ['GREETING'], 'ANSWER' in os.environ, flush=True)\n"
        + ("time.sleep(60)\n" if exit_code else "time.sleep(1)\n")
    )
    done = paceline_with({"example": COMPANION.replace("CODE", repr(code))}, "run", "train.py")
    assert done.returncode == exit_code, done.stderr
    assert "hello 0 False" in done.stdout and "1 rank on localhost" in done.stderr and said in done.stderr
    (log,) = tmp_path.glob(".paceline/runs/*/hosts/localhost/attempt_0/echo_server.log")
    assert log.read_text() == ("it broke\n" if exit_code else "answer 42\n")
    assert not _left(str(tmp_path))


@pytest.mark.process
@pytest.mark.parametrize("end", ["", "SIGTERM"], ids=["ends", "stopped"])
def test_a_part_follows_the_ranks_of_a_host_from_their_start_to_the_end_of_the_job(paceline_with, tmp_path, end):
    asks = f"import signal\nos.kill(os.getppid(), signal.{end})\ntime.sleep(60)\n" if end else ""
    (tmp_path / "train.py").write_text(
        f"import os, sys, time\nprint(sys._xoptions, flush=True)\ntime.sleep(0.5)\n{asks}"
    )
    done = paceline_with({"example": FOLLOWS}, "run", "--name", "j", "train.py")
    assert "'example': True" in done.stdout and "they have started" in done.stderr, done.stderr
    assert ("the end is near" in done.stderr) == bool(end)
    assert f"ended with {done.returncode}" in done.stderr and bool(done.returncode) == bool(end)


VERB = """
import sys
from paceline.option import Verb
from paceline.part import Part, PartVerb

class Example(Part):
    def verbs(self):
        return {"greet": PartVerb(about="say hello", module=__name__, reads_recordings=True)}

VERB = Verb("greet", "Say hello.", (("paceline greet", "hello"),), ())

def run(args):
    print(f"hello {args.json}")
    return 1 // int("json" in sys.argv[1])

PART = Example()
"""


def test_a_part_has_verbs_with_help_and_values_that_cannot_be_read(paceline_with):
    parts = {"example": VERB}
    assert "  greet            say hello\n" in paceline_with(parts, "--help").stdout
    assert "Say hello." in paceline_with(parts, "help", "greet").stdout
    greeted = paceline_with(parts, "--json", "greet")
    assert (greeted.returncode, greeted.stdout) == (1, "hello True\n")
    assert "error[U58]: paceline greet cannot read a value" in paceline_with(parts, "greet").stderr
    unknown = paceline_with(parts, "greets")
    assert unknown.returncode == 2 and "paceline greet" in unknown.stderr


@pytest.mark.process
def test_a_check_of_a_part_is_asked_explained_and_may_be_named(paceline_with, tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    parts = {"example": CHECKS}
    checked = paceline_with(parts, "check", "--sarif", "found.sarif", "train.py")
    assert checked.returncode == 1 and "error[K98]: no part likes it\n  saw       train.py" in checked.stdout, checked
    assert "It is not liked" in (tmp_path / "found.sarif").read_text()
    assert paceline_with(parts, "check", "--fail-on", "K04", "train.py").returncode == 2
    assert paceline_with(parts, "check", "--fail-on", "K98", "train.py").returncode == 1
    assert "It is not liked" in paceline_with(parts, "help", "K98").stdout
    assert re.search("^K98 +It is not liked", paceline_with(parts, "help", "codes").stdout, re.M)


def _left_out(folder: str, name: str, has: Callable[[str], bool]) -> bool:
    """Whether this is the folder of a part that the copy does not have."""
    return name == "__pycache__" or (Path(folder) == PACKAGE / "parts" and name != "__init__.py" and not has(name))


def _left(place: str) -> list[str]:
    """Processes that still have this directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(place):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found
