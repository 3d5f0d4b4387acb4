"""Training scripts whose ranks are killed, and whether what they wrote is what an undisturbed run under torchrun writes.

Shared by the tests beside this file and by bench/resume_kills.py. There are three outcomes of a run: equal, refused by a code
(paceline said at the first step that it cannot resume this script, and the script went on), and wrong.
"""

import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import watching
from comparison import compare_ranks
from patience import patient
from watching import MARK, FollowedFile, Run, Stopped, is_in, kill

from paceline.parts.resume.recording.state_buffer import Keeping, StateCell
from paceline.recording.rank_sets import newest_common
from paceline.recording.ring import RingHeader

SCRIPTS = Path(__file__).parent / "scripts"
RESUMING = ("--resume", "auto")
_MOST_SECONDS = 150.0
_POLL_SECONDS = 0.001
# A reference that ends badly after its last line: torch 2.13 aborts now and then while it ends, under torchrun as well.
_REFERENCE_TRIES = 6
_CODE = re.compile(r"\b(F\d\d)\b")


@dataclass(frozen=True)
class Case:
    """A script with its arguments. `refused`: the code with which it may be refused; None: it must be resumed. `unseeded`: its seeds
    are in the first line of each rank, and it takes them as --seeds. `ranks`: always so many. `options`: of paceline run; torchrun lacks
    them, so such a case is compared with an undisturbed `paceline run --resume off`. `says`: a part of the line that refuses it."""

    script: str
    argv: tuple[str, ...] = ()
    refused: str | None = None
    needs: str | None = None
    unseeded: bool = False
    ranks: int | None = None
    options: tuple[str, ...] = ()
    says: str = ""

    @property
    def name(self) -> str:
        return " ".join((self.script, *self.argv, *self.options))


