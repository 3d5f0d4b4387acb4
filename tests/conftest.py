"""What tests of several rooms share: a recording built by the same writers that a run uses."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.facts import Run
from paceline.recording.layout import RunDirectory
from paceline.recording.ring import Cell, Kind, RingReader, RingWriter, append_segment
from paceline.recording.runs import create_run, write_run
from paceline.recording.writer import EventLog, JsonLines

STARTED_NS = 1_795_000_000_000_000_000
MS = 1_000_000


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

    def finish(self, code=0, status="Completed", secondary_status=None, reason="every rank ended with 0", after_seconds=60):
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
            ring.write(Kind.COLLECTIVE, 1, index, end_ns, communication_ms * MS, 4096, 0)
            ring.write(Kind.STEP, 0, index, end_ns, step_ms * MS, data_ms * MS, communication_ms * MS, 0, 1)
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
    """A factory of empty recordings below tmp_path/.paceline/runs."""
    scratch = tmp_path / "rings"
    scratch.mkdir()
    return lambda run_id="r-000001": Recording(create_run(tmp_path / ".paceline" / "runs", run_id), scratch)
