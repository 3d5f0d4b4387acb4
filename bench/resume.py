"""How long is a job away after a rank was killed, and what does it lose? paceline beside what else a user would take, in turn.

    .venv/bin/python bench/resume.py                      20 kills for paceline, 5 for each of the others
    .venv/bin/python bench/resume.py --kills 200 --only paceline
    .venv/bin/python bench/resume.py --cost               what keeping the state costs a step, on three sizes of model
    .venv/bin/python bench/resume.py --early              kills in the first seconds, with idle and with busy cores

Two ranks on gloo train one million parameters (resume_scripts/). One of them, at a random instant of its step, gets SIGKILL; the time is
from there to the end of the first step that the job makes after it has come back. For torchft that is the survivor's next step. The others'
scripts save a checkpoint every 50 steps, because without it they begin again from nothing. nvidia-resiliency-ext and torchft are installed
into environments of their own below --peers, with the torch of this Python. Times are printed with the load average beside them.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = Path(__file__).with_name("resume_scripts")
RANKS = 2
LIMIT_SECONDS = 90.0
# --early: seconds from the first step to the kill, and busy processes for each core beside it.
EARLY_SECONDS, BUSY_EACH = (0.5, 1.0, 2.0, 5.0), (0, 1, 3)
# Steps between two kills: the fork server is ready again, and the frequency has been decided.
STEPS_BETWEEN = (60, 160)


@dataclass(frozen=True)
class Way:
    """One way to run the job. `keeps`: its script saves a checkpoint; `many`: one job is killed several times."""

    name: str
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    requirement: str = ""
    keeps: bool = True
    many: bool = False


PACELINE = (sys.executable, "-m", "paceline", "run", "--set", "progress=off", "--nproc-per-node", str(RANKS))
WAYS = (
    Way("paceline --resume auto", (*PACELINE, "--resume", "auto"), keeps=False, many=True),
    Way("the same, 2 loader workers", (*PACELINE, "--resume", "auto"), ("--workers", "2"), keeps=False, many=True),
    Way("paceline --max-restarts 1", (*PACELINE, "--max-restarts", "1")),
    Way(
        "torchrun --max-restarts 1",
        (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--max-restarts", "1"),
    ),
    Way("nvidia-resiliency-ext", requirement="nvidia-resiliency-ext==0.4.1"),
    Way("torchft", requirement="torchft==0.2.0", keeps=False),
)


@dataclass(frozen=True)
class Step:
    """One line of a process that trains."""

    rank: int
    pid: int
    generation: int
    number: int
    ranks: int
    at_ns: int
    loss: str


@dataclass
class Kill:
    """`seconds` None: the job did not come back within the limit."""

    seconds: float | None
    own_start_seconds: float | None = None
    """Of these, the script's own from its imports to its loop; None: it does not say."""
    again: int = 0
    ranks: int = 0
    same_losses: bool = False

    @property
    def without_own_start(self) -> float | None:
        """The seconds without the script's own; None: one of the two is not known."""
        if self.seconds is None or self.own_start_seconds is None:
            return None
        return self.seconds - self.own_start_seconds