GRADIENTS = (
    "ring", "hierarchical", "direct", "direct:fuse_mib=1", "parameter_server", "bf16", "direct+bf16", "hierarchical+bf16", "int8",
    "direct+int8", "parameter_server+bf16", "parameter_server+int8", "powersgd", "direct+powersgd:rank=2", "local_sgd:every=4",
    "direct+local_sgd:every=2",
)  # fmt: skip
CASES = (
    Case("full"),
    Case("full", ("--workers", "2")),
    Case("full", ("--workers", "2", "--persistent")),
    # Python 3.14's default.
    Case(
        "full",
        ("--workers", "1", "--persistent", "--start-method", "forkserver"),
        refused="F12",
        says="the workers of a loader are not forks of the rank",
    ),
    Case("full", ("--hidden", "700", "--batches", "16")),
    Case("module_level"),
    Case("while_next"),
    Case("while_next", ("--workers", "2")),
    Case("prefetcher"),
    Case("prefetcher", ("--workers", "1")),
    Case("gan"),
    Case("swa"),
    Case("no_sync"),
    Case("no_sync", ("--workers", "1")),
    Case("iterable", ("--plain",)),
    Case("iterable", ("--plain", "--workers", "2")),
    Case("iterable", refused="F12", says="an IterableDataset draws random numbers in the process that trains"),
    Case("iterable", ("--workers", "2")),
    Case("samplers"),
    Case("samplers", ("--workers", "2")),
    Case("random_splits", unseeded=True),
    Case("random_splits", ("--workers", "1"), unseeded=True),
    Case("two_files"),
    Case("two_files", ("--workers", "1")),
    Case("early_stopping"),
    Case("cycle", refused="F13", says="`batches` is a generator (cycle) that has begun"),
    Case("cycle", ("--no-accumulation",), refused="F13", says="`batches` is a generator (cycle) that has begun"),
    Case("cycle", ("--workers", "1"), refused="F13", says="`batches` is a generator (cycle) that has begun"),
    Case("fine_tuning"),
    Case("truncated_bptt"),
    Case("folds"),
    Case("bookkeeping"),
    Case("single_process", ranks=1),
    Case("single_process", ("--workers", "1"), ranks=1),
    Case("grad_scaler"),
    Case("grad_scaler", ("--dtype", "float16")),
    Case("whiles"),
    Case("on_device"),
    Case("on_device", ("--workers", "1")),
    Case("replay"),
    Case("shared_tensors"),
    Case("shared_tensors", ("--reset",)),
    Case("best_weights"),
    Case("best_weights", ("--own",)),
    Case("compiled"),
    Case("compiled", ("--backend", "aot_eager")),
    Case("two_phases"),
    Case("half_way"),
    Case("averages"),
    *(
        Case("shapes", ("--shape", shape))
        for shape in (
            "zipped",
            "sliced",
            "of_one_loader",
            "returning",
            "caught",
            "walrus",
            "own_iterator",
            "generator",
            "wrapped",
            "yielding",
            "coroutine",
            "comprehension",
            "two_loops",
            "curriculum",
            "signals",
            "forked",
        )
    ),
    Case("shapes", ("--shape", "curriculum", "--workers", "1")),
    Case("shapes", ("--shape", "zipped", "--workers", "1")),
    Case("shapes", ("--shape", "wrapped", "--workers", "1")),
    Case(
        "shapes",
        ("--shape", "yielding_zipped"),
        refused="F13",
        says="the training loop makes the items of another loop",
    ),
    Case("shapes", ("--shape", "held_zip"), refused="F13", says="is a zip around a data loader that has begun"),
    Case("shapes", ("--shape", "held_cycle"), refused="F13", says="is a cycle around a data loader that has begun"),
    Case("shapes", ("--shape", "ahead"), refused="F13", says="a thread of the script reads a data loader"),
    Case("shapes", ("--shape", "in_a_thread"), refused="F13", says="a thread of the script reads a data loader"),
    Case("shapes", ("--shape", "hooked"), refused="F13", says="gets or loses a hook while it trains"),
    *(Case("strategies", options=("--gradients", name)) for name in GRADIENTS),
    Case("strategies", options=("--gradients", "auto"), ranks=2),
    Case("strategies", ("--use", *GRADIENTS[1:-2], "--hook", "int8", "powersgd")),
    Case("strategies", ("--use", *GRADIENTS[-2:])),
    Case(
        "strategies",
        ("--use", "ring", "direct", "--nested"),
        refused="F13",
        says="the training loop is inside a loop over a data loader",
    ),
    Case("strategies", ("--backend", "paceline")),
    Case("strategies", ("--backend", "smddp")),
    Case("fsdp"),
    Case("fsdp", ("--mixed",)),
    Case("fsdp", ("--whole",)),
    Case("accelerate_loop", needs="accelerate"),
    Case(
        "lightning_trainer",
        refused="F11",
        needs="lightning",
        says='the training loop is that of lightning.Trainer ({script}), which resumes by trainer.fit(model, ckpt_path="last"), with',
    ),
    Case(
        "hf_trainer",
        refused="F11",
        needs="transformers",
        says="the training loop is that of transformers.Trainer ({script}), which resumes by trainer.train(resume_from_checkpoint=",
    ),
)


@dataclass(frozen=True)
class Plan:
    """One kill. `when`: "time", "step" (once so many were made), "again" (while the last one is being repaired), or a phase.

    `victim`: "rank", "all", "worker", "host", "fork server" (with a rank).
    """

    when: str
    victim: str = "rank"
    seconds: float = 0.0
    step: int = 0


@dataclass
class Kill:
    """A kill that was made."""

    when: str
    victim: str
    ranks: list[int]
    step: int | None
    """The rank's finished steps at that moment; None: it keeps no state."""
    seconds: float | None = None
    """From the kill until every rank has finished a step again; None: another kill or the end came before."""
    stack: str = ""
    """Where the rank was, where that was looked at."""


@dataclass
class Outcome:
    """What one run came to."""

    case: str
    ranks: int
    hosts: int
    seed: int
    verdict: str
    """equal, refused F.., or wrong."""
    complaints: list[str]
    kills: list[Kill]
    missed: list[str]
    """Phases that were waited for in vain."""
    redone: list[int]
    """Steps made again, for each time that the ranks went back."""
    every: int
    """The state is kept every so many steps."""
    codes: list[str]
    seconds: float
    err: str = ""
    load: float | None = None
    """Load average of the machine, where it was noted."""


@dataclass(frozen=True)
class Launch:
    """How a case is run."""

    case: Case
    ranks: int = 2
    """Of each host."""
    hosts: int = 1
    options: tuple[str, ...] = RESUMING
    slow_seconds: float = 0.03

    @property
    def world_size(self) -> int:
        return self.ranks * self.hosts


Lines = Mapping[int, Sequence[str]]


