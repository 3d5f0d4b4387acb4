"""A Ray cluster on this machine: a head that trains nothing and workers, each a host with a network of its own that can be powered off."""

import json
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgspec
from submissions import a_submission

from paceline.facts import Program, ProgramKind
from paceline.parts.engines import jobs
from paceline.parts.engines.base import load
from paceline.parts.engines.detached import KEEPER_LOG, REQUEST_FILE
from paceline.parts.engines.package import package
from paceline.parts.engines.submission import Submission
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.lab.emulate.namespace_holder import end_neighbours, in_network_of
from paceline.recording.writer import write_json

PORT = 6379
UP_SECONDS = 90.0
# A node that is gone is missed by Ray itself within a few seconds, so that a retry need not wait for long.
IMPATIENT = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
COUNT_NODES = """\
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="CRITICAL")
while sum(node["Alive"] for node in ray.nodes()) != int(sys.argv[2]):
    time.sleep(0.1)
"""


@dataclass
class Held:
    """A job's keeper, as `paceline submit` starts it, on the head of the cluster."""

    process: subprocess.Popen
    run_dir: Path

    @property
    def log(self) -> str:
        return (self.run_dir / KEEPER_LOG).read_text(errors="replace")

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None or condition(), f"ended with {self.process.returncode}\n{self.log}"
            assert time.monotonic() < deadline, f"did not come true\n{self.log}"
            time.sleep(0.05)

    def until_said(self, text: str, seconds: float = 60.0) -> None:
        self.until(lambda: text in self.log, seconds)

    def wait(self, seconds: float = 60.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {seconds} s\n{self.log}") from None


@dataclass
class RayCluster:
    """Up for the length of a `with` block. Host 0 is the head, with no CPUs for jobs; the workers have one each.

    One host more is in the same network and has no Ray.
    """

    workers: int
    environment: Mapping[str, str]
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="plray-", dir="/tmp")))
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    held: list[Held] = field(default_factory=list)
    started: dict[int, subprocess.Popen] = field(default_factory=dict)
    # Variables of one host alone.
    own_variables: dict[int, dict[str, str]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.hosts = Hosts(self.workers + 2)
        self.hosts.__enter__()
        try:
            for index in range(self.workers + 1):
                self._own_directory(index)
                self.start(index)
            self.wait_for_nodes(self.workers + 1)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.end_jobs()
        # Killed first, all of it: Ray's own way of ending takes longer, and one host after the other would wait for it.
        for index in list(self.started):
            self._kill_all(index)
        self.hosts.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end_jobs(self) -> None:
        """End what a test that failed left running."""
        while self.held:
            held = self.held.pop()
            if held.process.poll() is None:
                held.process.kill()
            held.process.wait()

    @property
    def address(self) -> str:
        return f"{self.hosts.address(0)}:{PORT}"

    def environment_of(self, index: int) -> dict[str, str]:
        own = self.folder / f"tmp{index}"
        own.mkdir(exist_ok=True)
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        return {
            **self.environment,
            **IMPATIENT,
            **auth,
            "RAY_USAGE_STATS_ENABLED": "0",
            "TMPDIR": str(own),
        } | self.own_variables.get(index, {})

    def start(self, index: int) -> None:
        """Power a host on."""
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        argv += ["--node-ip-address", self.hosts.address(index), "--object-store-memory", "80000000"]
        if index == 0:
            argv += ["--head", "--port", str(PORT), "--num-cpus", "0", "--include-dashboard", "false"]
            argv += ["--temp-dir", str(self._session)]
        else:
            argv += ["--address", self.address, "--num-cpus", "1"]
        with (self.folder / f"node{index}.log").open("ab") as log:
            self.started[index] = self.run_in(index, argv, stdout=log, stderr=log)

    def run_in(self, index: int, argv: Sequence[str], **options: Any) -> subprocess.Popen:
        options.setdefault("env", self.environment_of(index))
        return self.hosts.run_in(index, argv, stdin=subprocess.DEVNULL, start_new_session=True, **options)

    def wait_for_nodes(self, count: int) -> None:
        deadline = time.monotonic() + UP_SECONDS
        command = [sys.executable, "-c", COUNT_NODES, self.address, str(count)]
        while time.monotonic() < deadline:
            asking = self.run_in(0, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                if asking.wait(max(1.0, deadline - time.monotonic())) == 0:
                    return
            except subprocess.TimeoutExpired:
                asking.kill()
                asking.wait()
        logs = "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("node*.log")))
        raise AssertionError(f"no {count} nodes within {UP_SECONDS:.0f} s\n{logs}")

    def power_off(self, index: int) -> None:
        """Nothing that ran there says goodbye: the link is cut before the processes are gone."""
        self.hosts.power_off(index)
        self._kill_all(index)

    def power_on(self, index: int) -> None:
        """Its temporary files are gone, as after a start of a machine."""
        shutil.rmtree(self.folder / f"tmp{index}", ignore_errors=True)
        self.hosts.mend(index)
        self.start(index)

    def commands(self, index: int) -> list[str]:
        """The command lines of what runs in a host, Ray's own left out."""
        found = []
        for pid in in_network_of(self.hosts.keeper_pid(index)):
            try:
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            # The folder of the clone may have any name.
            if argv and "ray" not in re.split("-m paceline|/paceline/(?:worker|launch)/", argv)[0].lower():
                found.append(argv)
        return found

    def left_behind(self) -> list[str]:
        """What a job left: processes and scratch directories on any host."""
        hosts = range(self.workers + 1)
        scratch = [str(path) for index in hosts for path in (self.folder / f"tmp{index}").glob("paceline-ray-*")]
        return [command for index in hosts for command in self.commands(index)] + scratch

    def until_nothing_is_left(self, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while left := self.left_behind():
            assert time.monotonic() < deadline, "\n".join(left)
            time.sleep(0.1)

    def hold(self, job: Submission, root: Path, code: Path, on: int = 0) -> Held:
        """Start the keeper of a job on a host of the cluster."""
        run_dir = jobs.make_run_dir(root, job.run_id)
        job = replace(job, package=package(code, run_dir / jobs.CODE_FILE))
        environ = {**self.environment_of(on), "RAY_ADDRESS": self.address}
        request = load("ray", environ, job.engine_options).plan(job)
        write_json(
            run_dir / REQUEST_FILE,
            msgspec.to_builtins(replace(request, job=replace(job, environment={})), str_keys=True),
        )
        told = run_dir / "told.json"
        told.write_text(json.dumps({"environ": environ, "environment": dict(job.environment)}) + "\n")
        argv = [sys.executable, "-m", "paceline.parts.engines.detached", str(run_dir)]
        with (run_dir / KEEPER_LOG).open("ab") as log, told.open("rb") as stdin:
            process = self.hosts.run_in(
                on, argv, env=environ, cwd=run_dir, stdin=stdin, stdout=log, stderr=log, start_new_session=True
            )
        self.held.append(Held(process, run_dir))
        return self.held[-1]

    @property
    def _session(self) -> Path:
        return self.folder / "s"

    def _own_directory(self, index: int) -> None:
        """Every host sees a directory of its own where Ray keeps its sockets: nodes that share one get in each other's way."""
        own = self.folder / f"session{index}"
        for directory in (own, self._session):
            directory.mkdir(exist_ok=True)
        mounted = self.run_in(index, ["mount", "--bind", str(own), str(self._session)])
        assert mounted.wait() == 0, "a host could not have a directory of its own"

    def _kill_all(self, index: int) -> None:
        end_neighbours(self.hosts.keeper_pid(index))
        if index in self.started:
            self.started.pop(index).wait()


def submission(run_id: str, script: str, *arguments: str, **fields: Any) -> Submission:
    """A job of two hosts with one rank each, unless `fields` say otherwise."""
    program = Program(kind=ProgramKind.SCRIPT, target=script, arguments=arguments)
    return a_submission(run_id=run_id, name=Path(script).stem, program=program, **{"hosts": 2, **fields})
