"""Logs in the formats of several releases of torch, NCCL, gloo and their launchers, written for these tests, each with its answer.

What is a fact of a format (which words stand where, since which release) is from the source named beside it; no log here is somebody's own.
"""

from dataclasses import dataclass

MINUTES_30 = 1_800_000


@dataclass(frozen=True)
class Answer:
    """What is to be said first: one of `codes`, about `ranks`, with these words in what was seen."""

    codes: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Release:
    """How one release of torch writes a watchdog's timeout. ProcessGroupNCCL.cpp, checkTimeout and watchdogHandler; c10/util/Logging.cpp."""

    name: str
    mark: str = ""
    stamp: str = ""
    sizes: bool = True
    status: str = ""

    def begin(self, rank, clock):
        return self.mark.format(rank=rank) + self.stamp.format(clock=clock)

    def timeout(self, rank, index, operation, elements=1024, ran=MINUTES_30 + 12, clock="11:30:02"):
        numel = f"NumelIn={elements}, NumelOut={elements}, " if self.sizes else ""
        work = f"WorkNCCL(SeqNum={index}, OpType={operation}, {numel}Timeout(ms)={MINUTES_30})"
        head = self.begin(rank, clock)
        return f"{head}[Rank {rank}] Watchdog caught collective operation timeout: {work} ran for {ran} milliseconds before timing out."

    def counters(self, rank, index, enqueued, completed, clock="11:30:02"):
        if not self.status:
            return ""
        return self.begin(rank, clock) + self.status.format(
            rank=rank, index=index, enqueued=enqueued, completed=completed
        )

    def fall(self, rank, clock="11:30:05"):
        head = self.begin(rank, clock)
        return (
            f"{head}[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, "
            "subsequent GPU operations might run on corrupted/incomplete data.\n"
            f"{head}[Rank {rank}] To avoid data inconsistency, we are taking the entire process down."
        )


_OLD = "Timeout at NCCL work: {index}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
_EITHER = (
    "Exception (either an error or timeout) detected by watchdog at work: {index}, last enqueued NCCL work: {enqueued}, "
    "last completed NCCL work: {completed}."
)
_SEQUENCE = (
    " failure detected by watchdog at work sequence id: {index} PG status: last enqueued work: {enqueued}, "
    "last completed work: {completed}"
)
RELEASES = (
    Release("2.0", stamp="[E ProcessGroupNCCL.cpp:828] ", sizes=False),
    Release("2.1", stamp="[E ProcessGroupNCCL.cpp:474] "),
    Release("2.2", mark="[rank{rank}]:", stamp="[E ProcessGroupNCCL.cpp:523] "),
    Release("2.3", mark="[rank{rank}]:", stamp="[E ProcessGroupNCCL.cpp:563] ", status="[PG 0 Rank {rank}] " + _OLD),
    Release("2.4", mark="[rank{rank}]:", stamp="[E130 {clock}.408271257 ProcessGroupNCCL.cpp:607] ", status="[PG 0 (default_pg) Rank {rank}] " + _EITHER),
    Release("2.5", mark="[rank{rank}]:", stamp="[E130 {clock}.908271257 ProcessGroupNCCL.cpp:616] ", status="[PG ID 0 PG GUID 0(default_pg) Rank {rank}] " + _EITHER),
    Release("2.6", mark="[rank{rank}]:", stamp="[E130 {clock}.108271257 ProcessGroupNCCL.cpp:629] ", status="[PG ID 0 PG GUID 0(default_pg) Rank {rank}] " + _SEQUENCE),
    Release("2.8", mark="[rank{rank}]:", stamp="[E130 {clock}.208271257 ProcessGroupNCCL.cpp:685] ", status="[PG ID 0 PG GUID 0(default_pg) Rank {rank}] " + _SEQUENCE),
    Release("2.10 to 2.13", mark="[rank{rank}]:", stamp="[E130 {clock}.308271257 ProcessGroupNCCL.cpp:687] ", status="[PG ID 0 PG GUID 0(default_pg) Rank {rank}] " + _SEQUENCE),
    Release("2.13 with glog", mark="[rank{rank}]:", stamp="E0130 {clock}.308271 4711 ProcessGroupNCCL.cpp:687] ", status="[PG ID 0 PG GUID 0(default_pg) Rank {rank}] " + _SEQUENCE),
)  # fmt: skip

