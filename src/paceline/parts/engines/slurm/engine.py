"""Runs a job on Slurm: srun starts one agent per node of a batch job. A time limit or a lost node leads to another attempt.

The engine runs on a machine with `sbatch`. The run's directory must be on a file system that every node sees under the same path,
because it has the code and the recording.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paceline.errors import PacelineError, UsageError
from paceline.facts import SecondaryStatus, Status
from paceline.part import Observation
from paceline.parts.engines.base import Engine, Handle, Request, Sent, nobody_asks
from paceline.parts.engines.host_check import StartedHost
from paceline.parts.engines.package import unpack
from paceline.parts.engines.slurm import script as script
from paceline.parts.engines.slurm import states as states
from paceline.parts.engines.slurm.errors import absent, refused
from paceline.parts.engines.slurm.hosts import started_on_nodes
from paceline.parts.engines.submission import Submission
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.plain_files import open_plain, read_plain
from paceline.recording.runs import runs_root

COMMAND_SECONDS = 60.0
_UNKNOWN_JOB = "Invalid job id"


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The engine for the Slurm cluster of `environ`: its PATH, SLURM_CONF and SBATCH_ variables.

    Raises:  UsageError U03, E34: an option that the engine does not have, or that it sets itself
    """
    return SlurmEngine(environ, script.checked_options(options))


