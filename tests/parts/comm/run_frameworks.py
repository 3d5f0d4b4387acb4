"""One rank that runs the cases of frameworks.py: run_frameworks.py BACKEND STORE_PORT RANK SIZE HOST OUT CASE ...

OUT gets {case: [tensors]}, or {case: text of the error}, by torch.save.
"""

import sys
import traceback
from datetime import timedelta

import frameworks
import torch
import torch.distributed as dist


def main() -> None:
    backend, port, rank, size, host, out, *names = sys.argv[1:]
    torch.set_num_threads(1)
    if backend != "gloo":
        from paceline.parts.comm import backends

        backends.register(lambda: host)
    store = dist.TCPStore("127.0.0.1", int(port))
    results: dict[str, object] = {}
    for number, name in enumerate(names):
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(f"{number}/", store),
            rank=int(rank),
            world_size=int(size),
            timeout=timedelta(seconds=30),
        )
        try:
            results[name] = frameworks.CASES[name](int(rank), int(size))
        except Exception:
            results[name] = traceback.format_exc()
        dist.destroy_process_group()
        torch.compiler.reset()
    torch.save(results, out)


if __name__ == "__main__":
    main()
