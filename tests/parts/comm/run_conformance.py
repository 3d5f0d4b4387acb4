"""One rank that runs cases of conformance.py: run_conformance.py BACKEND STORE_PORT RANK SIZE HOST OUT CROSSOVER CASES

CASES is a file with a name a line. OUT gets one line of JSON a case: {"case", "error", "seconds"}. After each case all ranks agree over
the store whether it passed everywhere; where it did not, the group is made anew, so that the next case starts clean.
"""

import json
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import conformance
import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=20)


class Ranks:
    """The default group, and agreement that does not use it. `holds_store`: rank 0 does, not who started the ranks."""

    def __init__(self, backend: str, port: int, rank: int, size: int, *, holds_store: bool = True) -> None:
        self.backend, self.rank, self.size = backend, rank, size
        self._store = dist.TCPStore("127.0.0.1", port, is_master=holds_store and rank == 0, wait_for_workers=False)
        self._generation = 0
        self.open()

    def open(self) -> None:
        store = dist.PrefixStore(f"generation{self._generation}/", self._store)
        dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=self.size, timeout=TIMEOUT)

    def reopen(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        self._generation += 1
        self.open()

    def all_passed(self, name: str, passed: bool) -> bool:
        self._store.set(f"{name}/{self.rank}", "passed" if passed else "failed")
        keys = [f"{name}/{rank}" for rank in range(self.size)]
        self._store.wait(keys, timedelta(seconds=90))
        return all(self._store.get(key) == b"passed" for key in keys)


def run(ranks: Ranks, out: Path, names: list[str]) -> None:
    """Every case once."""
    cases = conformance.load()
    with out.open("w") as stream:
        for name in names:
            error, began = "", time.monotonic()
            try:
                cases[name].run(dist, dist.group.WORLD, ranks.rank, ranks.size)
            except Exception:
                error = traceback.format_exc()
            seconds = time.monotonic() - began
            stream.write(json.dumps({"case": name, "error": error, "seconds": seconds}) + "\n")
            stream.flush()
            if not ranks.all_passed(name, not error):
                ranks.reopen()


def main() -> None:
    backend, port, rank, size, host, out, crossover, listed = sys.argv[1:]
    torch.set_num_threads(1)
    if backend not in dist.Backend.backend_list:
        from paceline.parts.comm import backends

        backends.register(lambda: host, int(crossover))
    ranks = Ranks(backend, int(port), int(rank), int(size), holds_store=False)
    run(ranks, Path(out), Path(listed).read_text().split("\n"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
