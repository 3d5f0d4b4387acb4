"""What tests of several rooms share: the order of the suite, a person's environment, a recording built by the writers that a run uses."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kernel_and_parts import KERNEL, part_of_test
from patience import patient

from paceline.facts import Run
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import Cell, RecordKind, RingReader, RingWriter
from paceline.recording.runs import create_run, write_run
from paceline.recording.segments import append_segment
from paceline.recording.writer import EventLog, JsonLines

REPOSITORY = Path(__file__).resolve().parent.parent
SLOW_MARKERS = ("process", "fault", "engine", "gpu")
STARTED_NS = 1_795_000_000_000_000_000
MS = 1_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--note-skipped",
        type=Path,
        metavar="FILE",
        help="write the tests that were skipped to FILE, for `pytest @FILE` once what they need is installed",
    )
    parser.addoption("--wide", action="store_true", help="also what is marked wide")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What `--note-skipped` asks for: one test, or one module that was skipped as a whole, a line."""
    file = session.config.getoption("--note-skipped")
    # With several workers, the process that started them has the reports of all.
    if file is not None and not hasattr(session.config, "workerinput"):
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        skipped = reporter.stats.get("skipped", []) if reporter is not None else []
        file.write_text("".join(f"{report.nodeid}\n" for report in skipped), encoding="utf-8")


def pytest_configure() -> None:
    """What the suite inherits and would hand on to every process it starts.

    An ignored Ctrl-C, where it runs in the background; and a width, which counts more than that of a terminal a test opens.
    Hypothesis counts no seconds.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    if importlib.util.find_spec("hypothesis"):
        from hypothesis import HealthCheck, settings

        # On a busy machine an example is slow, and so is what draws it; neither is a fault of what is tested.
        settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first, then those that start processes; a gpu test without a GPU is shown as skipped, never left out."""
    wide = [] if config.getoption("--wide") else [item for item in items if item.get_closest_marker("wide")]
    if wide:
        config.hook.pytest_deselected(items=wide)
        items[:] = [item for item in items if not item.get_closest_marker("wide")]
    _mark_all_but_first(items)
    _mark_where_it_belongs(items)
    items.sort(key=lambda item: any(item.get_closest_marker(name) for name in SLOW_MARKERS))
    wants_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if wants_gpu and not _has_gpu():
        for item in wants_gpu:
            item.add_marker(pytest.mark.skip(reason="no GPU that NVML knows of"))


def _mark_all_but_first(items: list[pytest.Item]) -> None:
    """What `slow_but_first` asks for, before `-m` chooses. A test that is wide is nobody's first: it is there with `--wide` only."""
    firsts: dict[str, pytest.Item] = {}
    for item in items:
        if item.get_closest_marker("slow_but_first") and not item.get_closest_marker("wide"):
            if firsts.setdefault(item.nodeid.partition("[")[0], item) is not item:
                item.add_marker("slow")


def _mark_where_it_belongs(items: list[pytest.Item]) -> None:
    """`part` for what is about a part, `house` for what is about this repository."""
    for item in items:
        path = item.path.relative_to(REPOSITORY / "tests").as_posix()
        if path.startswith("house/"):
            item.add_marker("house")
        elif part_of_test(path) != KERNEL:
            item.add_marker("part")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test's timeout is that of an idle machine, and is longer on a busy one."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker is not None and marker.args else item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(patient(seconds)), append=False)
    return (yield)


def _has_gpu() -> bool:
    # In a process of its own: NVML stays loaded in a process that asked for it once, and later tests fork.
    ask = "import pynvml; pynvml.nvmlInit(); raise SystemExit(pynvml.nvmlDeviceGetCount() == 0)"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def examples(repository: Path) -> Path:
    """Folder of the example programs."""
    return repository / "examples"


@pytest.fixture
def user_environment(make_user_environment: Callable[[Path], dict[str, str]], tmp_path: Path) -> dict[str, str]:
    """Environment of a person at a shell: this Python first on PATH, nothing of a surrounding job, state files below `tmp_path`."""
    return make_user_environment(tmp_path / "state")


@pytest.fixture(scope="session")
def make_user_environment() -> Callable[[Path], dict[str, str]]:
    """The same for what several tests share; called with the directory for state files."""
    return _user_environment


