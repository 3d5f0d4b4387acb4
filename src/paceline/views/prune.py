"""The recordings that are deleted, or would be."""

from collections.abc import Sequence

import msgspec

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


class PrunedRun(msgspec.Struct, frozen=True):
    """A run that has ended and may go, for programs."""

    run_id: str
    """Id of the run."""
    directories: tuple[str, ...]
    """The directories of all its tries, the newest first."""
    age_seconds: float
    """Time since its newest file was written."""
    size_bytes: int
    """Room on the disk."""


class PruneDocument(msgspec.Struct, frozen=True, tag_field="schema", tag="paceline.prune/2"):
    """The recordings that are deleted, or would be, for programs."""

    deleted: bool
    """Whether they were deleted; false with `--dry-run`."""
    runs: tuple[PrunedRun, ...]
    """The runs that have ended and may go."""


def prune_facts(runs: Sequence[OldRun], *, dry_run: bool) -> PruneDocument:
    """The same for a program."""
    return PruneDocument(
        not dry_run,
        tuple(
            PrunedRun(run.id, tuple(map(str, run.directories)), round(run.age_seconds, 1), run.size_bytes)
            for run in runs
        ),
    )
