"""The Slurm engine on a real cluster: munged, slurmctld and two slurmd on emulated hosts, one of which is switched off."""

import os
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from going_on import GoingOn
from patience import patient
from slurm_cluster import SlurmCluster, missing
from submissions import a_submission

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind, SecondaryStatus, Status
from paceline.part import Observation
from paceline.parts.engines import jobs
from paceline.parts.engines.base import Engine, Handle
from paceline.parts.engines.conformance import check_cancel, check_ends, check_plan, check_refused
from paceline.parts.engines.package import package
from paceline.parts.engines.slurm import engine as slurm
from paceline.parts.engines.submission import Submission
from paceline.recording.evidence import evidence
from paceline.recording.runs import newest_try

pytestmark = [pytest.mark.engine, pytest.mark.timeout(200)]

# Waits for a file below argv[1], and leaves one when it is told to end. Nothing to import, so that it is there at once.
WAITS = """
    import os, pathlib, signal, sys, time
    place, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
    def told(number, frame):
        (place / f"told-{rank}").touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, told)
    (place / f"ready-{rank}").touch()
    while not (place / "go").exists():
        time.sleep(0.1)
"""
# Ends well where a checkpoint lies; otherwise waits until it is told to write one.
CHECKPOINTS = """
    import os, pathlib, signal, sys, time
    place, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
    if (place / f"checkpoint-{rank}").exists():
        print("goes on from", (place / f"checkpoint-{rank}").read_text())
        sys.exit(0)
    def told(number, frame):
        (place / f"checkpoint-{rank}").write_text(f"try {os.environ.get('SLURM_RESTART_COUNT', '0')}")
        sys.exit(0)
    signal.signal(signal.SIGTERM, told)
    while True:
        time.sleep(0.1)
"""


@dataclass
class Given:
    """A job that Slurm has taken."""

    cluster: SlurmCluster
    engine: Engine
    handle: Handle
    run_dir: Path

    def observe(self) -> Observation:
        return self.engine.observe(self.handle, self.run_dir)

    def until_ended(self, seconds: float = 100.0) -> Observation:
        return self.until(lambda: seen if (seen := self.observe()).ended else None, seconds)

    def until(self, condition, seconds: float = 60.0):
        try:
            return self.cluster.until(condition, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.observe()}\n{self.output}") from None

    @property
    def output(self) -> str:
        return "\n".join(self.engine.logs(self.handle, self.run_dir, None)[0])

    def scontrol(self) -> str:
        return self.cluster.command("scontrol", "show", "job", "-o", self.handle["job_id"])


@dataclass
class Submitter:
    """Gives jobs to the cluster, each in a directory of its own, which also holds its code."""

    cluster: SlurmCluster
    directory: Path
    environ: Mapping[str, str]

    def submit(self, script: str, *arguments: str, code: Path | None = None, **fields) -> Given:
        if code is None:
            code = self.directory / "code"
            code.mkdir(exist_ok=True)
            (code / "job.py").write_text(textwrap.dedent(script))
            script = "job.py"
        run_id = f"r-{os.urandom(3).hex()}"
        run_dir = jobs.make_run_dir(self.directory / "runs", run_id)
        job = a_submission(
            run_id=run_id,
            name="on-slurm",
            program=Program(kind=ProgramKind.SCRIPT, target=script, arguments=arguments),
            package=package(code, run_dir / jobs.CODE_FILE),
            hosts=fields.pop("hosts", 2),
            **fields,
        )
        engine = slurm.engine(self.environ, {})
        jobs.submit_job(job, engine, run_dir)
        taken = jobs.submitted(run_dir)
        assert taken is not None
        return Given(self.cluster, engine, taken.handle, run_dir)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, make_user_environment):
    if (why := missing()) is not None:
        pytest.skip(why)
    directory = tmp_path_factory.mktemp("slurm")
    with SlurmCluster(directory, make_user_environment(directory / "state")) as cluster:
        yield cluster


@pytest.fixture
def submitter(cluster, tmp_path):
    yield Submitter(cluster, tmp_path, cluster.environ)
    cluster.command("scancel", "--user=root", check=False)
    for index in range(1, cluster.hosts.count):
        if not cluster.is_on(index):
            cluster.power_on(index)
    cluster.all_up()


def test_digits_learn_on_two_nodes_and_the_recording_lies_in_place(submitter, examples):
    given = submitter.submit("digits_ddp.py", "--epochs", "6", code=examples, environment={"SECRET": "it's 42"})
    seen = given.until_ended()
    assert (seen.status, seen.exit_code, seen.tries) == (Status.COMPLETED, 0, 1), given.output
    assert seen.nodes == {"algo-2": "algo-2", "algo-3": "algo-3"}
    found = evidence(given.run_dir)
    assert found.run.id == given.run_dir.name and set(found.hosts) == {"algo-2", "algo-3"}
    assert {rank.rank: rank.exit.code for rank in found.ranks} == {0: 0, 1: 0}
    assert "test accuracy" in given.output
    kept = [path for path in given.run_dir.rglob("*") if path.is_file() and b"it's 42" in path.read_bytes()]
    assert not kept, "a secret lies in the run's directory"