@dataclass(frozen=True, slots=True)
class SlurmEngine:
    """The Slurm cluster of this machine's commands."""

    requeues: ClassVar[bool] = True
    """Slurm starts the job again after a lost host or a preemption."""
    environ: Mapping[str, str]
    """Environment variables of the process that submits or observes. Slurm's commands run with them."""
    options: Mapping[str, str]
    """The options of `--option`. A job's own options extend and override them."""
    python: str = sys.executable
    """The Python on the nodes, unless an option names another Python."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""
        return "slurm"

    def plan(self, job: Submission) -> Request:
        """The arguments of sbatch, the two scripts and the job file. None of them has environment variables of the job.

        Raises:  UsageError: no hosts, an option that the engine does not have
        """
        options = script.checked_options({**self.options, **job.engine_options})
        if job.hosts < 1:
            raise UsageError(
                "U05",
                f"{job.hosts} hosts are no job",
                saw=f"{job.hosts}; 1 or more",
                next="paceline submit --nnodes 1 ...",
            )
        script.environment_text(job.environment)
        texts = {
            script.SCRIPT: script.job_text(job, options, self.python),
            script.AGENT: script.agent_text(job, options, self.python),
            script.JOB: script.job_file(job),
        }
        return Request(
            engine=self.name, job=job, document={"argv": list(script.sbatch_argv(job, options))}, files=texts
        )

    def submit(self, request: Request, run_dir: Path, sent: Sent = nobody_asks) -> Handle:
        """Write the code and the scripts to the run's directory and submit the job with sbatch.

        Raises:  UsageError E01, E10, E33, E34: Slurm is missing or unreachable, or refuses the job; U22: the directory cannot be used
        """
        self._require("sbatch")
        new = [path for path in (run_dir / script.FOLDER, run_dir / "code") if not path.exists()]
        try:
            _lay(request, run_dir)
            answer = self._ask(*script.filled(tuple(request.document["argv"]), str(run_dir.resolve())))
        except BaseException:
            for path in new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        number, _, cluster = answer.strip().partition(";")
        if not number.isdigit():
            raise states.unreadable("sbatch", answer)
        return {"job_id": number, **({"cluster": cluster} if cluster else {})}

    def observe(self, handle: Handle, run_dir: Path) -> Observation:
        """The state of the job from Slurm, with or without accounting. If Slurm has forgotten the job, its script's files give the state.

        Raises:  UsageError E10: slurmctld cannot be reached
                 PacelineError U19: an unknown state or answer; U19: neither Slurm nor the files know the job any more
        """
        jobs = self._jobs(handle)
        if not jobs:
            return self._forgotten(handle, run_dir)
        seen = [(own.task or "", states.observed(own, self._left(run_dir, own.task, own.restarts + 1))) for own in jobs]
        return seen[0][1] if jobs[0].task is None else states.of_array(seen)

    def logs(self, handle: Handle, run_dir: Path, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """Complete lines of the job's output since the cursor, which has a position in each file."""
        begins: dict[str, int] = json.loads(cursor) if cursor else {}
        lines: list[str] = []
        for file in sorted((run_dir / script.FOLDER).glob("job*.out")):
            with open_plain(file) as stream:
                stream.seek(begins.get(file.name, 0))
                content = stream.read()
            whole = content[: content.rfind(b"\n") + 1]
            begins[file.name] = begins.get(file.name, 0) + len(whole)
            lines += whole.decode("utf-8", "replace").splitlines()
        return lines, json.dumps(begins)

    def cancel(self, handle: Handle, run_dir: Path, *, now: bool = False) -> None:
        """Remove a pending job. Stop a running job through its script, so that every rank gets SIGTERM and its grace.

        Raises:  UsageError E10: slurmctld cannot be reached
        """
        jobs = [job for job in self._jobs(handle) if states.is_working(job.state) and not self._has_ended(job, run_dir)]
        if not jobs:
            return
        (run_dir / script.FOLDER / script.CANCELLED).touch()
        where = ("--clusters", handle["cluster"]) if "cluster" in handle else ()
        for job in jobs:
            target = handle["job_id"] if job.task is None else f"{handle['job_id']}_{job.task}"
            argv: tuple[str, ...] = (target,)
            if job.state == "PENDING":
                # For Slurm, tasks of an array that have not begun are one job with one id.
                argv = ("--state=PENDING", handle["job_id"])
            elif job.state == "RUNNING" and not now:
                argv = ("--signal=TERM", "--batch", target)
            self._ask("scancel", *where, *argv, ends_well=("already completing", "already completed", _UNKNOWN_JOB))

    def start_on_hosts(
        self, job: Submission, wait_seconds: float
    ) -> AbstractAsyncContextManager[Sequence[StartedHost]]:
        """The nodes which the job would get, from salloc; inside an allocation, the nodes of that.

        Raises:  Unknown: no nodes were free; UsageError U03, E34: an option; E01, E10, E33: Slurm is missing, or refuses the job
        """
        options = script.checked_options({**self.options, **job.engine_options})
        directory = job.file.run_dir or str(runs_root(environ=self.environ).absolute())
        python = options.get("python", self.python)
        return started_on_nodes(job, options, python, directory, self.environ, wait_seconds)

    # ----------------------------------------------------------------------------------------------------------------

    def _jobs(self, handle: Handle) -> tuple[states.SlurmJob, ...]:
        """The job, or the tasks of an array, from slurmctld. If slurmctld has forgotten the job, from the accounting; else none."""
        where = ("--clusters", handle["cluster"]) if "cluster" in handle else ()
        answer = self._ask("scontrol", *where, "show", "job", "-o", handle["job_id"], ends_well=(_UNKNOWN_JOB,))
        if found := states.parse_scontrol(answer):
            return found
        if shutil.which("sacct", path=self._path) is None:
            return ()
        fields = f"--format={states.SACCT_FIELDS}"
        answer = self._ask(
            "sacct", *where, "-X", "-D", "-n", "-P", fields, "-j", handle["job_id"], ends_well=("storage is disabled",)
        )
        return states.parse_sacct(answer)

    def _forgotten(self, handle: Handle, run_dir: Path) -> Observation:
        left = self._left(run_dir, None, 0)
        if left.ends:
            return states.of_end(max(left.ends, key=lambda end: end.number), "forgotten", left.nodes, left)
        if (run_dir / script.FOLDER / script.CANCELLED).exists():
            return Observation(
                status=Status.STOPPED,
                secondary_status=SecondaryStatus.STOPPED,
                own_word="forgotten",
                reason="cancelled",
                exit_code=143,
            )
        raise PacelineError(
            "U19",
            f"Slurm does not know job {handle['job_id']} any more",
            saw=f"no scontrol, no accounting, no *.ended in {run_dir / script.FOLDER}",
            next=f"paceline why {run_dir}",
        )

    def _has_ended(self, own: states.SlurmJob, run_dir: Path) -> bool:
        end = self._left(run_dir, own.task, own.restarts + 1).end_of(own.restarts + 1)
        return end is not None and end.next == "end"

    def _left(self, run_dir: Path, task: str | None, number: int) -> states.AttemptFiles:
        """The files that the job left of attempt `number`; 0: of its last attempt."""
        base = run_dir.name if task is None else f"{run_dir.name}-{task}"
        folder = run_dir / script.FOLDER
        ends = [
            states.parse_end(read_plain(file).decode())
            for file in folder.glob(f"{base}*.ended")
            if _is_of(file.name, base)
        ]
        number = number or max((end.number for end in ends), default=1)
        run = base if number == 1 else f"{base}.{number}"
        # A file is empty for a moment while its node writes it.
        nodes = dict(
            words
            for file in sorted(folder.glob(f"{run}.*.node"))
            if _is_node(file.name, run) and len(words := read_plain(file).decode().split()) == 2
        )
        recorded, _, _ = read_run((RunDirectory(run_dir.parent / run),))
        ended = recorded.finished_ns is not None
        return states.AttemptFiles(
            ends=ends,
            nodes=nodes,
            reason=recorded.reason if ended else "",
            secondary=recorded.secondary_status if ended else None,
        )

    @property
    def _path(self) -> str:
        return self.environ.get("PATH", os.defpath)

    def _require(self, command: str) -> None:
        if shutil.which(command, path=self._path) is None:
            raise absent(command, self._path)

    def _ask(self, *argv: str, ends_well: Sequence[str] = ()) -> str:
        """The output of a Slurm command; "" if the command fails with one of the texts of `ends_well`.

        Raises:  UsageError: the translated refusal of the command
        """
        self._require(argv[0])
        try:
            done = subprocess.run(
                argv,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(
                "E10",
                "slurmctld cannot be reached",
                saw=f"{argv[0]} did not answer within {COMMAND_SECONDS:g} s",
                next="scontrol ping",
            ) from error
        if done.returncode == 0:
            return done.stdout
        if any(text in done.stderr for text in ends_well):
            return ""
        raise refused(argv[0], done.stderr or done.stdout, done.returncode)


def _lay(request: Request, run_dir: Path) -> None:
    folder = run_dir / script.FOLDER
    try:
        # No other user may change the files that the nodes will run, whatever the umask and --set run_dir_mode allow.
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, text in request.files.items():
            (folder / name).touch(mode=0o700)
            (folder / name).write_text(text, encoding="utf-8")
        _write_secret(folder / script.TOKEN, secrets.token_hex(16))
        _write_secret(folder / script.ENVIRONMENT, script.environment_text(request.job.environment))
        if request.job.package is not None:
            unpack(Path(request.job.package.archive), run_dir / "code")
    except OSError as error:
        raise UsageError(
            "U22",
            f"the job cannot be laid into {run_dir}",
            saw=f"{error.filename}: {error.strerror}",
            next="paceline submit --run-dir DIR ...",
        ) from error


def _write_secret(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def _is_of(file: str, base: str) -> bool:
    """Whether `file` is the note of an attempt of this run: for r-1, r-1.ended and r-1.2.ended are, r-1-0.ended is not."""
    number = file.removesuffix(".ended").removeprefix(base).removeprefix(".")
    return file in (f"{base}.ended", f"{base}.{number}.ended") and (number.isdigit() or not number)


def _is_node(file: str, run: str) -> bool:
    return file.removeprefix(f"{run}.").removesuffix(".node").isdigit()
