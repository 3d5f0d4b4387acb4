"""The cases of conformance.py on the ranks of one mpirun, up to the first that fails: run_conformance_mpi.py DIRECTORY."""

import json
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import conformance
import torch
import torch.distributed as dist

from paceline.parts.comm.backends import register

# Sparse tensors and several tensors of one rank in a call are refused; the words of gloo's errors are gloo's own.
NOT_OFFERED = ("sparse", "several", "gloo_words", "monitored", "kill")
# torch lets the limit of gloo's and NCCL's groups be changed only.
WITHOUT = ("the_limit_on_time_can_be_changed",)

# Of one function; mpi_cases.py goes through every dtype and op.
MOST_VARIANTS = 4


def chosen() -> list[str]:
    """The names of the cases: from the first to the last variant of each function, and no more than MOST_VARIANTS."""
    by_function: dict[str, list[str]] = {}
    for name, case in conformance.load().items():
        if not case.needs & set(NOT_OFFERED) and name not in WITHOUT:
            by_function.setdefault(case.function.__name__, []).append(name)
    return [name for names in by_function.values() for name in thinned(names)]


def thinned(names: list[str]) -> list[str]:
    """
    Holds:   thinned([*"abcdefg"]) == ["a", "c", "e", "g"]; thinned(["a", "b"]) == ["a", "b"]
    """
    last, kept = len(names) - 1, MOST_VARIANTS - 1
    return list(dict.fromkeys(names[round(index * last / kept)] for index in range(MOST_VARIANTS)))


if __name__ == "__main__":
    register(lambda: "here")
    torch.set_num_threads(1)
    dist.init_process_group("mpi", timeout=timedelta(seconds=60))
    passed, error, rank, size = [], "", dist.get_rank(), dist.get_world_size()
    for name in chosen():
        try:
            conformance.load()[name].run(dist, dist.group.WORLD, rank, size)
            # A receive from any source would take the message of a rank that is already in the next case.
            dist.barrier()
        except Exception:
            error = f"{name}\n{traceback.format_exc()}"
            break
        passed.append(name)
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps({"passed": passed, "error": error}))
    dist.destroy_process_group()
    sys.exit(bool(error))