@dataclass
class Job:
    """A running job, and the files into which its processes write their steps."""

    processes: list[subprocess.Popen[bytes]]
    lines: Path
    restart: dict[int, Sequence[str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def steps(self) -> list[Step]:
        found = []
        for path in sorted(self.lines.iterdir()):
            for line in path.read_text().splitlines():
                parts = line.split()
                if len(parts) == 6:
                    found.append(Step(int(path.name.removeprefix("rank")), *map(int, parts[:5]), parts[5]))
        return found

    def own_start_seconds(self, pid: int) -> float | None:
        """How long the script itself took in this process from its imports to its loop; None: it does not say."""
        for path in self.lines.iterdir():
            for line in path.read_text().splitlines():
                if line.startswith(f"{pid} started "):
                    return int(line.split()[2]) / 1e9
        return None

    def until(self, is_met: Callable[[list[Step]], bool], seconds: float = LIMIT_SECONDS) -> list[Step] | None:
        """The steps once a condition holds for them; None: it did not in time, or the job has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if is_met(steps := self.steps()):
                return steps
            if all(process.poll() is not None for process in self.processes):
                return None
            time.sleep(0.02)
        return None


def main() -> int:
    args = _arguments()
    ways = [way for way in WAYS if not args.only or any(part in way.name for part in args.only)]
    rng = random.Random(args.seed)
    if args.cost:
        return cost(args.rounds)
    if args.early:
        return early(args.rounds, rng)
    pythons = {way.name: _python(way, args.peers) for way in ways}
    kills: dict[str, list[Kill]] = {way.name: [] for way in ways}
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        losses = reference(Path(folder))
        turns = 1 if all(way.many for way in ways) else args.others
        for turn in range(turns):
            for way in ways:
                left = args.kills - len(kills[way.name])
                each = -(-left // (turns - turn)) if way.many else 1
                if each > 0:
                    kills[way.name] += trial(way, pythons[way.name], Path(folder), each, losses, rng)
                    print(f"{way.name}: {_told(kills[way.name])}", flush=True)
                loads.append(os.getloadavg()[0])
    print(f"\nload average {min(loads):.1f} to {max(loads):.1f}, {os.cpu_count()} CPUs, torch {torch.__version__}")
    print(
        "| | kills | back | kill to next step: median (min, p95, max) | without the script's own start | steps made again | ranks after "
        "| losses as undisturbed |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for way in ways:
        print(row(way.name, kills[way.name]))
    return 0


def trial(
    way: Way, python: str, folder: Path, number: int, losses: Mapping[int, str], rng: random.Random
) -> list[Kill]:
    """One job, killed so many times."""
    found: list[Kill] = []
    with running(way, python, folder) as job:
        for _ in range(number):
            wanted = rng.randint(*STEPS_BETWEEN)
            before = _made(job.steps())
            steps = job.until(lambda steps, enough=before + wanted: _made(steps) >= enough)
            if steps is None or len({step.rank for step in steps}) < RANKS:
                found.append(Kill(None))
                break
            found.append(kill(job, rng, losses))
            if found[-1].seconds is None:
                break
    return found


def kill(job: Job, rng: random.Random, losses: Mapping[int, str]) -> Kill:
    """End rank 1, and wait until the job is back and has made some steps."""
    time.sleep(rng.uniform(0.0, 0.05))
    steps = job.steps()
    victim = max((step for step in steps if step.rank == 1), key=lambda step: step.at_ns)
    killed_ns = time.time_ns()
    os.kill(victim.pid, signal.SIGKILL)
    if command := job.restart.get(1):
        # torchft has no launcher of its own: whoever watches the process starts it again.
        job.processes.append(
            subprocess.Popen(command, env=job.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def is_back(steps: list[Step]) -> bool:
        return any(step.at_ns > killed_ns and step.generation != victim.generation for step in steps)

    if job.until(is_back) is None:
        return Kill(None)
    after = job.until(
        lambda steps: sum(step.at_ns > killed_ns and step.generation != victim.generation for step in steps) >= 20
    )
    if after is None:
        return Kill(None)
    before = max(step.number for step in after if step.generation == victim.generation)
    back = sorted(
        (step for step in after if step.at_ns > killed_ns and step.generation != victim.generation),
        key=lambda step: step.at_ns,
    )
    compared = [losses[step.number] == step.loss for step in back if step.rank == 0 and step.number in losses]
    return Kill(
        (back[0].at_ns - killed_ns) / 1e9,
        job.own_start_seconds(back[0].pid),
        max(0, before - back[0].number + 1),
        back[-1].ranks,
        bool(compared) and all(compared),
    )


@contextlib.contextmanager
def running(way: Way, python: str, folder: Path) -> Iterator[Job]:
    """A job in a directory of its own below `folder`; both are gone at the end, and what it has started."""
    directory = Path(tempfile.mkdtemp(dir=folder))
    lines = directory / "lines"
    lines.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_"))}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(directory / "state")}
    argv = ["--lines", str(lines), *way.arguments]
    if way.keeps:
        argv += ["--checkpoint", str(directory / "checkpoint.pt")]
    job = Job([], lines)

    def start(command: Sequence[str], **more: str) -> None:
        with (directory / "log").open("ab") as log:
            job.processes.append(
                subprocess.Popen(
                    command, cwd=directory, env=environment | more, stdout=log, stderr=log, start_new_session=True
                )
            )

    if way.options:
        start([*way.options, str(SCRIPTS / "plain.py"), *argv])
    elif way.name == "torchft":
        port = _port()
        lighthouse = Path(python).with_name("torchft_lighthouse")
        # The survivor waits so long for a replica that has not yet said that it is gone.
        start([str(lighthouse), "--bind", f"[::]:{port}", "--min_replicas", "1", "--join_timeout_ms", "1000"])
        environment["TORCHFT_LIGHTHOUSE"] = f"http://127.0.0.1:{port}"
        for rank in range(RANKS):
            start([python, str(SCRIPTS / "replicas.py"), *argv], REPLICA_GROUP_ID=str(rank))
        job.restart[1] = [python, str(SCRIPTS / "replicas.py"), *argv]
        job.environment = environment | {"REPLICA_GROUP_ID": "1"}
    else:
        more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port()), "WORLD_SIZE": str(RANKS)}
        for rank in range(RANKS):
            start([python, str(SCRIPTS / "nvrx.py"), *argv], RANK=str(rank), LOCAL_RANK=str(rank), **more)
    try:
        yield job
    finally:
        for process in job.processes:
            _end(process)
        shutil.rmtree(directory, ignore_errors=True)


def reference(folder: Path) -> dict[int, str]:
    """Step -> loss of rank 0, undisturbed under torchrun."""
    lines = folder / "reference"
    lines.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), str(SCRIPTS / "plain.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "--lines", str(lines), "--steps", "4000"], env=environment, check=True, stderr=subprocess.DEVNULL
    )
    return {step.number: step.loss for step in Job([], lines).steps() if step.rank == 0}


def early(rounds: int, rng: random.Random) -> int:
    """Kill to next step of `paceline --resume auto` where the rank is killed soon after its first step: a process that resumes it may not
    be ready yet.
    """
    print(
        f"| busy processes a core | {' | '.join(f'{seconds:g} s after the first step' for seconds in EARLY_SECONDS)} |"
    )
    print(f"|---|{'---|' * len(EARLY_SECONDS)}")
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        losses = reference(Path(folder))
        for busy in BUSY_EACH:
            cells = []
            with _busy_cores(busy):
                for seconds in EARLY_SECONDS:
                    kills = [_early_kill(Path(folder), seconds, losses, rng) for _ in range(rounds)]
                    same = sum(one.same_losses for one in kills)
                    cells.append(f"{_told(kills)}, {same} with the losses of an undisturbed run")
            print(f"| {busy} | {' | '.join(cells)} |", flush=True)
    return 0


def _early_kill(folder: Path, seconds: float, losses: Mapping[int, str], rng: random.Random) -> Kill:
    with running(WAYS[0], sys.executable, folder) as job:
        steps = job.until(lambda steps: len({step.rank for step in steps}) == RANKS)
        if steps is None:
            return Kill(None)
        time.sleep(max(0.0, min(step.at_ns for step in steps) / 1e9 + seconds - time.time()))
        return kill(job, rng, losses)


@contextlib.contextmanager
def _busy_cores(each: int) -> Iterator[None]:
    """`each` processes for each core, which only use CPU time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(each * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def cost(rounds: int) -> int:
    """Median seconds of a step with and without keeping the state, in turn."""
    print("| parameters | step, off | step, auto | paired ratio: median (min, max) | state kept every |")
    print("|---|---|---|---|---|")
    for width, parameters in ((100, "37 thousand"), (900, "1 million"), (3000, "10 million")):
        ratios, off, auto, every = [], [], [], ""
        for _ in range(rounds):
            pair = []
            for option in ("off", "auto"):
                with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
                    seconds, every = _steps_of(Path(folder), option, width)
                    pair.append(seconds)
            off.append(pair[0])
            auto.append(pair[1])
            ratios.append(pair[1] / pair[0])
        print(
            f"| {parameters} | {1e3 * statistics.median(off):.2f} ms | {1e3 * statistics.median(auto):.2f} ms | "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f}, {max(ratios):.3f}) | {every} |",
            flush=True,
        )
    return 0


def _steps_of(directory: Path, option: str, width: int) -> tuple[float, str]:
    lines = directory / "lines"
    lines.mkdir()
    # The fork server is ready by then, and how often the state is kept is decided.
    steps = {100: 6000, 900: 1800}.get(width, 300)
    argv = ["--lines", str(lines), "--width", str(width), "--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(directory / "state")}
    said = subprocess.run(
        [*PACELINE, "--resume", option, str(SCRIPTS / "plain.py"), *argv],
        cwd=directory, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = [step for step in Job([], lines).steps() if step.rank == 0][2 * steps // 3 :]
    every = next((line for line in said.stderr.splitlines() if "state is kept" in line), "")
    # Of all steps together: the state is not kept at each of them.
    return (found[-1].at_ns - found[0].at_ns) / 1e9 / (len(found) - 1), every.strip()


def row(name: str, kills: Sequence[Kill]) -> str:
    back = [one for one in kills if one.seconds is not None]
    again = sorted({one.again for one in back})
    ranks = sorted({one.ranks for one in back})
    same = sum(one.same_losses for one in back)
    cells = (
        name, len(kills), len(back), _times([one.seconds for one in back]), _times([one.without_own_start for one in back]),
        f"{again[0]} to {again[-1]}" if again else "-", ", ".join(map(str, ranks)), f"{same} of {len(back)}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _told(kills: Sequence[Kill]) -> str:
    back = [one for one in kills if one.seconds is not None]
    return f"{len(back)} of {len(kills)} back, {_times([one.seconds for one in back])}"


def _times(measured: Sequence[float | None]) -> str:
    seconds = sorted(one for one in measured if one is not None)
    if not seconds:
        return "-"
    p95 = seconds[min(len(seconds) - 1, round(0.95 * (len(seconds) - 1)))]
    return f"{statistics.median(seconds):.2f} s ({seconds[0]:.2f}, {p95:.2f}, {seconds[-1]:.2f})"


def _made(steps: Sequence[Step]) -> int:
    return len([step for step in steps if step.rank == 0])


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM lets a launcher end its ranks, which are in sessions of their own; SIGKILL what is left."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _python(way: Way, peers: Path) -> str:
    """The interpreter for a way; its environment is made where it is not there yet."""
    if not way.requirement:
        return sys.executable
    directory = peers / way.requirement
    python = directory / "bin" / "python"
    if not (directory / "READY").exists():
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        site = next((directory / "lib").glob("python*/site-packages"))
        (site / "with_torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
        subprocess.run([python, "-m", "pip", "--quiet", "install", way.requirement], check=True)
        (directory / "READY").touch()
    return str(python)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="for each way of paceline that resumes")
    parser.add_argument("--others", type=int, default=5, help="for each of the others, one job each")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="ways whose name has this part")
    parser.add_argument("--cost", action="store_true", help="what keeping the state costs a step")
    parser.add_argument("--early", action="store_true", help="kills in the first seconds of a job")
    parser.add_argument("--rounds", type=int, default=7, help="of --cost and --early")
    parser.add_argument("--seed", type=int, default=1)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--peers", type=Path, default=cache / "paceline-peers", metavar="DIRECTORY")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