LIMITS = {
    "SageMaker": "2026-01-30 12:00:21 Stopping - MaxRuntimeExceeded: Training job runtime exceeded MaxRuntimeInSeconds provided",
    "Slurm": "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-01-30T12:00:21 DUE TO TIME LIMIT ***",
    "Slurm's step": "srun: Job step aborted\nslurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-01-30T12:00:21 DUE TO TIME LIMIT ***",
    "Kubernetes": "2026-01-30T12:00:21Z Warning DeadlineExceeded job/train Job was active longer than specified deadline",
    "time alone": "12:00:21 MaxRuntimeExceeded - Training job runtime exceeded MaxRuntimeInSeconds provided",
}
TRAINING = "".join(
    f"2026-01-30 10:{minute:02d}:10,123 INFO step {minute * 80} loss 0.{90 - minute}\n" for minute in range(1, 60)
)


def waited(release, *, index=4211, operation="ALLREDUCE", elements=25_557_032, ranks=(1,), world=4, limit=""):
    """Some of the ranks waited in vain; the platform's limit may have come after."""
    lines = [TRAINING, f"world_size={world}\n"]
    for rank in ranks:
        lines += [
            release.timeout(rank, index, operation, elements),
            release.counters(rank, index, index + 2, index - 1),
            release.fall(rank),
        ]
    return "\n".join(filter(None, [*lines, LIMITS.get(limit, "")])) + "\n"


def waits():
    """Every release, alone and cut off by every platform's limit."""
    for release in RELEASES:
        words = [
            "rank 1 waited 30 min in ALLREDUCE #4211",
            "not in these lines",
            "the last line before it: job.log:61: ",
            "world_size=4",
        ]
        if "{clock}" in release.stamp:
            words[0] += " of 25,557,032 elements, from 11:00:02 until 11:30:02"
        yield f"{release.name} waits", waited(release), Answer(("unclear",), (), tuple(words))
        for platform in LIMITS:
            later = " 30 min later" if "{clock}" in release.stamp else ""
            more = (*words, f"the job's time limit came{later}")
            yield f"{release.name}, {platform}", waited(release, limit=platform), Answer(("unclear",), (), more)
        three = waited(release, ranks=(0, 2, 3))
        yield (
            f"{release.name}, three of four",
            three,
            Answer(("unclear",), (), ("ranks 0,2-3 waited 30 min", "no timeout was written by rank 1")),
        )
        yield (
            f"{release.name}, all of four",
            waited(release, ranks=range(4)),
            Answer(("unclear",), (), ("ranks 0-3 waited 30 min",)),
        )
        yield (
            f"{release.name}, barrier",
            waited(release, index=5, elements=1),
            Answer(("N04", "unclear"), (), ("in ALLREDUCE #5",)),
        )
        different = "\n".join(
            (
                release.timeout(0, 71, "ALLREDUCE"),
                release.counters(0, 71, 73, 70),
                release.timeout(1, 71, "BROADCAST"),
                release.counters(1, 71, 73, 70),
            )
        )
        yield f"{release.name}, two calls", different, Answer(("M01",), (0, 1))
        sends = "\n".join((release.timeout(0, 71, "SEND"), release.timeout(1, 71, "RECV")))
        yield f"{release.name}, point to point", sends, Answer(("unclear",), (), ("rank 0 waited 30 min in SEND #71",))
        if release.status:
            behind = "\n".join(
                [
                    release.timeout(0, 71, "ALLREDUCE"),
                    *(release.counters(rank, 71, 70 if rank == 2 else 72, 70) for rank in range(4)),
                ]
            )
            yield f"{release.name}, one behind", behind, Answer(("N01",), (2,), ("rank 2 had issued 70 collectives",))
        report = (
            f"{release.timeout(0, 315, 'ALLREDUCE')}\n\t - [0] Timeout at collective: ALLREDUCE, #315\n"
            "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
            "\t   - [3] finished collective #182, but didn't join collective #183 (count from 1)\n"
            "\t - Snapshot of ranks' latest states:\n\t   #182 finished ranks:\n\t     [3] finished ALLREDUCE\n"
        )
        yield f"{release.name}, ranks compared", report, Answer(("N01",), (3,), ("did not join 183",))


