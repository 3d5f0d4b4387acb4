"""Starts one program on several ranks of this machine, which may pretend to be on several hosts, and waits for all of them."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from patience import patient

HERE = Path(__file__).parent


@dataclass
class Rank:
    """One process. `out_file`: what it printed; `left`: the file whose name it was given, for results."""

    process: subprocess.Popen
    out_file: Path
    left: Path

    @property
    def out(self) -> str:
        return self.out_file.read_text(errors="replace")


class Ranks:
    """One rank for each letter of `hosts`, equal letters on one host: "aabb" is two hosts of two.

    The program is called with: backend, port of a TCPStore that this process holds, rank, size, host, name of a file for results, and
    the words given here.
    """

    def __init__(self, program: str, backend: str, hosts: str, directory: Path, environment: dict[str, str]) -> None:
        self.hosts = hosts
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._program, self._backend = program, backend
        self._directory, self._environment = directory, environment
        self.ranks: list[Rank] = []

    def start(self, *words: str) -> None:
        for rank, host in enumerate(self.hosts):
            left, out = self._directory / f"{rank}.left", self._directory / f"{rank}.out"
            place = [str(self._store.port), str(rank), str(len(self.hosts)), host, str(left)]
            with out.open("wb") as stream:
                process = subprocess.Popen(
                    [sys.executable, str(HERE / self._program), self._backend, *place, *words],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                )
            self.ranks.append(Rank(process, out, left))

    def wait(self, seconds: float, expected: Sequence[int] = ()) -> None:
        """Until all have ended with 0, or with the codes of `expected`; the rest is ended as soon as one did otherwise."""
        codes = list(expected) or [0] * len(self.ranks)
        deadline = time.monotonic() + patient(seconds)
        try:
            while (ended := [rank.process.poll() for rank in self.ranks]) != codes:
                wrong = [index for index, code in enumerate(ended) if code not in (None, codes[index])]
                assert not wrong, f"rank {wrong[0]} ended with {ended[wrong[0]]}\n{self.ranks[wrong[0]].out[-4000:]}"
                assert time.monotonic() < deadline, "\n".join(
                    f"rank {index} still runs\n{self.ranks[index].out[-2000:]}"
                    for index, code in enumerate(ended)
                    if code is None
                )
                time.sleep(0.02)
        finally:
            self.end()

    def end(self) -> None:
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
            rank.process.wait()


def environment_of_ranks(environment: dict[str, str]) -> dict[str, str]:
    """Of a person, with the folder of these programs; torch's words about its own deprecations are not ours."""
    path = f"{environment['PYTHONPATH']}:{HERE}"
    return {**environment, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
