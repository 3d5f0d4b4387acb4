"""The path of each file of a recording. One writer per file, append-only, so that a recording works on a network file system.

<run>/run.json                                  first agent, written once
<run>/events.jsonl                              first agent
<run>/hosts/<host>/host.json                    that host's agent, written once
<run>/hosts/<host>/telemetry.jsonl              that host's agent, 1 Hz
<run>/hosts/<host>/attempt_<a>/rank_<r>.{out,err}   complete logs
<run>/hosts/<host>/attempt_<a>/rank_<r>.seg     what the rank's ring held, drained by the agent
<run>/hosts/<first>/peers/<host>.{telemetry,logs}.jsonl   what other hosts streamed to the first one
<run>/submission.json                           whoever gave the job to an engine, written once
<run>/hosts/<host>/ml/                          the host's contract tree, unless --base-dir or --opt-ml moved it
"""

from dataclasses import dataclass
from pathlib import Path

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

    def host(self, host: str) -> Path:
        return self.path / "hosts" / host

    def host_file(self, host: str) -> Path:
        return self.host(host) / "host.json"

    def telemetry_file(self, host: str) -> Path:
        return self.host(host) / "telemetry.jsonl"

    def peer_file(self, first_host: str, host: str, kind: str) -> Path:
        """kind: "telemetry" or "logs"."""
        return self.host(first_host) / "peers" / f"{host}.{kind}.jsonl"

    def attempt(self, host: str, attempt: int) -> Path:
        return self.host(host) / f"attempt_{attempt}"

    def log_file(self, host: str, attempt: int, rank: int, stream: str) -> Path:
        """stream: "out" or "err"."""
        return self.attempt(host, attempt) / f"rank_{rank}.{stream}"

    def segment_file(self, host: str, attempt: int, rank: int) -> Path:
        return self.attempt(host, attempt) / f"rank_{rank}.seg"
