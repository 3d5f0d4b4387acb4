"""One of 4 ranks that run the strategies' cases: run_strategies.py SUITE STORE_PORT RANK OUT

SUITE is a module beside this one with `cases()`. OUT gets one line of JSON a case: {"case", "error"}. The ranks that a place leaves out
go on to the next case. A rank ends with the first error, and the others with it: what a strategy left on its way would disturb
what follows.
"""

import importlib
import json
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from strategy_ranks import SIZE, TIMEOUT, places


def title(case, name, place):
    return f"{case.__name__}[{name}, {place}]"


def main():
    suite, port, rank, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=TIMEOUT)
    everywhere = places(rank)
    with out.open("w") as stream:
        for case, name, place in importlib.import_module(suite).cases():
            start, error = time.perf_counter(), ""
            try:
                case(everywhere[place], name)
            except Exception:
                error = traceback.format_exc()
            seconds = round(time.perf_counter() - start, 3)
            stream.write(json.dumps({"case": title(case, name, place), "error": error, "seconds": seconds}) + "\n")
            stream.flush()
            if error:
                return
            everywhere[place].close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