def test_the_engine_keeps_the_contract(submitter, tmp_path):
    engine = slurm.engine(submitter.environ, {})
    script = tmp_path / "job.py"
    script.write_text("import sys, time; time.sleep(float(sys.argv[1])); sys.exit(int(sys.argv[2]))")

    def job(seconds: str, code: str, **fields) -> Submission:
        program = Program(kind=ProgramKind.SCRIPT, target=str(script), arguments=(seconds, code))
        return a_submission(run_id=f"r-{os.urandom(3).hex()}", name="contract", program=program, hosts=2, **fields)

    check_plan(engine, job("0", "0", environment={"KEY": "a-very-secret-value"}))
    check_ends(engine, job("1", "0"), tmp_path / "runs", seconds=60)
    check_ends(engine, job("0", "3"), tmp_path / "runs", seconds=60, code=3)
    check_cancel(engine, job("600", "0"), tmp_path / "runs", seconds=60)
    check_refused(engine, job("0", "0", engine_options={"partition": "nope"}), tmp_path / "runs", "E34")


def test_the_code_of_a_failing_script_is_the_jobs(submitter):
    given = submitter.submit("import os, sys; sys.exit(7 if os.environ['RANK'] == '1' else 0)")
    seen = given.until_ended()
    assert (seen.status, seen.exit_code) == (Status.FAILED, 7), given.output
    assert seen.reason == "rank 1 on algo-3 ended with code 7"
    assert "JobState=FAILED" in given.scontrol() and "ExitCode=7:0" in given.scontrol()


def test_a_job_that_is_cancelled_ends_in_order(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path), retries=2)
    given.until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
    modes = {name: (given.run_dir / "slurm" / name).stat().st_mode & 0o777 for name in ("environment", "token")}
    assert modes == {"environment": 0o600, "token": 0o600}
    given.engine.cancel(given.handle, given.run_dir)
    seen = given.until_ended()
    assert (seen.status, seen.secondary_status) == (Status.STOPPED, SecondaryStatus.STOPPED), given.output
    assert all((tmp_path / f"told-{rank}").exists() for rank in (0, 1)), given.output
    given.until(lambda: "JobState=CANCELLED" in given.scontrol())
    assert evidence(given.run_dir).run.status is Status.STOPPED
    given.engine.cancel(given.handle, given.run_dir)


def test_a_job_can_be_cancelled_at_once(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path))
    given.until(lambda: (tmp_path / "ready-0").exists())
    given.engine.cancel(given.handle, given.run_dir, now=True)
    assert given.until_ended(30.0).status is Status.STOPPED


def test_a_node_that_is_switched_off_is_a_lost_host(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path))
    given.until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
    submitter.cluster.power_off(2)
    seen = given.until_ended()
    assert (seen.status, seen.exit_code) == (Status.FAILED, 200), given.output
    assert "algo-3" in seen.reason


@pytest.mark.wide
def test_a_lost_first_node_starts_the_job_again_where_retries_are_left(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path), retries=1)
    given.until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
    submitter.cluster.power_off(1)
    submitter.cluster.say_down(1)
    (tmp_path / "go").touch()
    given.until(lambda: "Restarts=1" in given.scontrol())
    submitter.cluster.power_on(1)
    seen = given.until_ended()
    assert (seen.status, seen.exit_code, seen.tries) == (Status.COMPLETED, 0, 2), given.output
    assert newest_try(given.run_dir).name == f"{given.run_dir.name}.2"
    assert evidence(newest_try(given.run_dir)).run.status is Status.COMPLETED


def test_a_time_limit_gives_every_rank_time_for_a_checkpoint_and_the_job_goes_on(submitter, tmp_path):
    # Slurm looks at limits twice a minute, so the warning may come before a try is ready: then that try counts, and one more follows.
    limits = {"partition": "short", "time": "1"}
    given = submitter.submit(CHECKPOINTS, str(tmp_path), retries=4, stop_grace_seconds=5.0, engine_options=limits)
    seen = given.until_ended(150.0)
    assert (seen.status, seen.exit_code) == (Status.COMPLETED, 0), given.output
    assert seen.tries > 1 and all((tmp_path / f"checkpoint-{rank}").exists() for rank in (0, 1))
    assert "time limit, asks every rank to end" in given.output and "goes on from try" in given.output
    assert f"Restarts={seen.tries - 1}" in given.scontrol()


