"""The kernel and its parts: what is there is found, and without any the kernel runs a job; a companion of a part."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from paceline.errors import NotEnoughEvidence
from paceline.part import HostPart, Part, parts

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
    assert Part().beginning(None, None, {}, Path()) is None
    part = HostPart()
    assert (tuple(part.begins(0, ())), part.variables((), 0), part.companion(())) == ((), {}, None)
    assert (part.kept_state((), None, None, keeps_state=True), part.argv(["p"])) == (None, ["p"])


@pytest.fixture
def paceline_with(tmp_path, user_environment):
    """Runs the kernel with the given parts and no others: folder -> the text of its part.py."""

    def run(parts: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
        copy = tmp_path / "src" / "paceline"
        if not copy.exists():
            shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("parts", "__pycache__"))
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


@pytest.mark.process
def test_without_any_part_a_job_is_run_watched_and_explained(paceline_with, examples):
    digits = str(examples / "digits_ddp.py")
    done = paceline_with({}, "run", "--nproc-per-node", "2", digits)
    assert done.returncode == 0, done.stderr
    for verb in ("top", "logs", "why", "stack", "report"):
        options = {"top": ["--once"], "report": ["-o", "page.html"]}.get(verb, [])
        shown = paceline_with({}, verb, *options)
        # A rank that nothing seemed wrong with was not looked at.
        codes = (0, NotEnoughEvidence.exit_code) if verb == "stack" else (0,)
        assert "Traceback" not in shown.stderr and shown.returncode in codes, shown


@pytest.mark.process
@pytest.mark.parametrize("resume", ["auto", "r-1"])
def test_without_the_part_that_resumes_a_job_that_asks_for_it_is_refused(paceline_with, tmp_path, resume):
    (tmp_path / "train.py").write_text("open('started', 'w').close()\n")
    done = paceline_with({}, "run", "--resume", resume, "train.py")
    assert done.returncode == 2 and "error[U03]: this paceline cannot resume a job" in done.stderr, done.stderr
    assert f"--resume {resume}" in done.stderr and not (tmp_path / "started").exists()


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