def _user_environment(state: Path) -> dict[str, str]:
    of_a_job = ("PACELINE_", "PET_", "SM_", "TORCHELASTIC_", "PYTEST_")
    of_a_rank = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK"}
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(of_a_job) and name not in of_a_rank
    }
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment["PYTHONPATH"] = str(REPOSITORY / "src")
    environment["XDG_STATE_HOME"] = str(state)
    environment["OMP_NUM_THREADS"] = "1"
    return environment


@dataclass
class Recording:
    """One run's directory, filled piece by piece."""

    directory: RunDirectory
    scratch: Path

    @property
    def path(self):
        return self.directory.path

    def identity(self, **fields):
        run = Run(
            id=self.path.name,
            name=fields.pop("name", "train"),
            directory=str(self.path),
            command=("train.py", "--lr", "3e-4"),
            started_ns=fields.pop("started_ns", STARTED_NS),
            first_host=fields.pop("first_host", "algo-1"),
            **fields,
        )
        write_run(run)

    def event(self, event, **fields):
        log = EventLog(self.directory.events_file, clock_ns=lambda: STARTED_NS)
        log.record(event, **fields)
        log.close()

    def finish(
        self, code=0, status="Completed", secondary_status=None, reason="every rank ended with 0", after_seconds=60
    ):
        self.event(
            "run_finished",
            t_ns=STARTED_NS + int(after_seconds * 1e9),
            exit_code=code,
            status=status,
            secondary_status=secondary_status or status,
            reason=reason,
        )

    def segment(self, host, rank, *, attempt=0, steps=10, step_ms=100, data_ms=5, communication_ms=10, world_size=2):
        """A rank's segment by way of a real ring; totals are the steps' sums."""
        ring = RingWriter(self.scratch / f"{host}-{attempt}-{rank}.ring", capacity=64)
        for cell, value in {
            Cell.PID: 1000 + rank,
            Cell.RANK: rank,
            Cell.WORLD_SIZE: world_size,
            Cell.LOCAL_RANK: rank,
            Cell.ATTEMPT: attempt,
            Cell.START_NS: STARTED_NS,
            Cell.STEP_COUNT: steps,
            Cell.FIRST_STEP_NS: STARTED_NS + step_ms * MS,
            Cell.LAST_STEP_NS: STARTED_NS + steps * step_ms * MS,
            Cell.STEP_TOTAL_NS: steps * step_ms * MS,
            Cell.DATA_TOTAL_NS: steps * data_ms * MS,
            Cell.COMMUNICATION_TOTAL_NS: steps * communication_ms * MS,
            Cell.COLLECTIVE_COUNT: steps,
            Cell.GROUP_COUNT: 1,
            Cell.COMMUNICATION_BASIS: 1,
        }.items():
            ring.cells[cell] = value
        for index in range(steps):
            end_ns = STARTED_NS + (index + 1) * step_ms * MS
            ring.write(RecordKind.COLLECTIVE, 1, index, end_ns, communication_ms * MS, 4096, 0)
            ring.write(RecordKind.STEP, 0, index, end_ns, step_ms * MS, data_ms * MS, communication_ms * MS, 0, 1)
        path = self.directory.segment_file(host, attempt, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        reader = RingReader(ring.path)
        with path.open("w+b") as file:
            append_segment(file, reader)
        header = reader.header()
        reader.close()
        ring.drop()
        return header

    def log(self, host, rank, text, *, stream="out", attempt=0):
        path = self.directory.log_file(host, attempt, rank, stream)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        return path

    def telemetry(self, host, *lines):
        self.lines(self.directory.telemetry_file(host), *lines)

    def streamed(self, first_host, host, kind, *lines):
        self.lines(self.directory.peer_file(first_host, host, kind), *lines)

    @staticmethod
    def lines(path, *records):
        file = JsonLines(path)
        for record in records:
            assert file.append(record)
        file.close()


@pytest.fixture
def recording(tmp_path):
    """A factory of empty recordings below tmp_path/.paceline/runs, or below another folder of .paceline."""
    scratch = tmp_path / "rings"
    scratch.mkdir()
    return lambda run_id="r-000001", below="runs": Recording(
        create_run(tmp_path / ".paceline" / below, run_id), scratch
    )