def test_a_preempted_job_is_started_again(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path), retries=1)
    given.until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
    urgent = (
        "sbatch",
        "--parsable",
        "--partition=urgent",
        "--nodes=2",
        "--exclusive",
        "--output=/dev/null",
        "--wrap",
        "sleep 1",
    )
    submitter.cluster.command(*urgent)
    given.until(lambda: "Restarts=1" in given.scontrol())
    assert not given.observe().ended
    (tmp_path / "go").touch()
    seen = given.until_ended()
    assert (seen.status, seen.tries) == (Status.COMPLETED, 2), given.output


def test_a_requeued_job_goes_on_at_the_saved_step(submitter, tmp_path):
    going_on = GoingOn(tmp_path)
    job = {"code": going_on.code, "hosts": 1, "retries": 1, "resume": True}
    given = submitter.submit("train.py", *going_on.arguments, **job)
    going_on.until_saved(lambda: [given.run_dir / "state"], lambda: given.output)
    submitter.cluster.command("scontrol", "requeue", given.handle["job_id"])
    given.until(lambda: "Restarts=1" in given.scontrol(), patient(60))
    going_on.go()
    seen = given.until_ended(patient(100))
    assert (seen.status, seen.tries) == (Status.COMPLETED, 2), given.output
    going_on.check(newest_try(given.run_dir))
    assert not list((given.run_dir / "state").glob("step-*")), "a job that has ended well leaves its saved steps"


def test_agents_that_slurm_tells_to_end_are_started_again(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path), retries=1)
    given.until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
    # What a preemption with GraceTime begins with: SIGTERM to the steps, not to the script.
    submitter.cluster.command("scancel", "--signal=TERM", given.handle["job_id"])
    given.until(lambda: "Restarts=1" in given.scontrol())
    (tmp_path / "go").touch()
    assert given.until_ended().tries == 2, given.output


def test_a_job_at_its_own_limit_is_not_started_again(submitter, tmp_path):
    given = submitter.submit(WAITS, str(tmp_path), retries=1, max_run_seconds=2.0)
    seen = given.until_ended()
    assert (seen.secondary_status, seen.exit_code, seen.tries) == (SecondaryStatus.MAX_RUNTIME_EXCEEDED, 204, 1), (
        given.output
    )


def test_options_reach_slurm_and_a_pending_job_can_be_taken_back(submitter, tmp_path):
    options = {"account": "physics", "array": "0-2%1", "sbatch.comment": "from a test", "sbatch.hold": ""}
    given = submitter.submit(WAITS, str(tmp_path), engine_options=options, max_run_seconds=600.0)
    said = given.scontrol()
    for field in (
        "Account=physics",
        "ArrayTaskId=0-2%1",
        "Comment=from a test",
        "JobName=on-slurm",
        "TimeLimit=00:16:00",
        "NumNodes=2",
    ):
        assert field in said
    assert given.observe().secondary_status is SecondaryStatus.PENDING
    given.engine.cancel(given.handle, given.run_dir)
    assert given.until_ended(20.0).status is Status.STOPPED


def test_each_task_of_an_array_has_a_recording_of_its_own(submitter):
    given = submitter.submit(
        "import os; print('task', os.environ['SLURM_ARRAY_TASK_ID'])", hosts=1, engine_options={"array": "0-1"}
    )
    seen = given.until_ended()
    assert (seen.status, seen.exit_code) == (Status.COMPLETED, 0), given.output
    assert "task 0" in given.output and "task 1" in given.output
    for task in (0, 1):
        assert evidence(given.run_dir.with_name(f"{given.run_dir.name}-{task}")).run.exit_code == 0


@pytest.mark.parametrize(
    ("fields", "code", "argv"),
    [
        ({"engine_options": {"partition": "nope"}}, "E34", "nope"),
        ({"hosts": 3}, "E33", "Node count"),
        ({"engine_options": {"time": "500"}}, "E33", "time limit"),
        ({"engine_options": {"gres": "gpu:1"}}, "E33", "gres"),
        ({"engine_options": {"mem": "99G"}}, "E33", "Memory"),
        ({"engine_options": {"sbatch.nosuch": "1"}}, "E34", "nosuch"),
    ],
)
def test_what_slurm_refuses_is_said_in_four_parts_and_leaves_nothing(submitter, tmp_path, fields, code, argv):
    with pytest.raises(UsageError) as refused:
        submitter.submit(WAITS, str(tmp_path), **fields)
    error = refused.value
    assert error.code == code and argv in error.saw
    assert error.what and error.next and error.more == f"paceline help {code}"
    assert not list((tmp_path / "runs").iterdir())


def test_a_machine_without_slurm_says_so(submitter, tmp_path):
    submitter.environ = {**submitter.environ, "PATH": str(tmp_path)}
    with pytest.raises(UsageError, match="no sbatch here"):
        submitter.submit(WAITS, str(tmp_path))
    assert shutil.which("sbatch", path=str(tmp_path)) is None
