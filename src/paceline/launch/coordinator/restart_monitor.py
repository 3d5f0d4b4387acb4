"""Records what each restart cost: whether the script went on from a checkpoint, and how many steps it makes again."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.diagnosis.case import to_plain
from paceline.diagnosis.restarts import EVENT, restart
from paceline.facts import RankRecord
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import earlier_tries
from paceline.recording.segments import from_progress, rank_records

Progress = Mapping[str, Mapping[str, Any]]
"""Host -> rank -> its progress."""


@dataclass(slots=True)
class RestartMonitor:
    """Waits in each attempt for the first step of every rank, and compares what the ranks loaded with the attempts before."""

    directory: Path
    """The run's directory."""
    job_started_ns: int
    """When the run began; for a job with earlier tries, when the first one began."""
    record: Callable[..., None]
    """Writes an event."""
    _before: list[list[RankRecord]] = field(default_factory=list)
    _told: bool = False

    def __post_init__(self) -> None:
        for path in earlier_tries(self.directory):
            run, _, _ = read_run((RunDirectory(path),))
            self.job_started_ns = min(self.job_started_ns, run.started_ns or self.job_started_ns)
            of_attempt: dict[int, list[RankRecord]] = defaultdict(list)
            for one in rank_records((RunDirectory(path),), last_records=0)[0]:
                of_attempt[one.attempt].append(one)
            self._before += [of_attempt[attempt] for attempt in sorted(of_attempt)]

    def look(self, progress: Progress, attempt: int, world_size: int) -> None:
        """Record what the restart cost if the ranks have made their first step and it was not recorded yet."""
        if self._told or not self._before:
            return
        stepped = [rank for rank in _ranks(progress, attempt) if rank.step_count]
        if len(stepped) >= world_size:
            self._tell(stepped)

    def ended(self, progress: Progress, attempt: int) -> None:
        """The attempt is over. What is known by now is recorded."""
        ranks = _ranks(progress, attempt)
        stepped = [rank for rank in ranks if rank.step_count]
        if self._before and stepped and not self._told:
            self._tell(stepped)
        self._before.append(ranks)
        self._told = False

    def _tell(self, ranks: list[RankRecord]) -> None:
        self._told = True
        found = restart(self._before, ranks, job_started_ns=self.job_started_ns)
        self.record(EVENT, attempt=found.attempt, restart=to_plain(found))


def _ranks(progress: Progress, attempt: int) -> list[RankRecord]:
    found = (from_progress(plain, host) for host, ranks in progress.items() for plain in ranks.values())
    return [record for record in found if record is not None and record.attempt == attempt]
