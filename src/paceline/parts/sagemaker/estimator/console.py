"""The output of an estimator while the user waits: status lines and job output as in SDK v2, and notices."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime

from paceline.terminal_text import visible

_WORDS = {
    "Starting": "Starting the training job...",
    "Pending": "Waiting for the hosts to come together...",
    "Downloading": "Downloading input data...",
    "Training": "Training in progress.",
    "Interrupted": "The job was preempted and will be started again.",
    "Restarting": "Starting the training job again...",
    "Uploading": "Uploading the model and other output...",
    "Completed": "Training job completed.",
    "Failed": "Training job failed.",
    "Stopping": "Stopping the training job...",
    "Stopped": "Training job stopped.",
    "MaxRuntimeExceeded": "Training job stopped at its time limit, max_run.",
    "MaxWaitTimeExceeded": "Training job stopped: max_wait was over.",
}


def notices(texts: Iterable[str]) -> None:
    """Print each notice on its own line, on stderr."""
    for text in texts:
        print(visible(f"paceline  notice: {text}"), file=sys.stderr, flush=True)


def checks(text: str) -> None:
    """Print the result of the checks before submission, on stderr."""
    print(visible(text), file=sys.stderr, flush=True)


def transition(status: str, now_ns: int, reason: str = "") -> None:
    """Print one change of the secondary status: time, status, meaning."""
    stamp = datetime.fromtimestamp(now_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    print(visible(f"{stamp} {status} - {reason or _WORDS.get(status, status)}"), flush=True)


def lines(texts: Iterable[str]) -> None:
    """Print the job's output unchanged: it comes from the user's own program."""
    for text in texts:
        print(text, flush=True)


def training_seconds(seconds: float, hosts: int) -> None:
    """Print the last line of a job after waiting for it."""
    print(f"Training seconds: {seconds:.0f}" + (f" on each of {hosts} hosts" if hosts > 1 else ""), flush=True)
