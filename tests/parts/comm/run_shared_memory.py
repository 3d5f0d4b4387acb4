"""One rank of test_shared_memory.py: run_shared_memory.py - STORE_PORT RANK SIZE HOST OUT

Runs every case on the ranks that it needs, then the last one, in which a rank is killed. OUT gets {case: "" or its traceback}.
"""

import json
import sys
import traceback
from datetime import timedelta
from functools import partial
from pathlib import Path

import shared_memory_failures
import torch
import torch.distributed as dist
from shared_memory_cases import CASES, RANKS, SIZES

from paceline.parts.comm.transports.shared_memory.transport import SharedMemory


def main() -> None:
    _, port, rank, _, _, out = sys.argv[1:]
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", int(port), timeout=timedelta(seconds=60))
    outcomes: dict[str, str] = {}

    def run(name, function, size):
        if int(rank) < size:
            open_memory = opener(store, name, int(rank), size)
            outcomes[f"{size}-{name}"] = outcome(partial(function, open_memory, int(rank), size))
        # Written each time, so that a hang or a crash leaves what was found before.
        Path(out).write_text(json.dumps(outcomes))

    for size in SIZES:
        for name, function in CASES.items():
            run(name, function, size)
            store.set(f"after {size} {name} {rank}", "")
            store.wait([f"after {size} {name} {peer}" for peer in range(RANKS)], timedelta(seconds=60))
    run("die_in_the_middle", shared_memory_failures.die_in_the_middle, RANKS)


def opener(store, name, rank, size):
    made = []

    def open_memory(**options):
        made.append(None)
        prefixed = dist.PrefixStore(f"{name} {size} {len(made)}", store)
        return SharedMemory(prefixed, rank, size, **{"timeout_seconds": 30, **options})

    open_memory.store = store
    return open_memory


def outcome(run):
    try:
        run()
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    main()
