"""The environment, directory and clock of an estimator. Only this module reads them from the process."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.recording.runs import new_run_id, runs_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The surroundings of an estimator. A test can replace each value."""

    environ: Mapping[str, str]
    """Environment variables."""
    directory: Path
    """Relative paths start here."""
    now_ns: Callable[[], int] = time.time_ns
    """The clock, Unix ns."""
    pause: Callable[[float], None] = time.sleep
    """Sleeps this many seconds between two looks at a job."""
    new_id: Callable[[], str] = new_run_id
    """Makes a new run id."""

    @property
    def runs_root(self) -> Path:
        """The directory of the recordings of this working directory."""
        return runs_root(self.directory, self.environ).absolute()


def surroundings() -> Surroundings:
    """The surroundings of this process."""
    return Surroundings(environ=dict(os.environ), directory=Path.cwd())
