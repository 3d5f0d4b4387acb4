"""The path of each file of a recording. One writer per file, append-only, so that a recording works on a network file system.

<run>/run.json                                  first agent, written once
<run>/events.jsonl                              first agent
<run>/plan.json                                 first agent, written once: what --set plan said
<run>/lateness.roll                             first agent: how late each rank was, every few seconds
<run>/step_timing_<a>.json                      first agent: the newest step timing of an attempt, written over
<run>/hosts/<host>/host.json                    that host's agent, written once
<run>/hosts/<host>/environment.json             that host's agent, written once: versions, variables, state of the code
<run>/hosts/<host>/attached.json                why --record: what was seen of a job that paceline did not start
<run>/hosts/<host>/telemetry.jsonl              that host's agent, 1 Hz
<run>/hosts/<host>/attempt_<a>/rank_<r>.{out,err}   complete logs
<run>/hosts/<host>/telemetry.roll.jsonl         that host's agent, the same summed up for each minute
<run>/hosts/<host>/attempt_<a>/rank_<r>.seg     what the rank's ring held, drained by the agent
<run>/hosts/<host>/attempt_<a>/steps_<s>s.roll  steps of all its ranks, summed up for so many seconds
<run>/hosts/<first>/peers/<host>.{telemetry,logs}.jsonl   what other hosts streamed to the first one
<run>/hosts/<first>/peers/<host>/attempt_<a>/steps_<s>s.roll   the same sums of steps, streamed
<run>/submission.json                           whoever gave the job to an engine, written once
<run>/hosts/<host>/ml/                          the host's contract tree, unless --set base_dir or opt_ml moved it
"""

from dataclasses import dataclass
from pathlib import Path

STATE_FOLDER = "state"
SUBMISSION_FILE = "submission.json"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run's recording in one directory. A run may have several directories, one per host without shared storage."""

    path: Path
    """The directory."""

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def lateness_file(self) -> Path:
        return self.path / "lateness.roll"

    def step_timing_file(self, attempt: int) -> Path:
        return self.path / f"step_timing_{attempt}.json"

    def host(self, host: str) -> Path:
        return self.path / "hosts" / host

    def host_file(self, host: str) -> Path:
        return self.host(host) / "host.json"

    def attached_file(self, host: str) -> Path:
        return self.host(host) / "attached.json"

    def environment_file(self, host: str) -> Path:
        return self.host(host) / "environment.json"

    def telemetry_file(self, host: str) -> Path:
        return self.host(host) / "telemetry.jsonl"

    def telemetry_roll_file(self, host: str) -> Path:
        return self.host(host) / "telemetry.roll.jsonl"

    def peer_file(self, first_host: str, host: str, kind: str) -> Path:
        """kind: "telemetry" or "logs"."""
        return self.host(first_host) / "peers" / f"{host}.{kind}.jsonl"

    def peer_attempt(self, first_host: str, host: str, attempt: int) -> Path:
        return self.host(first_host) / "peers" / host / f"attempt_{attempt}"

    def attempt(self, host: str, attempt: int) -> Path:
        return self.host(host) / f"attempt_{attempt}"

    def log_file(self, host: str, attempt: int, rank: int, stream: str) -> Path:
        """stream: "out" or "err"."""
        return self.attempt(host, attempt) / f"rank_{rank}.{stream}"

    def companion_log(self, host: str, attempt: int, name: str) -> Path:
        """name: of the companion, such as "parameter server"."""
        return self.attempt(host, attempt) / f"{name.replace(' ', '_')}.log"

    def segment_file(self, host: str, attempt: int, rank: int) -> Path:
        return self.attempt(host, attempt) / f"rank_{rank}.seg"
