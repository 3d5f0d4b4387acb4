"""What surrounds an estimator in its process: the environment, the directory, the clock. Read here alone."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.recording.runs import new_run_id, runs_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Values that a test can give."""

    environ: Mapping[str, str]
    """Variables."""
    directory: Path
    """What relative paths begin at."""
    now_ns: Callable[[], int] = time.time_ns
    """The clock, Unix ns."""
    pause: Callable[[float], None] = time.sleep
    """Waits so many seconds between two looks at a job."""
    new_id: Callable[[], str] = new_run_id
    """Makes the id of a run."""

    @property
    def runs_root(self) -> Path:
        """Where recordings of this directory go."""
        return runs_root(self.directory, self.environ).absolute()


def surroundings() -> Session:
    """Those of this process."""
    return Session(environ=dict(os.environ), directory=Path.cwd())
