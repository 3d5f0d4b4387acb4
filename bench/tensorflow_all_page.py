"""The page of bench/tensorflow_all.py."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

ENGINES = {"local": "this machine", "ssh": "SSH", "ray": "Ray", "slurm": "Slurm", "sagemaker": "`sagemaker-local`"}
AGAIN = {
    "fit": '`TensorFlow(instance_count=2, instance_type="local", distribution=multi_worker_mirrored_strategy).fit()`',
    "run": "`paceline run --local-hosts N --tf-config multi_worker_mirrored`, N is 2, 3, 4 in turn",
}


def page(
    rows: Sequence[Any],
    found: Sequence[Mapping[str, Any]],
    missing: Mapping[str, str],
    conditions: str,
    aws: str,
    batches: int,
) -> str:
    """docs/tensorflow_all.md. `rows`: what is tried; `found`: one line for each job; `missing`: rows that cannot run, and why.

    `aws`: which script that is; `batches`: how many it gets.
    """
    trials = {row.name: [one for one in found if one["row"] == row.name] for row in rows}
    wanted = {row.name: row.wanted for row in rows}

    def cell(name: str) -> str:
        if not trials[name]:
            return f"not run: {missing.get(name, 'not yet')}"
        good = sum(not one["problems"] for one in trials[name])
        return f"{good} of {len(trials[name])}" + (
            "" if len(trials[name]) == wanted[name] else f", {wanted[name]} wanted"
        )

    forms = list(dict.fromkeys(row.form for row in rows if row.name == f"{row.engine} {row.form}"))
    return "\n".join(
        [
            "# TensorFlow, measured",
            "",
            "Jobs of real TensorFlow on CPUs, each to its end. Written by `make tensorflow-all`.",
            "",
            conditions,
            "",
            "## Again and again",
            "",
            "`fit` of tf-keras under `MultiWorkerMirroredStrategy`.",
            "",
            "| job | succeeded | seconds of a job: median (max) |",
            "|---|---|---|",
            *(f"| {text} | {cell(name)} | {seconds(trials[name])} |" for name, text in AGAIN.items()),
            "",
            "## On every engine",
            "",
            "`TensorFlow(...).fit()` on two hosts with `distribution=` of the SDK v2. For SSH, Ray and Slurm the hosts are on one",
            "machine, each with a network and an sshd, a Ray node or a slurmd of its own; `paceline sagemaker-local` has an S3",
            "server beside it.",
            "",
            f"| `distribution=` | {' | '.join(ENGINES.values())} |",
            f"|---|{'---|' * len(ENGINES)}",
            *(f"| `{form}` | {' | '.join(cell(f'{engine} {form}') for engine in ENGINES)} |" for form in forms),
            "",
            "## AWS's own script",
            "",
            f"{aws},",
            "byte by byte, written for `smdistributed.dataparallel.tensorflow`. It runs with tf-keras on two hosts of this machine.",
            "From outside it gets data that are made here, as `mnist.npz`, in place of a download, and at most",
            f"{batches} batches of 128 images.",
            "",
            "| ranks | trained to its SavedModel | loss at steps 0, 50, 100 | seconds |",
            "|---|---|---|---|",
            *(
                f"| {name.split()[1]} | {cell(name)} | {losses(trials[name])} | {seconds(trials[name])} |"
                for name in trials
                if name.startswith("aws ")
            ),
            "",
            *failures(found),
        ]
    )


def seconds(trials: Sequence[Mapping[str, Any]]) -> str:
    """How long those that succeeded took."""
    taken = [one["seconds"] for one in trials if not one["problems"]]
    if len(taken) < 2:
        return "".join(f"{one:.0f}" for one in taken)
    return f"{statistics.median(taken):.0f} ({max(taken):.0f})"


def losses(trials: Sequence[Mapping[str, Any]]) -> str:
    """What the script printed of its losses, job by job."""
    return "; ".join(", ".join(one["losses"]) for one in trials)


def failures(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What went wrong, a line for each job."""
    lines = [f"* {one['row']}, job {one['number']}: {'; '.join(one['problems'])}" for one in found if one["problems"]]
    return ["## What failed", "", *lines, ""] if lines else []
