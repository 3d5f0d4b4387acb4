"""The same faults under torchrun: when it says something, whom it blames, and whether it tells the cause."""

import json
import re
import time
from pathlib import Path

from catalogue import Fault, Trial
from harness import Watched, clear_away, interpreter, start
from scoring import Outcome

# torch's default is 30 minutes (10 for NCCL): nobody waits for that here, so torchrun is given a far better one than people have.
GROUP_TIMEOUT_SECONDS = 20
_BUDGET_SECONDS = GROUP_TIMEOUT_SECONDS + 40.0
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)
# Said at every start, or by paceline's own scripts; nothing about the fault.
_NOISE = re.compile(
    r"OMP_NUM_THREADS|^\*+$|^W\d+ .*\*{10}|broken at \d+|^step \d+/|Setting|UserWarning|FutureWarning|^\s*$|^\s+warn"
)


def observe_torchrun(fault: Fault, trial: Trial, directory: Path, *, number: int = 0) -> Outcome:
    """One trial of one fault on one host under torchrun, until it ends or its budget is over."""
    directory.mkdir(parents=True, exist_ok=True)
    options = ["--nproc-per-node", str(trial.world_size)]
    python = interpreter(fault)
    argv = [str(python), "-m", "torch.distributed.run", *options, str(fault.script), *fault.argv(trial)]
    job = start([*argv, "--timeout-seconds", str(GROUP_TIMEOUT_SECONDS)], directory, fault.environment, python)
    try:
        said_ns = _watch(job)
        exit_code = job.process.poll()
        ended_ns = time.time_ns()
    finally:
        clear_away(job)
    text = (directory / "err.txt").read_text(errors="replace")
    since_ns = job.injected_ns or job.started_ns
    blamed = _ROOT_CAUSE.search(text)
    ranks = (int(blamed[1]),) if blamed else ()
    right = fault.right_ranks(trial)
    return Outcome(
        kind="torchrun",
        name=fault.name,
        code=fault.code,
        number=number,
        rank=trial.rank,
        world_size=trial.world_size,
        hosts=1,
        at_step=trial.at_step,
        codes=(_last_words(text),),
        ranks=ranks,
        detected_after_seconds=None if said_ns is None else round(max(0, said_ns - since_ns) / 1e9, 2),
        rank_right=None if right is None else frozenset(ranks) in right,
        cause_right=bool(fault.said_by and re.search(fault.said_by, text)),
        watched_seconds=round((ended_ns - job.started_ns) / 1e9, 1),
        exit_code=exit_code,
        problem="" if exit_code is not None else f"silent or still running after {_BUDGET_SECONDS:.0f} s",
    )


def _watch(job: Watched) -> int | None:
    """When the first line about the fault came on either stream; None for never."""
    said_ns: int | None = None
    deadline = time.monotonic() + _BUDGET_SECONDS
    while time.monotonic() < deadline:
        ended = job.process.poll() is not None
        job.poll()
        if said_ns is None and _speaks((job.directory / "err.txt").read_text(errors="replace")):
            said_ns = time.time_ns()
        if ended:
            break
        time.sleep(0.05)
    return said_ns


def _speaks(text: str) -> bool:
    return any(not _NOISE.search(line) for line in text.splitlines())


def _last_words(text: str) -> str:
    """The last exception's line: what a person would search for."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"(Error|Exception|exitcode)\b.*:", line)]
    return json.dumps(lines[-1][:160])[1:-1] if lines else ""


def first_trial(fault: Fault) -> Trial:
    """The trial of a row on one host, as torchrun runs it."""
    trial = fault.trial(0)
    return Trial(rank=trial.rank, at_step=trial.at_step, world_size=trial.world_size, hosts=1)


def can_be_compared(fault: Fault) -> bool:
    """Faults that paceline's own launcher makes (several hosts, its own options) have no counterpart under torchrun."""
    return not (fault.starts_itself or fault.is_decoy or fault.command)
