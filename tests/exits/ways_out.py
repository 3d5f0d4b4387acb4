"""Ranks that leave in ten ways while somebody asks them without a pause: what each has to have done by then, and what it did.

Shared by the tests beside this file and by bench/exits.py.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from patience import patient

from paceline.launch.inspect.snapshot import look_at
from paceline.probes.worker_server import GateClosed, Questions

SCRIPTS = Path(__file__).parent / "scripts"
# What C++ says of a thread that Python ended under it: one of torch's worker server, and any other.
FATAL = "FATAL: exception not rethrown"
TERMINATED = "terminate called without an active exception"
_MOST_SECONDS = 60.0
_SOUGHT_EVERY_SECONDS = 0.1
_ASKED_EVERY_SECONDS = 0.02
_LOOKED_AT_EVERY_SECONDS = 1.0


@dataclass(frozen=True)
class WayOut:
    """One script. `stages`: of each rank's way out, all of which must be in its file; `code`: the exit code that it means."""

    script: str
    stages: tuple[str, ...]
    code: int = 0
    ranks_by_launcher: int = 2
    files: tuple[str, ...] = ()
    # What the interpreter still runs after the main thread has come to its end.
    last: str | None = None


WAYS_OUT = (
    WayOut("normal_end", ("training", "end")),
    WayOut("checkpoint_thread", ("training", "writer thread", "checkpoint"), files=("checkpoint",), last="checkpoint"),
    WayOut("finalizers", ("training", "finalize", "destructor", "last destructor"), last="last destructor"),
    WayOut(
        "exit_handlers",
        ("training", "handler of threads", "second handler", "first handler"),
        last="first handler",
    ),
    WayOut("futures", ("training", "first future", "second future")),
    WayOut("loader_workers", ("training", "end")),
    WayOut("spawned", ("training", "end", "handler"), ranks_by_launcher=1, last="handler"),
    WayOut("exit_code", ("training", "handler"), code=3, last="handler"),
    WayOut("exception", ("training", "handler"), code=1, last="handler"),
    WayOut("thread_trains_on", ("training", *("training in a thread",) * 3), last="training in a thread"),
)


@dataclass
class Asker:
    """Asks every rank of a run whatever can be asked, from its first ring to its death. `answers`: when, what, and what came.

    After each question the file `asked-PID` of `directory` has the question's begin as its time: a stage of a rank waits for it.
    """

    mark: str
    directory: Path
    answers: list[tuple[int, str, str]] = field(default_factory=list)
    looks: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`."""
        questions, threads = Questions(), []
        for path in self._ranks():
            for target, argv in ((self._ask, (questions, path)), (self._look, (path,))):
                threads.append(threading.Thread(target=target, args=argv))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        self._over.set()

    def tried_between(self, began_ns: int, ended_ns: int) -> bool:
        return any(began_ns <= at_ns <= ended_ns for at_ns, _, _ in self.answers)

    def _ranks(self) -> Iterator[Path]:
        """The worker server of every process of the run, as soon as it is there."""
        found: set[Path] = set()
        while not self._over.wait(_SOUGHT_EVERY_SECONDS):
            for pid in [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
                environment = _environment(pid)
                if environment.get("PACELINE_TEST_EXITS") != self.mark:
                    continue
                # One of the run's, before or after its program was executed: the agent, a rank, a loader's worker.
                path = Path(environment.get("PACELINE_SOCKET_DIR", ""), f"{pid}.sock")
                if path not in found and path.exists():
                    found.add(path)
                    yield path

    def _ask(self, questions: Questions, path: Path) -> None:
        asked = self.directory / f"asked-{path.stem}"
        for handler in itertools.cycle(("dump_traceback", "ping", "dump_traceback", "fr_trace_json")):
            if self._over.wait(_ASKED_EVERY_SECONDS) or not _lives(path):
                return
            at_ns = time.time_ns()
            try:
                came = "answered" if questions.ask(path, handler, 0.3) is not None else "nothing"
            except GateClosed:
                came = "refused"
            self.answers.append((at_ns, handler, came))
            asked.touch()
            os.utime(asked, ns=(at_ns, at_ns))

    def _look(self, path: Path) -> None:
        # As the agent does: everything at once, what is read from outside as well.
        rank = {0: int(path.stem)}
        while not self._over.wait(_LOOKED_AT_EVERY_SECONDS) and _lives(path):
            look_at(
                rank,
                host="h",
                attempt=0,
                role="suspect",
                socket_dir=path.parent,
                hosts_by_address={},
                all_ranks_here=rank,
            )
            self.looks += 1


@dataclass(frozen=True)
class Outcome:
    """What one run came to. `complaints` is empty where it left as it should."""

    script: str
    code: int
    complaints: tuple[str, ...]
    err: str
    asked: int = 0
    refused: int = 0
    looks: int = 0
    seconds: float = 0.0


def leave(way: WayOut, directory: Path, environment: Mapping[str, str], *, python: str = sys.executable) -> Outcome:
    """Run the script of one way out once, asked all the while; a new, empty `directory` takes what it writes."""
    mark = f"{directory.name}-{os.getpid()}"
    argv = [python, "-m", "paceline", "run", "--set", "progress=off", "--nproc-per-node", str(way.ranks_by_launcher)]
    process = subprocess.Popen(
        [*argv, str(SCRIPTS / f"{way.script}.py"), str(directory)],
        cwd=directory,
        env={**environment, "PACELINE_TEST_EXITS": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    asker = Asker(mark, directory)
    thread = threading.Thread(target=asker.run)
    thread.start()
    began = time.monotonic()
    try:
        _, err = process.communicate(timeout=patient(_MOST_SECONDS))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, err = process.communicate()
        err += "\nended, because it took too long"
    finally:
        asker.stop()
        thread.join()
    return Outcome(
        way.script,
        process.returncode,
        tuple(_complaints(way, process.returncode, directory, err, asker)),
        err,
        len(asker.answers),
        sum(came == "refused" for _, _, came in asker.answers),
        asker.looks,
        round(time.monotonic() - began, 1),
    )


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that use a core each."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _complaints(way: WayOut, code: int, directory: Path, err: str, asker: Asker) -> Iterator[str]:
    if code != way.code:
        yield f"exit code {code}, and the script's is {way.code}"
    for line in (FATAL, TERMINATED):
        if line in err:
            yield f"{line}, {err.count(line)} times"
    for rank in range(2):
        stages = _stages(directory / f"stages-{rank}")
        if tuple(name for name, _, _ in stages) != way.stages:
            yield f"rank {rank} came through {[name for name, _, _ in stages]}"
        for name, began_ns, ended_ns in stages:
            if not asker.tried_between(began_ns, ended_ns):
                yield f"rank {rank}, stage {name!r}: was not asked"
        for file in way.files:
            if not (directory / f"{file}-{rank}").is_file():
                yield f"rank {rank} has not written {file}"
    if way.last is not None and not any(came == "refused" for _, _, came in asker.answers):
        yield "no question was refused"


def _stages(path: Path) -> list[tuple[str, int, int]]:
    """The stages of a rank: name, begin and end."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    return [(name, int(began), int(ended)) for name, began, ended in (line.rsplit(" ", 2) for line in lines)]


def _environment(pid: str) -> dict[str, str]:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(variable).partition("=")[::2] for variable in variables)


def _lives(path: Path) -> bool:
    return Path(f"/proc/{path.stem}").exists()
