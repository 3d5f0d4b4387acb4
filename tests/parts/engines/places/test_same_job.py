"""One job, unchanged, on every engine: the same weights bit by bit, the same recording, and the same verdict when a host is lost."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from sites import ENGINES, IMAGE, INSTANCE_TYPE, ROLE, Site, missing, site
from ssh_hosts import SshHosts

from paceline.recording.evidence import evidence

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LASTS = """\
import os, pathlib, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
here = pathlib.Path(sys.argv[1], f"ready-{os.environ['RANK']}.part")
here.write_text(f"{os.uname().nodename} {os.getppid()}")
value = torch.ones(8)
for step in range(10**9):
    dist.all_reduce(value / 2)
    if step == 20:
        here.rename(here.with_suffix(""))
    time.sleep(0.02)
"""


@dataclass
class Done:
    """A job that has ended. `verdict`: its exit code and the codes that `why` finds."""

    code: int
    said: str
    run_dir: Path
    verdict: tuple[int, tuple[str, ...]]


class Project:
    """A directory with the two scripts, from which jobs are submitted."""

    def __init__(self, place: Site, engine: str, directory: Path, examples: Path) -> None:
        self.site, self.engine, self.directory = place, engine, directory
        of_the_job = {"role": ROLE, "image": IMAGE, "instance_type": INSTANCE_TYPE} if engine == "sagemaker" else {}
        self.options = {**place.options, **of_the_job}
        self.root = directory / "runs"
        self.code = directory / "code"
        self.code.mkdir(parents=True)
        (self.code / "digits_ddp.py").write_text((examples / "digits_ddp.py").read_text())
        (self.code / "lasts.py").write_text(LASTS)

    def run(
        self, script: str, *arguments: str, until: Callable[["subprocess.Popen[bytes]"], None] | None = None
    ) -> Done:
        before = set(self._places())
        argv = (
            "submit",
            "--engine",
            self.engine,
            *(word for name, value in self.options.items() for word in ("--option", f"{name}={value}")),
            "--nnodes",
            "2",
            "--run-dir",
            str(self.root),
            "--follow",
        )
        out = self.directory / f"{script}.said"
        with out.open("wb") as log:
            submitted = self._start(*argv, script, *arguments, log=log)
            try:
                if until is not None:
                    until(submitted)
                code = submitted.wait(180)
            except BaseException:
                print(out.read_text())
                raise
            finally:
                submitted.kill()
                submitted.wait()
        (run_dir,) = set(self._places()) - before
        return Done(code, out.read_text(), run_dir, self._verdict(run_dir))

    def _verdict(self, run_dir: Path) -> tuple[int, tuple[str, ...]]:
        out = self.directory / "why.json"
        with out.open("wb") as log:
            assert self._start("why", str(run_dir), "--json", log=log).wait(60) == 0, out.read_text()
        answer = json.loads(out.read_text().splitlines()[0])
        codes = [found["code"] for found in answer["findings"]]
        return evidence(run_dir).run.exit_code, tuple(sorted(codes))

    def _places(self) -> list[Path]:
        return [path for path in self.root.iterdir() if path.is_dir()] if self.root.is_dir() else []

    def _start(self, *argv: str, log) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "paceline", *argv]
        options = {"cwd": self.code, "env": dict(self.site.environment), "stdout": log, "stderr": subprocess.STDOUT}
        return self.site.start(command, **options)


@pytest.fixture(scope="module")
def weights() -> dict[str, bytes]:
    """Engine -> the model that was trained there."""
    return {}


@pytest.fixture(scope="module")
def recordings() -> dict[str, dict]:
    return {}


@pytest.fixture(scope="module", params=ENGINES)
def project(request, tmp_path_factory, make_user_environment, examples) -> Iterator[Project]:
    directory = tmp_path_factory.mktemp(request.param)
    environment = make_user_environment(directory / "state")
    if reason := missing(request.param):
        pytest.skip(reason)
    with ExitStack() as stack:
        place = site(request.param, stack, directory / "site", environment)
        yield Project(place, request.param, directory / "project", examples)


def test_the_same_weights_and_the_same_recording_come_from_every_engine(project, weights, recordings):
    model = project.directory / "model"
    model.mkdir()
    done = project.run("digits_ddp.py", "--epochs", "8", "--model-dir", str(model))
    assert done.code == 0, done.said
    assert done.verdict == (0, ()), done.said
    weights[project.engine] = (model / "model.pt").read_bytes()
    recordings[project.engine] = shape(done.run_dir)
    assert weights[project.engine] == next(iter(weights.values())), (
        f"{project.engine} trained another model than {next(iter(weights))}"
    )
    assert recordings[project.engine] == next(iter(recordings.values()))


def test_a_lost_host_is_the_same_verdict_on_every_engine(project):
    ready = project.directory / "ready"
    ready.mkdir()

    def lose_the_second(submitted: "subprocess.Popen[bytes]") -> None:
        SshHosts.until(
            lambda: ((ready / "ready-0").exists() and (ready / "ready-1").exists()) or submitted.poll() is not None, 90
        )
        host, pid = (ready / "ready-1").read_text().split()
        project.site.lose(host, int(pid))

    done = project.run("lasts.py", str(ready), until=lose_the_second)
    assert done.code == 200, done.said
    assert done.verdict == (200, ("C14",))
    reason = evidence(done.run_dir).run.reason
    assert "lost" in reason and "algo-" in reason, reason


def shape(run_dir: Path) -> dict:
    """What a recording holds, whatever the hosts are called."""
    found = evidence(run_dir)
    names = {host: f"host{index}" for index, host in enumerate(found.hosts)}
    events = {event["event"] for event in found.events}
    return {
        "ranks": [
            (names[rank.host], rank.rank, rank.world_size, rank.step_count, rank.left_by) for rank in found.ranks
        ],
        "events": sorted(
            events & {"run_started", "host_joined", "attempt_started", "attempt_ended", "rank_exited", "run_finished"}
        ),
        "files": sorted(
            f"{names[path.parent.parent.name]}/{path.name}" for path in run_dir.glob("hosts/*/attempt_0/rank_*.seg")
        ),
        "telemetry": sorted(names[host] for host, lines in found.telemetry.items() if lines),
    }