def reference(
    case: Case, ranks: int, directory: Path, environment: Mapping[str, str], made: Lines | None = None
) -> dict[int, list[str]]:
    """The lines of each rank of an undisturbed run under torchrun, or under paceline where it has options; made once.

    `directory`: they are read from there afterwards. `made`: for seeds.

    Raises:  RuntimeError: it ended badly again and again
    """
    seeds = ["--seeds", ",".join(_seeds(made or {}))] if case.unseeded else []
    kept = directory / f"{re.sub(r'[^a-z0-9]+', '-', ' '.join((case.name, *seeds)))}-{ranks}.json"
    if kept.exists():
        return {int(rank): lines for rank, lines in json.loads(kept.read_text()).items()}
    directory.mkdir(parents=True, exist_ok=True)
    # torchrun knows neither paceline's options nor its backends.
    if case.options or "--backend" in case.argv:
        argv = [sys.executable, "-m", "paceline", "run", "--set", "progress=off", "--resume", "off", *case.options]
    else:
        argv = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "localhost:0",
        ]
    argv += ["--nproc-per-node", str(ranks)]
    err = ""
    for attempt in range(_REFERENCE_TRIES):
        out = kept.with_suffix(f".{os.getpid()}.{attempt}")
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        done = subprocess.Popen(
            [*argv, str(SCRIPTS / f"{case.script}.py"), "--out", str(out), *case.argv, *seeds],
            cwd=out,
            env=dict(environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _, err = done.communicate(timeout=patient(_MOST_SECONDS))
        except subprocess.TimeoutExpired:
            # On Python 3.14 a thread of gloo's may keep the process from its end (pytorch/pytorch#190489): torchrun waits for it.
            done.terminate()
            _, err = done.communicate()
        lines = lines_of(out)
        shutil.rmtree(out)
        if done.returncode == 0 and sorted(lines) == list(range(ranks)):
            partial = kept.with_suffix(f".{os.getpid()}.part")
            partial.write_text(json.dumps(lines))
            partial.replace(kept)
            return lines
    raise RuntimeError(f"{case.name} undisturbed ended with {done.returncode}\n{err[-3000:]}")


def _seeds(made: Lines) -> list[str]:
    cut, _ = _since_its_seed(made)
    return [lines[0].split()[-1] if lines else "0" for _, lines in sorted(cut.items())]


def lines_of(out: Path) -> dict[int, list[str]]:
    """What each rank wrote; a last line without its end counts as a line."""
    return {int(path.stem.removeprefix("rank")): path.read_text().splitlines() for path in out.glob("rank*.log")}


@dataclass
class Job:
    """One `paceline run` of a case, seen from outside while it runs."""

    launch: Launch
    directory: Path
    environment: Mapping[str, str]
    kills: list[Kill] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    kept: bool = False
    refused: bool = False
    stopped: bool = False
    every: int = 0
    began: float = 0.0
    # The number of the newest attempt that was seen, from 0.
    attempts: int = 0
    seen_pids: set[int] = field(default_factory=set)
    files: list[FollowedFile] = field(default_factory=list)
    # The newest step that all ranks had kept when the last kill was made.
    kept_step: int = 0
    # The processes whose kill has not been repaired, and when it was (Unix ns).
    killed: tuple[dict[int, int], int] | None = None

    def start(self) -> None:
        launch, case = self.launch, self.launch.case
        self.out = self.directory / "out"
        self.out.mkdir(parents=True)
        self.files = [FollowedFile(self.out / f"rank{rank}.log") for rank in range(launch.world_size)]
        mark = f"{self.directory.name}-{os.getpid()}-{time.monotonic_ns()}"
        hosts = ["--local-hosts", str(launch.hosts)] if launch.hosts > 1 else []
        argv = [sys.executable, "-m", "paceline", "run", "--set", "progress=off", "--nproc-per-node", str(launch.ranks)]
        argv += [
            *hosts,
            *launch.options,
            *case.options,
            str(SCRIPTS / f"{case.script}.py"),
            "--out",
            str(self.out),
            *case.argv,
        ]
        with (self.directory / "stdout").open("wb") as out, (self.directory / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                argv,
                cwd=self.directory,
                env={**self.environment, MARK: mark, "SLOW_SECONDS": str(launch.slow_seconds)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.run = Run(mark, launch.hosts)
        self.began = time.monotonic()

    @property
    def over(self) -> bool:
        return self.process.poll() is not None or time.monotonic() - self.began > patient(_MOST_SECONDS)

    def look(self) -> dict[int, RingHeader]:
        """The living ranks of the newest attempt. Notes what their state buffers say."""
        for file in self.files:
            file.look()
        ranks = self.run.ranks()
        self.seen_pids |= {header.pid for header in ranks.values()}
        self.attempts = max([self.attempts, *(header.attempt for header in ranks.values())])
        headers = self.run.headers(ranks)
        for header in headers.values():
            self.kept |= header.cells[StateCell.KEEPING] == Keeping.KEPT
            self.refused |= header.cells[StateCell.KEEPING] == Keeping.REFUSED
            self.stopped |= header.cells[StateCell.KEEPING] == Keeping.STOPPED
            self.every = max(self.every, header.cells[StateCell.EVERY])
        if self.killed is not None and len(ranks) == self.launch.world_size:
            pids, killed_ns = self.killed
            if all(header.pid != pids.get(rank) for rank, header in ranks.items()):
                ends = [self._end_of_a_step(rank, ranks, headers) for rank in ranks]
                # The end that counts is the first one of each rank; steps are longer than the pause between two looks.
                if all(end > killed_ns for end in ends):
                    self.kills[-1].seconds = round((max(ends) - killed_ns) / 1e9, 4)
                    self.killed = None
        return ranks

    def newest_kept(self) -> int | None:
        """The newest step that every rank has kept; None: there is none."""
        return newest_common({rank: state.steps() for rank, state in self.run.headers(self.run.ranks()).items()})

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Look again and again until it holds. False: it did not, or the run is over."""
        until = time.monotonic() + patient(seconds)
        while not self.over and time.monotonic() < until:
            self.look()
            if condition():
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def kill(self, plan: Plan, ranks: Mapping[int, RingHeader], pids: Iterable[int], stack: str = "") -> bool:
        """SIGKILL these processes. False: none was there any more."""
        step = max(
            (header.cells[StateCell.STEP_COUNT] for header in self.run.headers(dict(ranks)).values()), default=None
        )
        self.kept_step = self.newest_kept() or 0
        wanted = set(pids)
        killed_ns = time.time_ns()
        killed = [kill(pid) for pid in wanted]
        if not any(killed):
            return False
        victims = sorted(rank for rank, header in ranks.items() if header.pid in wanted)
        self.kills.append(Kill(plan.when, plan.victim, victims, step, stack=stack))
        self.killed = ({rank: header.pid for rank, header in ranks.items()}, killed_ns)
        return True

    def end(self) -> list[int]:
        """Wait for the end, at most as long as a run may take. Returns processes that are still there, and kills them."""
        while not self.over:
            self.look()
            time.sleep(0.01)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(patient(10))
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        # The guardian stays two seconds longer than the agent.
        until = time.monotonic() + patient(6)
        while (left := self.run.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in left:
            kill(pid)
        self.run.close()
        return left

    @staticmethod
    def _end_of_a_step(rank: int, ranks: Mapping[int, RingHeader], headers: Mapping[int, watching.StateHeader]) -> int:
        if rank in headers and headers[rank].cells[StateCell.STEP_NS]:
            return headers[rank].cells[StateCell.STEP_NS]
        return ranks[rank].last_step_ns or 0


def run_with_kills(
    launch: Launch,
    plans: Sequence[Plan],
    references: Path,
    directory: Path,
    environment: Mapping[str, str],
    *,
    seed: int,
) -> Outcome:
    """Run a case once, kill as planned while it runs, and compare. `references`: of `reference`; `directory`: new, empty."""
    rng = random.Random(seed)
    job = Job(launch, directory, environment)
    job.start()
    for plan in plans:
        if not _carry_out(plan, job, rng):
            if plan.when in PHASES:
                job.missed.append(plan.when)
            if job.over or job.refused:
                break
    left = job.end()
    # Meanwhile the machine was the job's alone.
    lines = reference(launch.case, launch.world_size, references, environment, lines_of(job.out))
    return _outcome(job, lines, left, seed)


def _since_its_seed(made: Lines) -> tuple[dict[int, Sequence[str]], int]:
    """What each rank wrote since it had the seed that it had in the end, and the steps before: those of an attempt that kept nothing."""
    cut, lost = {}, 0
    for rank, lines in made.items():
        last = next((line for line in reversed(lines) if line.startswith("begin seed")), None)
        first = lines.index(last) if last is not None else 0
        cut[rank] = lines[first:]
        lost = max(lost, sum(line.startswith("step ") for line in lines[:first]))
    return cut, lost


def _is_expected(case: Case, codes: Sequence[str], err: str) -> bool:
    """Whether a refusal has the code and the words of this case."""
    said = re.sub(rf"{re.escape(str(SCRIPTS / case.script))}\.py:\d+", "{script}", err)
    return case.refused in codes and case.says in said


def _outcome(job: Job, lines: Lines, left: Sequence[int], seed: int) -> Outcome:
    launch = job.launch
    err = (job.directory / "stderr").read_text(errors="replace")
    codes = sorted(set(_CODE.findall(err)))
    most_redone = max(job.every, 1) + 1
    for file in job.files:
        file.look()
    # What the ranks wrote, and what is there in the end: paceline cuts the lines of steps that are made again.
    written: Lines = {rank: file.written for rank, file in enumerate(job.files)}
    there: Lines = lines_of(job.out)
    lost = 0
    if launch.case.unseeded:
        written, lost = _since_its_seed(written)
        there, _ = _since_its_seed(there)
    limits = {"most_redone": most_redone, "restarts": job.attempts}
    complaints, redone = compare_ranks(lines, written, **limits)
    complaints += [f"in the file: {text}" for text in compare_ranks(lines, there, **limits)[0]]
    if lost > most_redone:
        complaints.append(f"{lost} steps were lost to an attempt with other seeds")
    if all(kill.step for kill in job.kills) and any(list(there.get(rank, ())) != list(lines[rank]) for rank in lines):
        complaints.append("lines of steps that were made again stand in the file twice")
    if job.process.returncode != 0:
        complaints.insert(0, f"exit code {job.process.returncode}")
    if "off" not in launch.options and "--resume" in launch.options and not job.kept and not job.refused:
        complaints.append("no state was kept, and no rank said why")
    if left:
        complaints.append(f"{len(left)} processes were left behind")
    if job.kills and launch.case.refused is None:
        complaints += [f"{code} was not expected" for code in codes if code in ("F11", "F12", "F13")]
    verdict = "wrong" if complaints else "equal"
    if job.refused and not job.kills and not complaints:
        verdict = f"refused {' '.join(codes)}" if codes else "wrong"
        complaints += [] if codes else ["refused without a code"]
    if verdict.startswith("refused") and not _is_expected(launch.case, codes, err):
        # It is no third outcome, but nobody expects it.
        verdict += " (not expected)"
    return Outcome(
        launch.case.name,
        launch.ranks,
        launch.hosts,
        seed,
        verdict,
        complaints,
        job.kills,
        job.missed,
        redone,
        job.every,
        codes,
        round(time.monotonic() - job.began, 1),
        "" if verdict == "equal" else err[-4000:],
    )


def _carry_out(plan: Plan, job: Job, rng: random.Random) -> bool:
    """Wait for the moment of one kill and make it. False: the moment did not come."""
    if plan.when == "again":
        # The last two may have gone back to the same step: not every rank had kept the next one. A third would end the job.
        on_one_step = len(job.kills) > 1 and job.kills[-1].step - job.kills[-2].step <= 1
        if job.killed is None or on_one_step:
            return False
        before = set(job.killed[0].values())
        if not job.until(lambda: any(header.pid not in before for header in job.run.ranks().values()), 30):
            return False
        _wait(job, plan.seconds)
        return _kill_now(plan, job, rng)
    # A step that fails three times ends the job: each kill finds a job that has got on.
    if not job.until(lambda: _has_got_on(job), 60):
        return False
    if plan.when == "start":
        _wait(job, plan.seconds)
        return _kill_now(plan, job, rng)
    if not job.until(lambda: _has_trained(job), 60) or job.refused:
        return False
    if plan.when in ("time", "step"):
        job.until(lambda: _steps_made(job) >= plan.step, 60)
        _wait(job, plan.seconds)
        return _kill_now(plan, job, rng)
    return _PHASES[plan.when](plan, job, rng)


def _has_got_on(job: Job) -> bool:
    if job.killed is not None or len(job.run.ranks()) != job.launch.world_size:
        return False
    return not job.kept_step or (job.newest_kept() or 0) > job.kept_step


def _has_trained(job: Job) -> bool:
    ranks = job.run.ranks()
    headers = job.run.headers(ranks)
    if not headers:
        return all(header.step_count > 1 for header in ranks.values())
    # Before the first kept step nothing of the files can be cut. Under local_sgd that is not the first one.
    return (
        len(headers) == job.launch.world_size
        and all(header.cells[StateCell.STEP_COUNT] > 1 for header in headers.values())
        and (job.refused or job.newest_kept() is not None)
    )


def _steps_made(job: Job) -> int:
    headers = job.run.headers(job.run.ranks())
    return min((header.cells[StateCell.STEP_COUNT] for header in headers.values()), default=0)


def _wait(job: Job, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not job.over:
        job.look()
        time.sleep(_POLL_SECONDS)


def _kill_now(plan: Plan, job: Job, rng: random.Random) -> bool:
    ranks = job.look()
    if not ranks:
        return False
    if plan.victim == "all":
        chosen = sorted(ranks)
    elif plan.victim == "host":
        chosen = rng.choice(job.run.hosts() or [sorted(ranks)])
    elif plan.victim == "worker":
        workers = job.run.loader_workers(ranks[rng.choice(sorted(ranks))].pid)
        return bool(workers) and job.kill(plan, ranks, [rng.choice(workers)])
    elif plan.victim == "fork server":
        servers = [
            pid for pid in job.run.processes() if "fork_server" in watching.command(pid) and pid not in job.seen_pids
        ]
        for pid in servers:
            kill(pid)
        chosen = [rng.choice(sorted(ranks))]
    else:
        chosen = [rng.choice(sorted(ranks))]
    return job.kill(plan, ranks, [ranks[rank].pid for rank in chosen if rank in ranks])


def _in_function(*places: tuple[str, str]) -> Callable[[Plan, Job, random.Random], bool]:
    """A rank whose stack has one of these functions: it goes on for a moment, is stopped and looked at, again and again."""

    def carry_out(plan: Plan, job: Job, rng: random.Random) -> bool:
        ranks = job.look()
        if not ranks:
            return False
        pid = ranks[rng.choice(sorted(ranks))].pid
        until = time.monotonic() + patient(30)
        while not job.over and watching.is_alive(pid) and time.monotonic() < until:
            with Stopped(pid) as rank:
                frames = rank.stack()
                if any(is_in(frames, *place) for place in places):
                    return job.kill(plan, ranks, [pid], _shown(frames))
            time.sleep(rng.uniform(0.0, 0.001))
        return False

    return carry_out


def _shown(frames: Sequence[watching.Frame]) -> str:
    return " < ".join(f"{Path(frame.file).name}:{frame.function}" for frame in frames[:4])


def _when_header(sees: Callable[[watching.StateHeader], bool]) -> Callable[[Plan, Job, random.Random], bool]:
    """A rank whose state buffer says so, and still says so when it stands still."""

    def carry_out(plan: Plan, job: Job, rng: random.Random) -> bool:
        until = time.monotonic() + patient(20)
        ranks = job.look()
        headers = job.run.headers(ranks)
        if not headers:
            return False
        rank = rng.choice(sorted(headers))
        header, pid = headers[rank], ranks[rank].pid
        looked = 0
        while time.monotonic() < until:
            looked += 1
            if sees(header):
                with Stopped(pid):
                    if sees(header):
                        return job.kill(plan, ranks, [pid])
            if looked % 2000 == 0 and (job.over or not watching.is_alive(pid)):
                return False
        return False

    return carry_out


def _in_the_beginning(plan: Plan, job: Job, rng: random.Random) -> bool:
    """A rank is killed, and a rank of the next attempt before it has its state back."""
    return _kill_now(Plan("time"), job, rng) and _carry_out(
        Plan("again", plan.victim, rng.uniform(0.0, 0.04)), job, rng
    )


def _after_a_kill(carry_out: Callable[[Plan, Job, random.Random], bool]) -> Callable[[Plan, Job, random.Random], bool]:
    """A rank is killed, and a rank of the next attempt in this phase, if that has not made its step already."""

    def both(plan: Plan, job: Job, rng: random.Random) -> bool:
        if not _kill_now(Plan("time"), job, rng) or job.killed is None:
            return False
        before = set(job.killed[0].values())
        new = job.until(lambda: any(header.pid not in before for header in job.run.ranks().values()), 30)
        return new and carry_out(plan, job, rng)

    return both


def _put_back(plan: Plan, job: Job, rng: random.Random) -> bool:
    """A rank that has its state back and has made no step since."""
    if job.killed is None:
        return False
    _, killed_ns = job.killed

    def sees() -> bool:
        headers = job.run.headers(job.run.ranks()).values()
        return any(
            header.cells[StateCell.RESUMED_NS] > killed_ns > header.cells[StateCell.STEP_NS] for header in headers
        )

    return job.until(sees, 20) and _kill_now(plan, job, rng)


def _in_restore(plan: Plan, job: Job, rng: random.Random) -> bool:
    """A rank that is putting its state back: stopped again and again from its first instruction on, until it does."""
    if job.killed is None:
        return False
    pids, killed_ns = job.killed
    while not job.over and job.killed is not None:
        ranks = {rank: header for rank, header in job.look().items() if header.pid != pids.get(rank)}
        for rank, header in ranks.items():
            state = job.run.headers(ranks).get(rank)
            if state is not None and state.cells[StateCell.RESUMED_NS] > killed_ns:
                return False
            with Stopped(header.pid) as stopped:
                frames = stopped.stack()
                if is_in(frames, r"resume/worker/", r".*(restore|put_back|refill|apply).*"):
                    return job.kill(plan, ranks, [header.pid], _shown(frames))
        time.sleep(rng.uniform(0.0, 0.01))
    return False


_PHASES: dict[str, Callable[[Plan, Job, random.Random], bool]] = {
    "optimizer.step": _in_function((r"torch/optim/", r"step")),
    "evaluation": _in_function((r"whole/scripts/", r"evaluate|validate|test|test_epoch|accuracy")),
    "copy": _when_header(watching.is_writing),
    "sealed, no batch": _when_header(watching.is_sealed_without_batch),
    "prologue": _in_the_beginning,
    "restore": _after_a_kill(_in_restore),
    "restored": _after_a_kill(_put_back),
}
PHASES = tuple(_PHASES)


def random_plans(rng: random.Random, count: int, *, victims: Sequence[str], span_seconds: float) -> list[Plan]:
    """Kills at random instants: each so long after the last one was repaired, now and then while it is being repaired."""
    plans: list[Plan] = []
    for number in range(count):
        victim = rng.choice(victims)
        if number and plans[-1].when != "again" and rng.random() < 0.15:
            plans.append(Plan("again", "rank" if victim == "worker" else victim, rng.uniform(0.0, 0.3)))
        elif not number and rng.random() < 0.1:
            plans.append(Plan("start", "rank" if victim == "worker" else victim, rng.uniform(0.0, 1.5)))
        else:
            plans.append(Plan("time", victim, rng.uniform(0.0, span_seconds)))
    return plans


def table(outcomes: Sequence[Outcome]) -> str:
    """One row for each case and number of ranks."""
    rows = [("script", "ranks", "runs", "kills", "equal", "refused", "wrong", "redone", "s to next step: median (max)")]
    for name, ranks, hosts in dict.fromkeys((o.case, o.ranks, o.hosts) for o in outcomes):
        these = [o for o in outcomes if (o.case, o.ranks, o.hosts) == (name, ranks, hosts)]
        seconds = [kill.seconds for o in these for kill in o.kills if kill.seconds is not None]
        redone = [steps for o in these for steps in o.redone]
        rows.append(
            (
                name,
                f"{hosts} x {ranks}" if hosts > 1 else str(ranks),
                str(len(these)),
                str(sum(len(o.kills) for o in these)),
                str(sum(o.verdict == "equal" for o in these)),
                " ".join(
                    sorted({o.verdict.removeprefix("refused ") for o in these if o.verdict.startswith("refused")})
                ),
                str(sum(o.verdict == "wrong" for o in these) or ""),
                " ".join(f"{steps}:{redone.count(steps)}" for steps in sorted(set(redone))),
                f"{statistics.median(seconds):.2f} ({max(seconds):.2f})" if seconds else "",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_json(outcome: Outcome) -> str:
    """One line."""
    return json.dumps(asdict(outcome))


def from_json(line: str) -> Outcome:
    """The reverse of `as_json`."""
    values = json.loads(line)
    return Outcome(**{**values, "kills": [Kill(**kill) for kill in values["kills"]]})
