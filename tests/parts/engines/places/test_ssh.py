"""Jobs over SSH for real: sshd on hosts with networks of their own, and everything that can be cut, killed or refused between them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paceline import __version__
from paceline.recording.evidence import evidence

sys.path.insert(0, str(Path(__file__).parent))
from going_on import GoingOn
from patience import patient
from ssh_hosts import SshHosts, ssh_is_here

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]

# Prints, then stays until it is asked to end, which it says.
WAITS = """\
import os, signal, sys, time
def end(number, frame):
    print("rank", os.environ["RANK"], "ends in order", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
if os.environ["PACELINE_RUN_ID"].endswith(".2"):
    print("second try on", os.uname().nodename, flush=True)
    sys.exit(0)
print("rank", os.environ["RANK"], "is here", flush=True)
while True:
    time.sleep(0.1)
"""
QUICK = "import os, sys\nprint('rank', os.environ['RANK'], flush=True)\nsys.exit(int(sys.argv[1]))\n"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    reason = ssh_is_here()
    if reason is not None:
        pytest.skip(reason)
    with SshHosts(tmp_path_factory.mktemp("ssh"), 3) as hosts:
        yield hosts


@dataclass
class Started:
    process: subprocess.Popen
    out_file: Path
    err_file: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def said(self) -> str:
        return self.out_file.read_text() + self.err_file.read_text()

    def until_said(self, text: str, times: int = 1, seconds: float = 60.0) -> None:
        SshHosts.until(lambda: self.said.count(text) >= times or self.process.poll() is not None, seconds)
        assert self.said.count(text) >= times, self.said

    def wait(self, seconds: float = 60.0) -> int:
        return self.process.wait(seconds)


@dataclass
class Submitter:
    """Starts `paceline` on the host that jobs are submitted from, in a directory of code."""

    hosts: SshHosts
    directory: Path
    environment: dict[str, str]
    jobs: list[Started] = field(default_factory=list)

    def start(self, *argv: str) -> Started:
        return self.start_python("-m", "paceline", *argv)

    def start_python(self, *argv: str) -> Started:
        files = [self.directory.parent / f"job{len(self.jobs)}.{name}" for name in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = self.hosts.submit(
                [sys.executable, *argv],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.jobs.append(Started(process, *files))
        return self.jobs[-1]

    def run(
        self,
        script: str,
        *arguments: str,
        hosts: str = "algo-1,algo-2",
        config: Path | None = None,
        options: tuple[str, ...] = (),
    ):
        more = [word for option in options for word in ("--option", option)]
        argv = ("--hosts", hosts, "--option", f"ssh_config={config or self.hosts.config}", *more)
        return self.start("run", *argv, script, *arguments)

    @property
    def places(self) -> list[Path]:
        runs = self.directory / ".paceline" / "runs"
        return sorted(runs.iterdir()) if runs.is_dir() else []


@pytest.fixture
def submitter(hosts: SshHosts, tmp_path: Path, user_environment: dict[str, str]) -> Iterator[Submitter]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "waits.py").write_text(WAITS)
    (code / "quick.py").write_text(QUICK)
    submitter = Submitter(hosts, code, user_environment)
    yield submitter
    for job in submitter.jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()
    for index in range(hosts.count + 1):
        server = hosts.servers[index] if index < hosts.count else None
        for pid in hosts.processes(index):
            if server is None or pid != server.pid:
                with_nobody(lambda pid=pid: os.kill(pid, signal.SIGKILL))


def with_nobody(action: Callable[[], object]) -> None:
    try:
        action()
    except ProcessLookupError:
        pass


def nothing_is_left(hosts: SshHosts, seconds: float, *indexes: int) -> None:
    """Neither agents nor ranks nor sessions, on any host named."""
    deadline = time.monotonic() + seconds
    while left := {index: hosts.left(index) for index in indexes if hosts.left(index)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_digits_train_on_two_hosts_and_the_recording_of_both_comes_here(hosts, submitter, examples):
    shutil.copy(examples / "digits_ddp.py", submitter.directory)
    job = submitter.run("digits_ddp.py")
    assert job.wait(100) == 0, job.said
    assert "2 ranks on 2 hosts" in job.said and "test accuracy" in job.said
    (run_dir,) = submitter.places
    found = evidence(run_dir)
    assert found.run.exit_code == 0 and {rank.host for rank in found.ranks} == {"algo-1", "algo-2"}
    assert all((run_dir / "hosts" / host / "host.json").exists() for host in hosts.names[:2])
    assert list(run_dir.glob("hosts/algo-2/attempt_0/rank_1.seg")), (
        "what ranks of other hosts recorded comes here as well"
    )
    nothing_is_left(hosts, 5, 0, 1, 2, 3)


def test_an_exit_code_comes_through_and_the_code_is_not_shipped_twice(hosts, submitter):
    assert submitter.run("quick.py", "7").wait() == 7
    archives = [next(hosts.jobs(index).glob(".archives/*.tar.gz")) for index in (0, 1)]
    before = {archive: archive.stat().st_ino for archive in hosts.jobs(0).glob(".archives/*")}
    assert submitter.run("quick.py", "0").wait() == 0
    assert {archive: archive.stat().st_ino for archive in hosts.jobs(0).glob(".archives/*")} == before
    # An archive that is not what it is called is sent again.
    newest = max(before, key=lambda archive: archive.stat().st_mtime)
    newest.write_bytes(archives[0].read_bytes()[:100])
    job = submitter.run("quick.py", "0")
    assert job.wait() == 0 and newest.stat().st_size > 100, job.said


def test_login_scripts_may_print_a_spare_host_stands_in_and_no_secret_is_written_down(hosts, submitter):
    scripts = [hosts.home(index) / ".bashrc" for index in (0, 1)]
    for script in scripts:
        script.write_text("echo Welcome\necho Hello >&2\n")
    try:
        argv = ("--hosts", "algo-1,nowhere", "--option", "spares=algo-2", "--option", f"ssh_config={hosts.config}")
        job = submitter.start("run", *argv, "--env", "API_KEY=s3cret-of-mine", "quick.py", "0")
        assert job.wait() == 0, job.said
    finally:
        for script in scripts:
            script.unlink()
    assert "nowhere: this name cannot be resolved here; a spare host takes its place" in job.said
    (run_dir,) = submitter.places
    assert {rank.host for rank in evidence(run_dir).ranks} == {"algo-1", "algo-2"}
    written = [file for folder in (run_dir, hosts.directory) for file in folder.rglob("*") if file.is_file()]
    assert not [file for file in written if b"s3cret-of-mine" in file.read_bytes()]


def test_every_host_that_cannot_be_reached_is_named_with_its_own_reason(hosts, submitter):
    closed = hosts.network.address(hosts.count)
    names = f"Host nokey\n  HostName algo-1\nHost stranger\n  HostName algo-1\n  HostKeyAlias stranger\nHost closed\n  HostName {closed}\n"
    config = hosts.ssh_config("many", names)
    job = submitter.run("quick.py", "0", hosts="algo-1,nowhere,nokey,stranger,closed", config=config)
    assert job.wait() == 2, job.said
    assert "4 things keep the hosts from running this job" in job.said
    assert "nowhere: this name cannot be resolved here" in job.said
    assert "nokey does not let this user in" in job.said and "Permission denied" in job.said
    assert "stranger's host key is not known here" in job.said
    assert "closed cannot be reached: nothing listens" in job.said
    assert f"ssh -F {config} nowhere true" in job.said
    assert submitter.places == []
    nothing_is_left(hosts, 5, 0, 1)


def test_hosts_with_other_versions_are_named_with_both(hosts, submitter, tmp_path):
    fake = tmp_path / "fake"
    (fake / "paceline").mkdir(parents=True)
    (fake / "paceline" / "__init__.py").write_text("__version__ = '0.0.1'\n")
    (fake / "torch-0.0.2.dist-info").mkdir()
    (fake / "torch-0.0.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.0.2\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(
        f'#!/bin/sh\n[ "$(hostname)" = algo-2 ] && export PYTHONPATH={fake}\nexec {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    job = submitter.run("quick.py", "0", options=(f"python={wrapper}",))
    assert job.wait() == 2, job.said
    assert "error[E11]" in job.said
    assert f"algo-2 has paceline 0.0.1, this machine has {__version__}" in job.said
    assert "algo-2 has torch 0.0.2, algo-1 has" in job.said
    assert submitter.places == []


def test_a_host_without_the_python_that_is_named_says_so(hosts, submitter):
    job = submitter.run("quick.py", "0", options=("python=/nonexistent/python",))
    assert job.wait() == 2 and "algo-1 has no Python that could be started" in job.said, job.said


@pytest.mark.parametrize("index", [0, 1])
def test_when_sshd_dies_agents_and_ranks_end_and_the_host_is_named(hosts, submitter, index):
    job = submitter.run("waits.py")
    try:
        job.until_said("is here", 2)
        SshHosts.until(lambda: any((run_dir / "run.json").exists() for run_dir in submitter.places), 20)
        hosts.kill_servers(index)
        began = time.monotonic()
        assert job.wait(60) == 200, job.said
        nothing_is_left(hosts, 10, 0, 1)
        assert time.monotonic() - began < 45
    finally:
        hosts.start_server(index)
    assert f"error[E17]: host {hosts.names[index]} of this job lost" in job.said, job.said
    (run_dir,) = submitter.places
    assert evidence(run_dir).run.exit_code == 200


def test_ctrl_c_ends_every_rank_in_order(hosts, submitter):
    job = submitter.run("waits.py")
    job.until_said("is here", 2)
    job.process.send_signal(signal.SIGINT)
    assert job.wait(60) == 130, job.said
    assert all(f"rank {rank} ends in order" in job.said for rank in (0, 1)), job.said
    (run_dir,) = submitter.places
    assert evidence(run_dir).run.exit_code == 130
    nothing_is_left(hosts, 5, 0, 1, 3)


def test_ctrl_c_while_hosts_are_looked_at_leaves_nothing(hosts, submitter):
    job = submitter.run("waits.py")
    SshHosts.until(lambda: any(hosts.processes(0, "sshd")[1:]), 20)
    job.process.send_signal(signal.SIGINT)
    assert job.wait(60) == 130, job.said
    nothing_is_left(hosts, 10, 0, 1, 3)


def test_when_the_keeper_is_killed_nothing_is_left_on_any_host(hosts, submitter):
    job = submitter.run("waits.py")
    job.until_said("is here", 2)
    job.process.kill()
    job.wait()
    nothing_is_left(hosts, 15, 0, 1, 3)


def test_a_lost_host_is_replaced_by_a_spare_where_a_retry_is_left(hosts, submitter):
    options = ("hosts=algo-1,algo-2", "spares=algo-3", f"ssh_config={hosts.config}")
    more = [word for option in options for word in ("--option", option)]
    job = submitter.start("submit", "--engine", "ssh", "--nnodes", "2", "--follow", "--retries", "1", *more, "waits.py")
    try:
        SshHosts.until(lambda: said_here(submitter) == 2 or job.process.poll() is not None, 60)
        hosts.kill_servers(1)
        assert job.wait(90) == 0, job.said
    finally:
        hosts.start_server(1)
    first, second = submitter.places
    assert second.name == f"{first.name}.2"
    assert {rank.host for rank in evidence(second).ranks} == {"algo-1", "algo-3"}
    nothing_is_left(hosts, 10, 0, 1, 2, 3)


def test_a_retry_on_the_same_host_goes_on_at_the_saved_step(hosts, submitter, tmp_path):
    going_on = GoingOn(tmp_path)
    shutil.copy(going_on.code / "train.py", submitter.directory)
    options = ("--hosts", "algo-1", "--option", f"ssh_config={hosts.config}", "--retries", "1", "--resume", "auto")
    job = submitter.start("submit", "--engine", "ssh", *options, "--follow", "train.py", *going_on.arguments)
    going_on.until_saved(lambda: list(hosts.jobs(0).glob("*/runs/*/state")), lambda: job.said)
    for pid in hosts.processes(0, "sshd"):
        # The connection breaks, and the server lets the next one in.
        if pid != hosts.servers[0].pid:
            with_nobody(lambda pid=pid: os.kill(pid, signal.SIGKILL))
    SshHosts.until(lambda: len(submitter.places) == 2 or job.process.poll() is not None, patient(60))
    going_on.go()
    assert job.wait(patient(90)) == 0, job.said
    going_on.check(submitter.places[1])
    nothing_is_left(hosts, 10, 0, 3)


def said_here(submitter: Submitter) -> int:
    """How many ranks said so, by what the first host sent here or heard from the others."""
    files = [
        file for run_dir in submitter.places for name in ("rank_*.out", "*.logs.jsonl") for file in run_dir.rglob(name)
    ]
    return sum(b"is here" in file.read_bytes() for file in files if "algo-2/attempt" not in str(file))


def test_the_contract_of_every_engine_holds(hosts, submitter, tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text(CONTRACT)
    told = {
        "config": str(hosts.config),
        "code": str(submitter.directory),
        "root": str(tmp_path / "place" / ".paceline" / "runs"),
    }
    job = submitter.start_python(str(driver), json.dumps(told))
    assert job.wait(120) == 0, job.said
    nothing_is_left(hosts, 10, 0, 1, 3)


CONTRACT = """\
import json, os, sys
from pathlib import Path
from paceline.facts import Job, Program, ProgramKind
from paceline.job_file import JobFile
from paceline.parts.engines import conformance
from paceline.parts.engines.base import load
from paceline.parts.engines.package import package
from paceline.parts.engines.submission import Submission
told = json.loads(sys.argv[1])
options = {"hosts": "algo-1,algo-2", "ssh_config": told["config"]}
engine = load("ssh", os.environ, options)
code = package(Path(told["code"]), Path(told["root"]).parent.parent / "code.tar.gz")
def job(name, script, *arguments):
    program = Program(kind=ProgramKind.SCRIPT, target=script, arguments=arguments)
    secret = {"SECRET": "s3cret-of-mine"}
    file = JobFile(job=Job(name=name, program=program), run_id=name)
    return Submission(file=file, hosts=2, package=code, engine_options=options, environment=secret)
root = Path(told["root"])
conformance.check_plan(engine, job("planned", "quick.py", "0"))
conformance.check_hosts(engine, job("looked-at", "quick.py", "0"))
conformance.check_ends(engine, job("ends", "quick.py", "0"), root, seconds=60)
conformance.check_ends(engine, job("fails", "quick.py", "7"), root, seconds=60, code=7)
conformance.check_cancel(engine, job("cancelled", "waits.py"), root, seconds=60)
conformance.check_cancel(engine, job("killed", "waits.py"), root, seconds=60, now=True)
options = {**options, "hosts": "algo-1,nowhere"}
nowhere = load("ssh", os.environ, options)
conformance.check_refused(nowhere, job("refused", "quick.py", "0"), root, "E10")
"""


def nothing_is_left_of_the_job(hosts: SshHosts, seconds: float, *indexes: int) -> None:
    """No Python: the sshd of a session does not notice that the other side is gone."""
    SshHosts.until(lambda: not any(hosts.processes(index, "python") for index in indexes), seconds)


def test_check_looks_at_every_host_and_lets_them_connect(hosts, submitter):
    argv = [
        "check",
        "--json",
        "--hosts",
        "algo-1,algo-2,algo-3",
        "--option",
        f"ssh_config={hosts.config}",
        "--fail-on",
        "never",
    ]
    job = submitter.start(*argv)
    assert job.wait(60) == 0, job.said
    answer = json.loads(job.out_file.read_text())
    seen = {*answer["silent"], *(one["code"] for one in (*answer["findings"], *answer["not_judged"]))}
    assert {f"K{number}" for number in range(30, 40)} <= seen
    assert not {"K37", "K39", "E10", "E11"} & {one["code"] for one in answer["findings"]}, answer["findings"]
    nothing_is_left(hosts, 10, 0, 1, 2, 3)


def test_check_names_a_host_that_is_not_there_and_a_pair_that_cannot_connect(hosts, submitter):
    closed = ["unreachable", hosts.network.address(0)]
    assert hosts.network.run_in(1, ["ip", "route", "add", *closed]).wait() == 0
    argv = ["check", "--json", "--hosts", "algo-1,algo-2,nowhere", "--option", f"ssh_config={hosts.config}"]
    try:
        job = submitter.start(*argv)
        assert job.wait(60) == 1, job.said
    finally:
        hosts.network.run_in(1, ["ip", "route", "del", *closed]).wait()
    found = {(one["code"], one["what"]) for one in json.loads(job.out_file.read_text())["findings"]}
    assert ("K37", "algo-2 cannot connect to algo-1") in found
    assert any(code == "E10" and "nowhere" in what for code, what in found)


def test_a_host_that_is_powered_off_is_named(hosts, submitter):
    """Among the last: the host does not come back."""
    job = submitter.run("waits.py", hosts="algo-1,algo-3")
    job.until_said("is here", 2)
    hosts.power_off(2)
    assert job.wait(60) == 200, job.said
    assert "error[E17]: host algo-3 of this job lost" in job.said, job.said
    nothing_is_left(hosts, 5, 0)


def test_a_submitting_machine_that_is_cut_off_gives_up_and_so_do_the_agents(hosts, submitter):
    """The last one: for some seconds afterwards the kernel still takes the hosts for unreachable."""
    job = submitter.run("waits.py")
    job.until_said("is here", 2)
    hosts.network.cut(hosts.count)
    try:
        assert job.wait(60) == 200, job.said
        assert "error[E17]: hosts algo-1, algo-2 of this job lost" in job.said, job.said
        nothing_is_left_of_the_job(hosts, 45, 0, 1)
    finally:
        hosts.network.mend(hosts.count)
