"""Ranks of an NCCL job over the stand-in, in one situation after the other; what each rank's worker server answers then is printed.

    LD_PRELOAD=... python nccl_situations.py

One line of JSON for each situation: {"situation": ..., "answers": {rank: {question: document, or null where none came in time}}}.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "2000"
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

WORLD_SIZE = 4
QUESTIONS = ("dump_nccl_trace_json?includecollectives=false", "dump_nccl_trace_json", "fr_trace_json?backend=nccl2")
ANSWER_SECONDS = 2.0
fake = ctypes.CDLL(None)


def on_device(*shape, **options):
    return torch.zeros(*shape, device="cuda", **options)


def warm():
    """Four collectives that end."""
    for _ in range(4):
        dist.all_reduce(on_device(256))
    torch.cuda.synchronize()


def healthy(rank, stuck):
    warm()


def missing_rank(rank, stuck):
    """Rank 1 does not come to number 5."""
    warm()
    if rank != 1:
        dist.all_reduce(on_device(4096), async_op=True)


def mismatched_operation(rank, stuck):
    """Rank 2 calls another collective as number 5."""
    warm()
    if rank == 2:
        dist.all_gather_into_tensor(on_device(4096 * WORLD_SIZE), on_device(4096), async_op=True)
    else:
        dist.all_reduce(on_device(4096), async_op=True)


def mismatched_size(rank, stuck):
    """Rank 0 hands half as much to number 5."""
    warm()
    dist.all_reduce(on_device(2048 if rank == 0 else 4096), async_op=True)


def hung_kernel(rank, stuck):
    """Number 5 never ends, though all ranks are in; another one waits behind it."""
    warm()
    fake.fake_nccl_hang_from(4)
    dist.all_reduce(on_device(4096), async_op=True)
    dist.broadcast(on_device(16), 0, async_op=True)


def blocked_stream(rank, stuck):
    """A kernel of rank 1 before number 5 never ends."""
    warm()
    if rank == 1:
        fake.fake_gpu_block_stream(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    dist.all_reduce(on_device(4096), async_op=True)


def several_groups(rank, stuck):
    """Rank 3 does not come to its first group's number 4, so rank 2 does not come to the other one's, and rank 0 waits there."""
    pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    for _ in range(3):
        dist.all_reduce(on_device(64), group=pair)
        dist.all_reduce(on_device(128), group=across)
    torch.cuda.synchronize()
    if rank != 3:
        dist.all_reduce(on_device(64), group=pair, async_op=True)
    if rank not in (2, 3):
        dist.all_reduce(on_device(128), group=across, async_op=True)


def point_to_point(rank, stuck):
    """A ring of messages from which rank 2 stays away."""
    warm()
    there, back = (rank + 1) % WORLD_SIZE, (rank - 1) % WORLD_SIZE
    if rank != 2:
        dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, on_device(128), there), dist.P2POp(dist.irecv, on_device(128), back)]
        )


def stuck_driver(rank, stuck):
    """As hung_kernel, and the driver of rank 1 answers nobody."""
    hung_kernel(rank, stuck)
    time.sleep(0.3)
    if rank == 1:
        stuck.touch()


SITUATIONS = (
    healthy,
    missing_rank,
    mismatched_operation,
    mismatched_size,
    hung_kernel,
    blocked_stream,
    several_groups,
    point_to_point,
    stuck_driver,
)


def ask(path, question):
    """What the worker server answers, as a document; None where it does not in time, or has no such question."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            head = f"POST /handler/{question} HTTP/1.1\r\nHost: rank\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            received = b"".join(iter(lambda: connection.recv(1 << 18), b""))
        except TimeoutError:
            return None
    head, _, body = received.partition(b"\r\n\r\n")
    return json.loads(body) if b" 200 " in head.partition(b"\r\n")[0] else None


def rank_of(situation, rank, folder):
    """One rank, until it is killed: it is there when the file that it writes is."""
    stuck = folder / f"stuck-{rank}"
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), FAKE_GPU_DIRECTORY=str(folder), FAKE_GPU_STUCK_WHILE=str(stuck)
    )
    server = c10d._WorkerServer(str(folder / f"{rank}.socket"), -1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", store=dist.FileStore(str(folder / "store")), rank=rank, world_size=WORLD_SIZE)
    situation(rank, stuck)
    # What torch's watchdog sees, it sees within a tenth of a second.
    time.sleep(1)
    (folder / f"{rank}.there").touch()
    while server:
        time.sleep(60)


def look_at(situation):
    """The answers of the ranks of one situation; they are ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="nccl-") as name:
        folder = Path(name)
        ranks = [fork(rank_of, situation, rank, folder) for rank in range(WORLD_SIZE)]
        try:
            while len(list(folder.glob("*.there"))) < WORLD_SIZE:
                if any(os.waitpid(pid, os.WNOHANG)[0] for pid in ranks):
                    raise SystemExit(f"{situation.__name__}: a rank ended")
                time.sleep(0.05)
            return {
                rank: {question: ask(folder / f"{rank}.socket", question) for question in QUESTIONS}
                for rank in range(WORLD_SIZE)
            }
        finally:
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def fork(function, *argv):
    if pid := os.fork():
        return pid
    try:
        function(*argv)
    except BaseException as error:
        print(f"{argv}: {error!r}", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for situation in SITUATIONS:
        if not wanted or situation.__name__ in wanted:
            print(json.dumps({"situation": situation.__name__, "answers": look_at(situation)}), flush=True)
