"""The recordings that are deleted, or would be."""

from collections.abc import Sequence
from typing import Any

from paceline.recording.prune import OldRun
from paceline.views.table import table
from paceline.views.units import counted, duration, size


def prune_text(runs: Sequence[OldRun], *, dry_run: bool, width: int | None = 100, ascii_only: bool = False) -> str:
    """One line per run, then the sum."""
    if not runs:
        return "nothing to delete"
    rows = [(run.id, duration(run.age_seconds), size(run.size_bytes)) for run in runs]
    text = table(("RUN", "AGE", "SIZE"), rows, right=frozenset({"AGE", "SIZE"}), width=width, ascii_only=ascii_only)
    done = "would be deleted" if dry_run else "deleted"
    return f"{text}\n{done}: {counted(len(runs), 'run')}, {size(sum(run.size_bytes for run in runs))}"


def prune_facts(runs: Sequence[OldRun], *, dry_run: bool) -> dict[str, Any]:
    """The same for a program."""
    return {
        "schema": "paceline.prune/2",
        "deleted": not dry_run,
        "runs": [
            {
                "run_id": run.id,
                "directories": [str(path) for path in run.directories],
                "age_seconds": round(run.age_seconds, 1),
                "size_bytes": run.size_bytes,
            }
            for run in runs
        ],
    }
