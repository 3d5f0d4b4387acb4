"""Records what each restart cost: whether the script went on from a checkpoint, and how many steps it makes again."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.diagnosis.restart_costs import EVENT, restart
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
    # Host -> how many of its ranks have made a step in this attempt.
    _stepped: dict[str, int] = field(default_factory=dict)
    # The attempts so far that went on from each other's kept state count as one.
    _resumed: list[RankRecord] = field(default_factory=list)
    _kept_steps: int = 0
    _told: bool = False

    def __post_init__(self) -> None:
        for path in earlier_tries(self.directory):
            run, _, _ = read_run((RunDirectory(path),))
            self.job_started_ns = min(self.job_started_ns, run.started_ns or self.job_started_ns)
            of_attempt: dict[int, list[RankRecord]] = defaultdict(list)
            for one in rank_records((RunDirectory(path),), last_records=0)[0]:
                of_attempt[one.attempt].append(one)
            self._before += [of_attempt[attempt] for attempt in sorted(of_attempt)]

    def goes_on(self, step: int) -> None:
        """The first attempt goes on from a step that an earlier try has saved. A notice says so."""
        self._resumed = self._before.pop() if self._before else []
        self._kept_steps, self._told = step, True

    def look(self, host: str, progress: Progress, attempt: int, world_size: int) -> None:
        """Take the newest progress of one host. Record what the restart cost once every rank of the job has made its first step.

        A job of hundreds of hosts calls this hundreds of times a second, so a call looks at the ranks of its host alone.
        """
        if self._told or not self._before:
            return
        of_host = (one for one in progress.get(host, {}).values() if isinstance(one, dict))
        self._stepped[host] = sum(one.get("attempt") == attempt and bool(one.get("step_count")) for one in of_host)
        if sum(self._stepped.values()) >= world_size:
            self._tell(_ranks(progress, attempt))

    def ended(self, progress: Progress, attempt: int, resume_step: int | None = None, made_count: int = 0) -> None:
        """The attempt is over. What is known by now is recorded. `resume_step`: the kept step at which the next one goes on.

        `made_count`: the steps that a rank is known to have made in it, where the newest progress may be older.
        """
        ranks = _ranks(progress, attempt)
        if self._before and not self._told:
            self._tell(ranks)
        self._resumed += [_further(rank, self._kept_steps, made_count) for rank in ranks]
        self._kept_steps = resume_step or 0
        # The event of the resume says what it cost.
        self._told = resume_step is not None
        if resume_step is None:
            self._before.append(self._resumed)
            self._resumed = []
        self._stepped = {}

    def _tell(self, ranks: list[RankRecord]) -> None:
        """Judge by the ranks that have made a step; without one, nothing is known."""
        if stepped := [rank for rank in ranks if rank.step_count]:
            self._told = True
            found = restart(self._before, stepped, job_started_ns=self.job_started_ns)
            self.record(EVENT, attempt=found.attempt, restart=found)


def _further(rank: RankRecord, steps: int, at_least: int) -> RankRecord:
    """The record of a rank that went on after this many steps, and made at least so many."""
    made, saved = rank.step_count, rank.saved_steps
    return replace(
        rank,
        step_count=None if made is None else max(made, at_least) + steps,
        saved_steps=saved + steps if saved else saved,
    )


def _ranks(progress: Progress, attempt: int) -> list[RankRecord]:
    found = (from_progress(plain, host) for host, ranks in progress.items() for plain in ranks.values())
    return [record for record in found if record is not None and record.attempt == attempt]
