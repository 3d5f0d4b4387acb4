"""One NCCL rank on a GPU, brought into a situation, and what each recorder of its process answers meanwhile.

    python bench/gpu_nccl.py SITUATION [--backend nccl]      prints one document of JSON
    python bench/gpu_nccl.py timing                         prints microseconds of a small all_reduce

A kernel that runs for half a minute stands for one that does not end. The rank is its own questioner: torch's worker server answers from
threads of C++, and a rank that waits for its GPU does not hold the GIL.
"""

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer
from torch.distributed.distributed_c10d import _coalescing_manager

# Half a minute at 2 GHz: longer than all questions take.
_CYCLES = 60_000_000_000
_QUESTIONS = (
    "dump_nccl_trace_json?includecollectives=false",
    "dump_nccl_trace_json",
    "fr_trace_json",
    "fr_trace_json?backend=nccl2",
    "c10d_health_check",
)
_LIMIT_SECONDS = 3.0
_RAS = ("localhost", 28028)


def healthy(numbers: torch.Tensor) -> None:
    """Six sums that are over."""
    for _ in range(2):
        dist.all_reduce(numbers)
    torch.cuda.synchronize()


def kernel_before(numbers: torch.Tensor) -> None:
    """A kernel of the script's own runs, and a sum waits behind it."""
    torch.cuda._sleep(_CYCLES)
    dist.all_reduce(numbers, async_op=True)


def coalesced(numbers: torch.Tensor) -> None:
    """Three sums in one coalescing manager, behind a kernel that runs."""
    torch.cuda._sleep(_CYCLES)
    with _coalescing_manager(device=numbers.device, async_ops=True):
        for _ in range(3):
            dist.all_reduce(torch.ones_like(numbers))


SITUATIONS: dict[str, Callable[[torch.Tensor], None]] = {
    situation.__name__: situation for situation in (healthy, kernel_before, coalesced)
}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("situation", choices=[*SITUATIONS, "timing"])
    arguments.add_argument("--backend", default="nccl")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-gpu-") as folder:
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        torch.cuda.set_device(0)
        dist.init_process_group(asked.backend, store=store, rank=0, world_size=1)
        numbers = torch.ones(4096, device="cuda")
        for _ in range(4):
            dist.all_reduce(numbers)
        torch.cuda.synchronize()
        found = _timing(numbers) if asked.situation == "timing" else _answers(asked.situation, numbers, Path(folder))
    print(json.dumps(found), flush=True)
    # The kernel may run on for a while, and nobody needs its end.
    os._exit(0)


def _answers(situation: str, numbers: torch.Tensor, folder: Path) -> dict[str, Any]:
    path = folder / "server.sock"
    server = _WorkerServer(str(path), -1)
    SITUATIONS[situation](numbers)
    # torch's watchdog looks at its collectives ten times a second.
    time.sleep(1.0)
    answers, seconds = {}, {}
    for question in _QUESTIONS:
        begin = time.perf_counter()
        answers[question] = _ask(path, question)
        seconds[question] = time.perf_counter() - begin
    begin = time.perf_counter()
    ras = {line: _ras(line) for line in ("STATUS", "VERBOSE STATUS")}
    found = {
        "situation": situation,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "timing": os.environ.get("TORCH_NCCL_ENABLE_TIMING", "0"),
        "answers": answers,
        "seconds": seconds,
        "ras": ras,
        "ras_seconds": time.perf_counter() - begin,
        "main_thread": _threads()[0],
    }
    server.shutdown()
    return found


def _ask(path: Path, question: str) -> Any:
    """The document of an answer; its status where that is another one than 200; None if none came in time."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_LIMIT_SECONDS)
        connection.connect(str(path))
        head = f"POST /handler/{question} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode())
        try:
            received = _all_of(connection)
        except TimeoutError:
            return None
    status, _, body = received.partition(b"\r\n\r\n")
    return json.loads(body) if b" 200 " in status.split(b"\r\n")[0] else status.decode().splitlines()[0]


def _ras(line: str) -> dict[str, str]:
    """What NCCL's own service answers in its two forms, or why it does not."""
    found = {}
    for form in ("text", "json"):
        try:
            with socket.create_connection(_RAS, timeout=_LIMIT_SECONDS) as connection:
                lines = ["CLIENT PROTOCOL 2", "TIMEOUT 1", *(["SET FORMAT json"] if form == "json" else []), line]
                connection.sendall("".join(f"{each}\n" for each in lines).encode())
                connection.settimeout(_LIMIT_SECONDS * 3)
                found[form] = _all_of(connection).decode(errors="replace")
        except OSError as error:
            found[form] = repr(error)
    return found


def _all_of(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 18):
        parts.append(part)
    return b"".join(parts)


def _threads() -> list[dict[str, str]]:
    """State and kernel function of each thread of this process, the main thread first."""
    found = []
    for task in sorted(Path("/proc/self/task").iterdir(), key=lambda path: int(path.name)):
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        found.append({"state": state, "in": (task / "wchan").read_text()})
    return found


def _timing(numbers: torch.Tensor) -> dict[str, float]:
    rounds = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(1000):
            dist.all_reduce(numbers)
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) * 1e3)
    # 1,000 calls: milliseconds of the round are microseconds of a call.
    return {"us_of_a_call": statistics.median(rounds), "least": min(rounds), "most": max(rounds)}


if __name__ == "__main__":
    main()