NEVER_JOINED = (
    "[rank0]:[E130 11:30:02.408271257 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=BROADCAST, NumelIn=7, NumelOut=7, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
    "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
    "\t   - [1, 2] are the lagging ranks that caused this timeout. They never joined any collectives\n"
)
RAISED = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/home/u/train.py", line 31, in main\n'
    "[rank2]:     loss = step(batch)\n"
    "[rank2]: KeyError: 'label'\n"
)
ROOT_CAUSE_0 = (
    "W0130 11:30:09.100000 71 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 200 closing signal SIGTERM\n"
    "E0130 11:30:39.100000 71 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 200) of binary: python\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-30_11:30:07\n  host      : node05\n"
    "  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 200)\n  error_file: <N/A>\n"
)
LOST = "[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:19376\n"

# Name, log, answer. Sources beside the groups.
ONE_CAUSE = (
    ("never joined", NEVER_JOINED, Answer(("N01",), (1, 2))),
    ("torchrun's root cause is a victim", RAISED + LOST + ROOT_CAUSE_0, Answer(("C01",), (2,), ("KeyError: 'label'", "train.py:31"))),
    ("raised, others timed out", RAISED + waited(RELEASES[6], ranks=(0, 1, 3)), Answer(("C01",), (2,))),
    # aten/src/ATen/MapAllocator.cpp, since 1.10 with errno; NCCL src/misc/shmutils.cc, 2.18, 2.21, 2.23, 2.27
    ("no room for a tensor", "RuntimeError: unable to write to file </torch_12_34_0>: No space left on device (28)", Answer(("C08",))),
    ("no room to make one", "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No space left on device (28)", Answer(("C08",))),
    ("no descriptor", "RuntimeError: unable to open shared memory object </torch_7_8_0> in read-write mode: Too many open files (24)", Answer(("C10",))),
    ("NCCL 2.18: no room", "n1:1:9 [0] include/shm.h:27 NCCL WARN Call to posix_fallocate failed : No space left on device", Answer(("C08",))),
    ("NCCL 2.23: no room", "n1:1:9 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes, error: No space left on device (28)", Answer(("C08",))),
    ("NCCL 2.27: no descriptor", "n1:1:9 [0] misc/shmutils.cc:70 NCCL WARN Error: failed to create shared memory file /dev/shm/nccl-abc, error Too many open files (24)", Answer(("C10",))),
    # torch/utils/data/_utils/signal_handling.py
    ("a worker killed", "[rank1]: RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.", Answer(("C12",), (1,))),
    ("a worker gone", "[rank1]: RuntimeError: DataLoader worker (pid(s) 71, 72) exited unexpectedly", Answer(("C12",), (1,))),
    ("a worker on the bus", "[rank1]: RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", Answer(("C08",), (1,))),
    # c10/cuda/CUDAException.cpp; drivers
    ("device-side assert", "[rank3]: RuntimeError: CUDA error: device-side assert triggered\n[rank3]: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.", Answer(("C01",), (3,))),
    ("assertion of a kernel", "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce: block: [0,0,0], thread: [4,0,0] Assertion `t >= 0 && t < n_classes` failed.", Answer(("C01",))),
    ("memory of a GPU", "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB", Answer(("C07",), (0,))),
    ("memory of a GPU in NCCL", "n1:1:9 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 2 'out of memory'", Answer(("C07",))),
    ("a broken GPU", "[123.4] NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus.", Answer(("unclear",))),
    ("memory of a GPU broke", "[rank1]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", Answer(("unclear",), (1,))),
    # mm/oom_kill.c, slurmd, kubelet
    ("killed at the limit", "[9.1] Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB", Answer(("C02",))),
    ("killed by Slurm's limit", "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.", Answer(("C02",))),
    ("killed in a pod", "    Last State: Terminated\n      Reason: OOMKilled\n      Exit Code: 137", Answer(("C02",))),
    ("the host had none left", "[9.1] Out of memory: Killed process 4242 (python) total-vm:9kB", Answer(("C03",))),
    # glibc nptl/unwind.c; MPI; srun
    ("aborted at exit", "training done\nFATAL: exception not rethrown\n", Answer(("C05",))),
    ("MPI abort", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.", Answer(("C01",), (3,))),
    ("MPI signal", "mpirun noticed that process rank 2 with PID 0 on node n1 exited on signal 11 (Segmentation fault).", Answer(("C05",), (2,))),
    ("a node lost", "srun: error: Node failure on n7\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.", Answer(("C04",))),
    ("only the limit", TRAINING + LIMITS["SageMaker"], Answer(("C04",), (), ("MaxRuntimeExceeded", "loss 0.31"))),
    ("only Slurm's limit", TRAINING + LIMITS["Slurm"], Answer(("C04",), (), ("TIME LIMIT", "loss 0.31"))),
    # torch/csrc/distributed/c10d: TCPStore, ProcessGroupGloo, reducer; gloo/transport/tcp, 2023 to 2026
    ("monitored barrier", "[rank0]: RuntimeError: Rank 1 failed to pass monitoredBarrier in 15000 ms", Answer(("N01",), (1,))),
    ("too few", "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined.", Answer(("R01",))),
    ("port taken", "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", Answer(("R04",))),
    ("no launcher", "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set", Answer(("R07",))),
    ("gloo waits", "[rank1]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete", Answer(("unclear",), (), ("rank 1 waited 30 min in gloo's recv",))),
    ("models differ", "[rank1]: RuntimeError: DDP expects same model across all ranks, but Rank 1 has 12 params, while rank 0 has inconsistent 10 params.", Answer(("M09",), (1,))),
    ("unused parameters", "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.", Answer(("M08",))),
    ("one GPU twice", "n1:1:9 [0] init.cc:806 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000", Answer(("R08",))),
    ("versions of NCCL", "n1:1:9 [0] init.cc:900 NCCL WARN Mismatched NCCL version detected : rank 0 version 22304 rank 1 version 22703", Answer(("M10",))),
    ("world sizes", "n1:1:9 [0] bootstrap.cc:129 NCCL WARN Bootstrap Root : mismatch in rank count from procs 8 : 4", Answer(("R06",))),
)  # fmt: skip

# Sentences with two causes: nothing that is said of them may be sure.
TWO_CAUSES = (
    "RuntimeError: unable to open shared memory object </torch_29919_1396182366> in read-write mode",
    "RuntimeError: unable to mmap 4096 bytes from file </torch_1_2_0>: Cannot allocate memory (12)",
    "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error.",
    "OSError: [Errno 12] Cannot allocate memory",
    "RuntimeError: can't start new thread",
    "OSError: [Errno 28] No space left on device",
    "RuntimeError: [pair.cc:534] Read error [10.0.0.2]:4321: Connection reset by peer",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "bash: line 1: 12345 Killed                  python train.py",
    "  exitcode  : -9 (pid: 201)",
    "RuntimeError: [enforce fail at device.cc:208] rp != nullptr. Unable to find address for: node-7",
    "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 10 params, while rank 1 has inconsistent 0 params.",
    "Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:2222",
    "CUDA error: an illegal memory access was encountered",
    "n1:1:9 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 len=0 vendor err 129",
)  # fmt: skip


def corpus():
    """Name, log, answer of every log."""
    yield from waits()
    yield from ONE_CAUSE
