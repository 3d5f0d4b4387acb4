"""Kills of ranks that train on a GPU: does what they write equal, bit for bit, what an undisturbed run under torchrun writes there?

The cases, the kills and the comparison are those of tests/parts/resume/whole.
"""

import os
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kills import Case, Launch, Plan, run_with_kills

SOURCE = Path(__file__).resolve().parent.parent / "src"
# Ranks share a GPU: its script exchanges by gloo.
LAUNCHES = (
    Launch(Case("on_device"), ranks=1),
    Launch(Case("on_device"), ranks=2),
    Launch(Case("on_device"), ranks=3),
    Launch(Case("on_device", ("--workers", "1")), ranks=2),
    Launch(Case("on_device", ("--hidden", "2000")), ranks=2),
)
_VICTIMS = ("rank", "all", "rank")


def kill_and_compare(launch: Launch, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run one of LAUNCHES with three kills at random moments. Returns what came of it."""
    rng = random.Random(f"{launch.case.name} {launch.ranks}")
    plans = tuple(Plan("time", victim, rng.uniform(0.0, 0.6)) for victim in _VICTIMS)
    with tempfile.TemporaryDirectory(prefix="paceline-gpu-") as folder:
        own = {**environment, "XDG_STATE_HOME": str(Path(folder) / "state"), "OMP_NUM_THREADS": "1"}
        outcome = run_with_kills(launch, plans, Path(folder), Path(folder) / "run", own, seed=rng.randrange(1 << 30))
    return {
        "case": outcome.case,
        "ranks": outcome.ranks,
        "verdict": outcome.verdict,
        "complaints": outcome.complaints[:3],
        "kills": len(outcome.kills),
        "seconds_to_the_next_step": [kill.seconds for kill in outcome.kills],
        "steps_made_again": outcome.redone,
        "kept_every": outcome.every,
        "codes": outcome.codes,
        "seconds": outcome.seconds,
        "said": outcome.err[-1500:],
    }


def environment_of_ranks() -> dict[str, str]:
    """The environment of this process, with this paceline; cuBLAS is deterministic only with a workspace of its own."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
