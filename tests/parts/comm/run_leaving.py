"""One rank whose script ends in one of many ways: run_leaving.py BACKEND STORE_PORT RANK SIZE HOST OUT HOW

OUT gets the names of our threads that are left, where the script got to say it.
"""

import json
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.parts.comm import backends


def main() -> None:
    backend, port, rank, size, host, out, how = sys.argv[1:]
    torch.set_num_threads(1)
    backends.register(lambda: host)
    dist.init_process_group(backend, store=dist.TCPStore("127.0.0.1", int(port)), rank=int(rank), world_size=int(size))
    beside = dist.new_group()
    dist.all_reduce(torch.ones(1_000_000), group=beside)
    works = [dist.all_reduce(torch.ones(1_000_000), async_op=True) for _ in range(4)]
    if how == "one_asks_for_more" and rank == "0":
        dist.all_reduce(torch.ones(1_000_000), async_op=True)
    if how == "destroys":
        dist.destroy_process_group()
        assert all(work.is_success() for work in works)
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("paceline 0")]
        Path(out).write_text(json.dumps(left))
    if how == "exits":
        sys.exit(3)


if __name__ == "__main__":
    main()
