"""What a job was asked to keep and has nothing of when it has ended well: a model, checkpoints, metrics."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.contract.metric_definitions import compiled
from paceline.parts.engines.submission import Submission
from paceline.recording.layout import RunDirectory
from paceline.recording.logs import LogChoice, chosen_lines
from paceline.recording.runs import newest_try

_LONGEST = 60


def nothing_kept(job: Submission, run_dir: Path) -> Iterator[str]:
    """A sentence for each, of a job whose directory trees lie on this machine."""
    trees = sorted(newest_try(run_dir).glob("hosts/*/ml"))
    if trees and not any(_has_files(tree / "model") for tree in trees):
        yield "the job leaves no model: nothing was saved in SM_MODEL_DIR (/opt/ml/model), and what is saved elsewhere is not kept"
    if trees and job.checkpoint_url is not None and not any(_has_files(tree / "checkpoints") for tree in trees):
        yield (
            "checkpoint_s3_uri stays empty: nothing was written to /opt/ml/checkpoints; what lies in SM_MODEL_DIR becomes "
            "model.tar.gz when the job has ended"
        )


def metrics_without_value(definitions: Sequence[tuple[str, str]], run_dir: Path) -> Iterator[str]:
    """A sentence for each metric of which the output has no number. The output is read until each has one."""
    wanted = {one.name: one for one in compiled(definitions)}
    found: dict[str, str] = {}
    for _, _, line in chosen_lines((RunDirectory(newest_try(run_dir)),), LogChoice()):
        text = line.decode("utf-8", "replace")
        for name, one in list(wanted.items()):
            if any(True for _ in one.values(text)):
                del wanted[name]
            elif name not in found and (match := one.pattern.search(text)):
                found[name] = match[1 if one.pattern.groups else 0] or ""
        if not wanted:
            return
    for name in wanted:
        if name in found:
            yield f"metric {name}: what its Regex finds is no number: {found[name][:_LONGEST]!r}; its first group is the number alone"
        else:
            yield f"metric {name}: its Regex matched no line of the output"


def _has_files(directory: Path) -> bool:
    return any(path.is_file() for path in directory.rglob("*"))
