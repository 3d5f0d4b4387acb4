"""What lines of plain logs point at: a table of patterns, each with the causes it fits, what would decide, and where it is from.

Text alone seldom decides: most lines are what a victim says. `symptom` lines never are a cause while another candidate exists.
"""

import re
from dataclasses import dataclass

from paceline.diagnosis.crash.root_cause import is_symptom_text
from paceline.diagnosis.logs.prefilter import needed_words
from paceline.findings import NO_CODE, Confidence

HIGH, LIKELY, UNCLEAR = Confidence.HIGH, Confidence.LIKELY, Confidence.UNCLEAR
# Trouble that has a name and no rule: its title is the sign's `means`.

WHERE_IT_IS = "py-spy dump --nonblocking --pid PID, on every rank while it hangs: the late rank is not in a collective"
_RUN_HERE = "paceline run ... the same script: it names the rank that the others wait for within seconds"
_WHO_KILLED = "dmesg -T | grep -iE 'killed process|oom', on the host of that rank; without a line there, ask the scheduler who ended it"
_WHO_LEFT = "the logs of the other ranks: the one whose output ends first, or that ended with 0, is the cause"
_REACH = (
    "python -c 'import socket; socket.create_connection((\"MASTER_ADDR\", MASTER_PORT), 5)', on the host that waits: "
    "refused, timed out, or no such name"
)
_WHO_JOINED = "the logs of all hosts: a host without a log, or with the latest first line, has not come"
_FILES = (
    "ulimit -n, beside ls /proc/PID/fd | wc -l; torch.multiprocessing.set_sharing_strategy('file_system') avoids it"
)
_SHM_OR_FILES = "df -h /dev/shm, in the container, beside ulimit -n and ls /proc/PID/fd | wc -l while it runs"
_SHM = "df -h /dev/shm, in the container; then --shm-size=8g or --ipc=host"


@dataclass(frozen=True, slots=True)
class Sign:
    """A pattern and the causes that it fits.

    The line is about the rank that wrote it. If the pattern has a group `absent`, the line is about the rank in that group or, if
    the group is empty, about a rank that the line does not name.
    """

    pattern: re.Pattern[str]
    """What the line matches."""
    codes: tuple[str, ...]
    """Causes, the most likely first."""
    confidence: Confidence
    """Confidence of the first cause; the others are unclear."""
    means: str
    """What such a line means."""
    decides: str
    """The command or measurement that would decide."""
    source: str
    """Where the line comes from."""
    symptom: bool = False
    """The line reports that another rank is gone."""
    exit_code: int = 0
    """The code with which a process ends that writes such a line, where it is a known one."""
    words: tuple[str, ...] = ()
    """If a text has none of these, the pattern does not match; empty: it has to be tried."""

    def may_be_in(self, text: str) -> bool:
        return not self.words or any(word in text for word in self.words)


def _sign(
    pattern: str,
    codes: str,
    confidence: Confidence,
    means: str,
    decides: str,
    source: str,
    symptom: bool = False,
    exit_code: int = 0,
) -> Sign:
    words = needed_words(pattern)
    return Sign(
        re.compile(pattern), tuple(codes.split()), confidence, means, decides, source, symptom, exit_code, words
    )


_MEMORY_AND_LIMITS = (
    _sign(r"Detected \d+ oom[-_]kill event|oom-kill:constraint=CONSTRAINT_MEMCG|Memory cgroup out of memory: Killed process|"
          r"\bOOMKilled\b|task \d+(?:-\d+)?: Out Of Memory",
          "C02", HIGH, "the kernel killed a process at its cgroup's memory limit",
          "sacct -j JOB -o MaxRSS, or memory.peak beside memory.max of the job's cgroup", "slurmd, mm/oom_kill.c"),
    _sign(r"(?<!cgroup )[Oo]ut of memory: Killed process|constraint=CONSTRAINT_NONE", "C03", HIGH,
          "the kernel killed a process because the whole machine had no memory left",
          "free -g on that host while the job runs", "mm/oom_kill.c"),
    _sign(r"systemd-oomd\[\d+\]: Killed |earlyoom\[?\d*\]?: sending SIG(?:TERM|KILL)|Please use an instance type with more memory",
          "C03", LIKELY, "a guard of the host ended a process because memory ran out",
          "free -g on that host while the job runs", "systemd, oomd-util.c; rfjakob/earlyoom, kill.c; SageMaker, FailureReason"),
    _sign(r"ibv_(?:reg_mr|create_(?:cq|qp|srq))\w{0,12} failed[^\n]{0,40}(?:Cannot allocate memory|error 12\b)", NO_CODE, UNCLEAR,
          "the adapter could not lock memory: the limit of locked memory of this process",
          "ulimit -l, in the job itself: it should be unlimited. limits.conf reaches no daemon's children: LimitMEMLOCK=infinity for "
          "slurmd, --ulimit memlock=-1 for docker", "NCCL src/misc/ibvwrap.cc; ibv_reg_mr(3); NVIDIA/nccl"),
    _sign(r"Cannot allocate memory|\[Errno 12\]", "C02 C03", UNCLEAR,
          "a process was refused memory: its cgroup's limit, the machine's, or its own address space",
          "memory.max beside memory.peak of the job's cgroup, free -g, ulimit -v", "errno(3), ENOMEM; fork(2)"),
    _sign(r"DataLoader worker \(pid[^)\n]{0,80}\) is killed by signal: Killed", "C12 C02 C04", LIKELY,
          "a DataLoader worker was killed, most often for memory", _WHO_KILLED, "open-mmlab/mmrotate #501"),
    # The kernel sends SIGBUS also where a file that is mapped was cut off.
    _sign(r"DataLoader worker \(pid[^)\n]{0,80}\) is killed by signal: Bus error|insufficient shared memory \(shm\)", "C08 C05", LIKELY,
          "a DataLoader worker found no room in /dev/shm, or a mapped file was cut off", _SHM,
          "torch/utils/data/_utils/signal_handling.py"),
    _sign(r"DataLoader worker \(pid\(?s?\)? [^)\n]{0,80}\) exited unexpectedly", "C12 C05 C02", LIKELY,
          "a DataLoader worker ended without a message", "num_workers=0: the same failure then has a traceback",
          "torch/utils/data/dataloader.py"),
    _sign(r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|HIP out of memory", "C07", HIGH,
          "the GPU of one rank had no memory left", "nvidia-smi on that host just before: who else holds its memory",
          "c10/cuda/CUDACachingAllocator.cpp"),
    _sign(r"posix_fallocate failed ?: No space left|failed to extend /dev/shm/nccl\S{0,80} .{0,60}\(28\)|"
          r"failed to create shared memory file .{0,80}\(28\)|/dev/shm[^\n]{0,140}No space left|"
          r"No space left on device.{0,80}(?:/dev/shm|shared memory|torch_\d+)|"
          r"unable to [^\n]{0,40}(?:shared memory|</?torch_)[^\n]{0,120}(?:No space left|\(28\))",
          "C08", HIGH, "/dev/shm is too small for what NCCL or the DataLoader puts there", _SHM,
          "aten/src/ATen/MapAllocator.cpp; NCCL src/misc/shmutils.cc, 2.18 to 2.27; NVIDIA/nccl #342"),
    _sign(r"unable to [^\n]{0,40}(?:shared memory|</?torch_)[^\n]{0,120}(?:Too many open files|\((?:23|24)\))|"
          r"shm_open[^\n]{0,80}Too many open files|failed to create shared memory file[^\n]{0,80}\(24\)", "C10", HIGH,
          "a process reached its limit of open files when it opened shared memory", _FILES,
          "aten/src/ATen/MapAllocator.cpp, with errno since torch 1.10"),
    _sign(r"unable to [^\n]{0,40}(?:shared memory|</?torch_)[^\n]{0,120}(?:Cannot allocate memory|\(12\))", "C02 C08", UNCLEAR,
          "shared memory could not be mapped: the memory limit of the cgroup counts it too",
          "memory.max beside memory.peak of the job's cgroup; df -h /dev/shm", "aten/src/ATen/MapAllocator.cpp"),
    # Without an errno, before torch 1.10, the sentence fits both.
    _sign(r"unable to (?:open|mmap)[^\n]{0,40}(?:shared memory|</?torch_)", "C08 C10", UNCLEAR,
          "shared memory could not be opened: no room in /dev/shm, or no descriptor left", _SHM_OR_FILES,
          "aten/src/ATen/MapAllocator.cpp; pytorch/pytorch #14768, maskrcnn-benchmark #103"),
    _sign(r"[Ee]rror while (?:creating|attaching to) shared memory segment|nccl-shm\S{0,80} \(size|failed to extend /dev/shm/nccl|"
          r"unable to (?:allocate|resize|write to)[^\n]{0,40}(?:shared memory|</?torch_)", "C08 C10", LIKELY,
          "shared memory could not be made: most often /dev/shm has no room", _SHM_OR_FILES,
          "NCCL src/misc/shmutils.cc; fal-ai-community/video-diffusion-speedrun #2"),
    _sign(r"shm_open failed : Permission denied", "C08", LIKELY, "/dev/shm cannot be written by this user",
          "ls -ld /dev/shm: it must be drwxrwxrwt", "NVIDIA/nccl #328"),
    _sign(r"\[Errno 28\]|No space left on device|Disk quota exceeded|\[Errno 122\]", "C09 C08", LIKELY,
          "a file system that the job writes to is full", "df -h and df -i of the path in that line", "errno(3), ENOSPC"),
    _sign(r"received 0 items of ancdata|[Tt]oo many open files|\[Errno 24\]", "C10", HIGH,
          "a process reached its limit of open files",
          _FILES,
          "pytorch/pytorch #973, #11201"),
    _sign(r"can't start new thread|fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\]|"
          r"pthread_create failed|libgomp: Thread creation failed", "C11 C02", LIKELY,
          # The C library reports no memory for a stack by the same error.
          "a process could start no further process or thread", "ulimit -u and pids.max of the cgroup, beside pids.current",
          "fork(2), pthread_create(3), EAGAIN"),
)  # fmt: skip

_ENDS = (
    _sign(r"CANCELLED AT \S+ DUE TO (?:PREEMPTION|NODE FAILURE)|JOB \d+ ON \S+ CANCELLED(?![^\n]{0,200}TIME LIMIT)", "C04", HIGH,
          "the scheduler ended the job", "sacct -j JOB -o State,ExitCode,Reason", "slurmstepd"),
    _sign(r"[Ss]pot (?:instance )?interruption|instance-action|preempt(?:ed|ion notice)\b|node .{0,40}is being (?:drained|preempted)",
          "C04", LIKELY, "the machine was taken back by its owner", "the cloud's interruption notices at that time",
          "EC2 instance metadata, spot/instance-action"),
    _sign(r"SignalException: Process \d+ got signal: 1\b|Received (?:Signals\.SIGHUP|1) death signal",
          "C04", HIGH, "the launcher received SIGHUP: its terminal was closed, and its own handler undoes nohup",
          "start it in tmux or screen, or with setsid or systemd-run: it then outlives the terminal",
          "torch/distributed/elastic/multiprocessing/api.py; keyu-tian/SparK #19"),
    # Who sent it may stand elsewhere in the log.
    _sign(r"SignalException: Process \d+ got signal: (?:2|15)\b|Received (?:Signals\.SIG(?:TERM|INT)|2|15) death signal",
          "C04", LIKELY, "the launcher received a signal", "what sent it: a scheduler or a pod that ends sends SIGTERM, Ctrl-C SIGINT",
          "torch/distributed/elastic/multiprocessing/api.py"),
    _sign(r"srun: error: Node failure on \S+|DUE TO NODE FAILURE|Node \S+ has failed|NodeNotReady", "C04", LIKELY,
          "a host of the job was lost", "sacct -j JOB -o State,NodeList, and the host's own log at that time", "Slurm, srun; Kubernetes"),
    _sign(r"MPI_ABORT was invoked on rank (?P<absent>\d+)|MPI_Abort\([^)\n]*\) - process (?P<other>\d+)", "C01", UNCLEAR,
          "a rank ended the MPI job itself", "what that rank wrote just before", "Open MPI, help-mpi-api.txt; MPICH"),
    _sign(r"process rank (?P<absent>\d+) with PID \d+ on node \S+ exited on signal (?:4|7|8|11) ", "C05", LIKELY,
          "native code crashed", "python -X faulthandler, or a core file: the native frames name the library", "Open MPI, mpirun"),
    _sign(r"process rank (?P<absent>\d+) with PID \d+ on node \S+ exited on signal 9 ", "C04 C02", UNCLEAR,
          "a rank was killed, and these lines do not say by what", _WHO_KILLED, "Open MPI, mpirun"),
    _sign(r"FATAL: exception not rethrown", "C05", LIKELY,
          "a thread was ended while the process left, in C++ that caught this: it aborted in its exit, after the script's work",
          "end background threads before the script ends; check what it writes last: finalizers and writers may have been cut off",
          "glibc, nptl/unwind.c; CPython before 3.14 ends daemon threads so"),
    _sign(r"terminate called (?:without an active exception|recursively|after throwing an instance of '(?!c10::Dist))", "C05", LIKELY,
          "an uncaught C++ exception ended the process", "the what() line below it, and the native frames of a core file",
          "libstdc++, vterminate.cc"),
    _sign(r"Logger::set_env_variables", "C05", HIGH,
          "TORCH_DISTRIBUTED_DEBUG=DETAIL with DDP on gloo crashes torch itself", "unset TORCH_DISTRIBUTED_DEBUG",
          "measured on torch 2.13.0"),
    _sign(r"Fatal Python error: (?:Segmentation fault|Bus error|Illegal instruction)|Signal (?:4|7|8|11) \(SIG\w+\)|"
          r"exitcode\s*:? -(?:4|7|8|11)\b|Segmentation fault|\*\*\* SIGSEGV", "C05", LIKELY,
          "native code crashed", "python -X faulthandler, or a core file: the native frames name the library", "signal(7)"),
    _sign(r"(?m): line \d+: +\d+ Killed\b|^[ \t]*Killed[ \t]*$|Signal 9 \(SIGKILL\)|"
          r"exitcode\s*:? -9\b|return code (?:-9|137)\b|exit(?:ed with)? code (?:-9|137)\b|task \d+: Killed\b", "C04 C02",
          UNCLEAR,
          "a rank was killed, and these lines do not say by what", _WHO_KILLED, "fidelity/stoke #31; measured with torchrun 2.13"),
    _sign(r"ExecuteUserScriptError|AlgorithmError", "C01", UNCLEAR, "SageMaker says that the script failed",
          "the log of that host above this line: the first traceback", "sagemaker-training-toolkit, errors.py"),
)  # fmt: skip

_START = (
    _sign(r"environment variable \w+ expected, but not set|MASTER_ADDR expected", "R07", HIGH,
          "the script was started without a launcher", "paceline run SCRIPT, or torchrun SCRIPT", "torch/distributed/rendezvous.py"),
    _sign(r"Duplicate GPU detected", "R08", HIGH, "two ranks use one GPU",
          "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group", "facebookresearch/msn #24"),
    _sign(r"invalid device ordinal", "R08", LIKELY, "a rank asks for a GPU that this host does not have",
          "nvidia-smi -L beside LOCAL_RANK and CUDA_VISIBLE_DEVICES", "cudaErrorInvalidDevice"),
    _sign(r"EADDRINUSE|[Aa]ddress already in use|server socket has failed to (?:listen|bind)", "R04 R06", LIKELY,
          "the port of the store is taken", "ss -ltnp | grep MASTER_PORT, on the first host: who holds it",
          "huggingface/accelerate #74, pytorch/pytorch #126510"),
    # Since 2025 gloo says it of a host name, too.
    _sign(r"Unable to find (?:address|interface) for", "R05 R03", LIKELY, "gloo was given a name that is not an interface",
          "ip -br addr; then GLOO_SOCKET_IFNAME=NAME, one name, no ^", "gloo/transport/tcp/device.cc"),
    _sign(r"no socket interface found|No usable listening interface found|NET/IB : No IP interface found", NO_CODE, UNCLEAR,
          "NCCL found no interface that it may use", "ip -br addr, beside NCCL_SOCKET_IFNAME",
          "NCCL src/bootstrap.cc, src/transport/net_socket.cc"),
    _sign(r"Bootstrap Root : mismatch in", "R06", LIKELY, "ranks of different world sizes came to one rendezvous",
          "WORLD_SIZE of every rank; another job on the same MASTER_PORT", "NCCL src/bootstrap.cc, 2.18 to 2.27"),
    _sign(r"NCCL WARN Message truncated", "R06 M10", UNCLEAR, "two ranks sent different data when the group was formed",
          "NCCL's version and WORLD_SIZE on every host; another job on the same port", "NCCL src/bootstrap.cc, 2.18 to 2.27"),
    _sign(r"gai error|[Nn]ame or service not known|[Tt]emporary failure in name resolution|nodename nor servname|Could not resolve host",
          "R03", HIGH, "a name does not resolve", "getent hosts NAME, on that host", "meta-pytorch/torchx #541, kubeflow/trainer #1482"),
    _sign(r"remote=\[(?:127\.|::1)", "R03", LIKELY, "a host advertises its loopback address to the others",
          "getent hosts $(hostname) must not be 127.*; else GLOO_SOCKET_IFNAME=NAME of the routable interface",
          "aws-samples/aws-do-eks #69"),
    _sign(r"connectFullMesh failed", "R09 R02", LIKELY, "ranks found the store and could not connect to each other",
          "a connection between two ranks' hosts on a high port: nc -l 20000 there, nc -vz HOST 20000 here", "kubeflow/trainer #1636"),
    _sign(r"(?<!\d)\d{1,9}/\d{1,9} clients joined(?P<absent>)", "R01", LIKELY, "fewer ranks came than the world size says", _WHO_JOINED,
          "measured with torchrun 2.13; pytorch/pytorch #52848"),
    _sign(r"wait timeout after \d+ms, keys: (?P<absent>)", "R01 R06", UNCLEAR,
          "a rank waited for another one's address in the store", _WHO_JOINED,
          "measured with torchrun 2.13"),
    _sign(r"client socket has (?:timed out|failed to connect)(?P<absent>)", "R02 R01 R03", UNCLEAR,
          "a host could not reach the store, or it was never started", _REACH, "measured with torchrun 2.13"),
    _sign(r"RendezvousConnectionError(?P<absent>)", "R02 R03", UNCLEAR, "a host could not reach the rendezvous", _REACH,
          "pytorch/pytorch #69197, #73656"),
    _sign(r"Rendezvous(?:Timeout|Closed)Error(?P<absent>)", "R01 R02", UNCLEAR, "the hosts did not all meet in time", _WHO_JOINED,
          "measured with torchrun 2.13"),
    _sign(r"failed to connect/validate to host", "R02", LIKELY,
          "the port takes the connection, and no store answers behind it: a proxy stands in between, or another program listens there",
          "in Kubernetes with a service mesh such as Istio: sidecar.istio.io/inject: \"false\" on the pods of the job; elsewhere "
          "ss -ltnp | grep PORT, on the first host", "torch/csrc/distributed/c10d/TCPStore.cpp, validate; kubeflow/trainer"),
    _sign(r"No route to host|Network is unreachable|EHOSTUNREACH", "R02 R09", LIKELY, "a host cannot be reached",
          "ip route get ADDRESS, on that host",
          "connect(2)"),
    _sign(r"NET/\w+ ?: collective mismatch|NCCL version mismatch|[Mm]ismatched? .{0,30}NCCL versions?", "M10 M02", LIKELY,
          "hosts run different NCCL versions, or two ranks exchange different sizes",
          "python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())', on every host", "tensorflow/tensorflow #34375"),
    _sign(r"(?:Ranks? (?P<absent>\d[\d, ]*) failed to pass )?monitoredBarrier", "N01 R01", UNCLEAR,
          "monitored_barrier names the ranks that did not come", WHERE_IT_IS,
          "torch/csrc/distributed/c10d/ProcessGroupGloo.cpp"),
)  # fmt: skip

_DIFFERENT = (
    _sign(r"inconsistent 0 params", "M09 C06", UNCLEAR, "a rank sent no model data when DDP compared models: it has no model, or was gone",
          _WHO_LEFT, "torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes"),
    _sign(r"appears not to match (?:sizes|strides) of the same param|inconsistent [1-9]\d* params|"
          r"DDP expects same model across all ranks(?![^\n]{0,200}inconsistent 0 params)", "M09", HIGH,
          "the ranks built different models", "print(sum(p.numel() for p in model.parameters())) on every rank",
          "measured with torch 2.13"),
    _sign(r"Detected mismatch between collectives on ranks", "M02 M01 M03", LIKELY, "ranks called different collectives",
          "the two call sites: paceline run shows both", "torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp"),
    _sign(r"op\.preamble\.length <= op\.nbytes|EnforceNotMet|collective mismatch in your code", "M02 M06 M05", LIKELY,
          "two ranks exchanged buffers of different size: different shapes, or one rank is a call ahead",
          "paceline run: it compares every call and shows both call sites", "measured with gloo; criteo/tf-yarn #79"),
    _sign(r"[A-Z_]{7,40} on rank \d+ vs [A-Z_]{7,40} on rank \d+", "M06 M01", LIKELY,
          "one rank called a collective that the others did not",
          "look for it inside `if rank == 0:`, also in properties and callbacks", "talmolab/sleap-nn #476"),
    _sign(r"Expected to have finished reduction in the prior iteration", "M08", HIGH, "parameters took no part in the loss",
          "TORCH_DISTRIBUTED_DEBUG=INFO names them; remove them, or find_unused_parameters=True",
          "Megvii-BaseDetection/YOLOX #885, ImprintLab/MedSegDiff #27"),
    _sign(r"Rank \d+ exhausted all inputs", "M05", HIGH, "a rank ran out of batches before the others",
          "the length of every rank's loader: drop_last=True, or torch's Join", "torch/distributed/algorithms/join.py"),
    _sign(r"__GI___cxa_atexit|cv2\.setNumThreads|deadlock.{0,40}data ?loader", "N03", UNCLEAR,
          "a forked DataLoader worker may hang in a lock",
          "py-spy dump --pid PID --subprocesses, on the rank that waits for its loader", "pytorch/pytorch #130610, #1355"),
    _sign(r"watchdog got stuck|heartbeat monitor.{0,60}timed? ?out", "N07 N05", UNCLEAR, "a rank's own watchdog thread could not run",
          "py-spy dump --native --pid PID: who holds the GIL", "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"),
)  # fmt: skip

_MACHINE = (
    _sign(r"device-side assert triggered|\.cu:\d+: [^\n]{0,200}Assertion `[^`\n]{1,200}` failed", "C01", LIKELY,
          "a check inside a kernel failed on the GPU, most often an index or a label out of range",
          "CUDA_LAUNCH_BLOCKING=1: the traceback then names the right line; the line with `Assertion` names the check",
          "c10/cuda/CUDAException.cpp; aten/src/ATen/native/cuda/Loss.cu, Indexing.cu"),
    _sign(r"CUDA error: (?:an illegal memory access|misaligned address|unspecified launch failure)", "C05 C01", UNCLEAR,
          "a kernel used memory that is not its own", "CUDA_LAUNCH_BLOCKING=1, then compute-sanitizer; on one GPU only: its hardware",
          "cudaErrorIllegalAddress, cudaErrorLaunchFailure"),
    _sign(r"CUDA error: out of memory|Cuda failure (?:\d+ )?'out of memory'", "C07", LIKELY, "a GPU had no memory left",
          "nvidia-smi on that host just before: who else holds its memory", "NCCL src/include/checks.h; cudaErrorMemoryAllocation"),
    _sign(r"no kernel image is available|driver version is insufficient|Driver/library version mismatch|forward compatibility was attempt",
          NO_CODE, UNCLEAR, "torch, the driver and the GPU do not match",
          "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())', beside nvidia-smi",
          "cudaErrorNoKernelImageForDevice"),
    _sign(r"NVRM: Xid [^\n]{0,60}: (?:13|31|43|45)\b", "C05 C01", UNCLEAR, "the driver ended a program on the GPU for its own fault",
          "compute-sanitizer python SCRIPT; the same on another GPU clears the hardware", "NVIDIA, Xid errors"),
    _sign(r"Unable to determine the device handle for GPU|fallen off the bus|NVRM: Xid [^\n]{0,60}: (?!(?:13|31|43|45)\b)\d|"
          r"uncorrectable ECC|CUDA error: (?:uncorrectable|hardware stack error)",
          NO_CODE, UNCLEAR, "a GPU is broken or gone",
          "dmesg -T | grep -iE 'xid|aer', on that host; nvidia-smi -q -d ECC,TEMPERATURE,POWER: hardware, power or heat; reboot it",
          "NVIDIA, Xid errors; rwth-i6/returnn #1486"),
    _sign(r"NET/IB ?: \S*? ?(?:Got async (?:error )?event|async fatal event)", NO_CODE, UNCLEAR, "a network port of a host went down",
          "ibstat, or ip -s link, on that host", "NCCL src/transport/net_ib.cc, 2.18 to 2.27"),
    _sign(r"ACSCtl:.{0,80}ReqRedir\+", NO_CODE, UNCLEAR, "PCIe access control sends GPU-to-GPU traffic through the IOMMU",
          "NCCL_P2P_DISABLE=1 for one run: if it then works, switch ACS off", "NVIDIA/nccl #2079, #304"),
    _sign(r"Using network Socket|NET/Socket : Using", "S12", UNCLEAR, "NCCL talks through plain TCP sockets",
          "NCCL_DEBUG=INFO: which NET/ line it prints; it should be IB, OFI or EFA if the hosts have it",
          "aws/sagemaker-training-toolkit #240", True),
)  # fmt: skip

# What a rank says when somebody else fell, or did not come.
_SYMPTOMS = (
    _sign(r"[Cc]onnection (?:was )?(?:reset|closed) by (?:remote )?peer|[Bb]roken pipe|remote worker (?:hanging|crashing)|ncclRemoteError|"
          r"socketProgress|failed to recv, got 0 bytes|NCCL communicator was aborted|remote process exited|exited prematurely|"
          r"Application timeout caused pair closure|Socket (?:unexpectedly )?closed \[|Read timeout \[|Write timeout \[|"
          r"(?:recv|send)(?:Value|Bytes|Vector)\w* failed on|[Cc]onnection was likely closed|"
          r"NET/IB ?: Got completion from peer", "C06 C04 M05", UNCLEAR,
          "a peer went away: it died, or ended before the others", _WHO_LEFT, "measured with gloo; gloo/transport/tcp/pair.cc", True),
    _sign(r"Timed out waiting \d+ms for (?:recv|send)\b", "N01 N02 M01", UNCLEAR,
          "a rank waited for a peer that did not come; the message names neither the peer nor the call",
          f"{WHERE_IT_IS}; or {_RUN_HERE}", "measured with gloo; pytorch/gloo #511", True),
    _sign(r"Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out|timed out in blocking wait|"
          r"taking the entire process down|dump signal due to a collective timeout", "N01 N06 M05", UNCLEAR,
          "a collective did not finish in time; the same line covers tokenising, a bad GPU, an uneven shard and a logging call",
          f"TORCH_FR_DUMP_TEMP_FILE=/tmp/trace_rank_ with TORCH_NCCL_DUMP_ON_TIMEOUT=1, then "
          f"paceline why --log /tmp/trace_rank_*; or {_RUN_HERE}",
          "huggingface/accelerate #314", True),
    _sign(r"Signal 6 \(SIGABRT\)|exitcode\s*:? -6\b", "C05", UNCLEAR, "a rank aborted itself",
          "the line that it wrote just before", "abort(3)", True),
    _sign(r"unhandled system error", NO_CODE, UNCLEAR, "NCCL failed in a system call",
          "NCCL_DEBUG=WARN: the line above it says which", "NVIDIA/nccl", True),
)  # fmt: skip

_REFUSED = (
    r"error: (?:unrecognized arguments|the following arguments are required|argument [^\n:]{1,80}: "
    r"(?:invalid|expected|not allowed|ignored))"
)
# What launchers, argparse, the interpreter and other frameworks say of a process that wrote no traceback.
_PROGRAMS = (
    _sign(r"error: unrecognized arguments:[^\n]*--local[-_]rank", "C01", HIGH,
          "the script does not know the option --local-rank, which its launcher gives to it",
          "read the rank from os.environ['LOCAL_RANK'] and start with torchrun; or let argparse take both --local_rank and --local-rank",
          "Python, argparse.py; torch/distributed/launch.py, since 2.0 with a dash; huggingface/pytorch-image-models #1728", exit_code=2),
    _sign(rf"\.py: {_REFUSED}", "C01", HIGH, "the script refused its command line",
          "the usage above that line, beside what is given to the script", "Python, argparse.py", exit_code=2),
    # A launcher, or a program that the script started and did not need.
    _sign(rf"(?<!\.py): {_REFUSED}", "C01", LIKELY, "the program that this line names refused its command line",
          "the usage above that line, beside what is given to that program", "Python, argparse.py", exit_code=2),
    _sign(r"can't open file '[^'\n]{1,400}': \[Errno 2\]", "C01", HIGH, "Python found no script at that path",
          "ls of that path, on that host: it is relative to the directory in which the launcher runs",
          "CPython, Modules/main.c", exit_code=2),
    _sign(r"python[\d.]{0,8}: No module named \S*/", "C01", HIGH, "the path of an entry point was taken for the name of a module",
          "put the entry point at the top of source_dir, or use a newer toolkit or container",
          "aws/sagemaker-python-sdk #966", exit_code=1),
    _sign(r"python[\d.]{0,8}: No module named ", "C01", HIGH, "Python found no module of that name",
          "python -m pip list with that Python; the directory in which it was started", "CPython, Lib/runpy.py", exit_code=1),
    _sign(r"--local_rank=(?P<absent>\d{1,6})'[^\n]{0,400}exits with return code = -9\b|exits with return code = -9\b", "C04 C02", UNCLEAR,
          "a rank was killed, and these lines do not say by what", _WHO_KILLED, "DeepSpeed, deepspeed/launcher/launch.py"),
    _sign(r"process (?P<absent>\d{1,6}) terminated with signal SIGKILL", "C04 C02", UNCLEAR,
          "a process of mp.spawn was killed, and these lines do not say by what", _WHO_KILLED, "torch/multiprocessing/spawn.py"),
    _sign(r"memory pressure \(OOM\)|killed due to the node running low on memory", "C03", HIGH,
          "Ray's memory monitor ended a worker because its host ran low on memory",
          "free -g on that host; num_cpus of each worker, or RAY_memory_usage_threshold", "Ray, src/ray/raylet/node_manager.cc"),
    _sign(r"Worker (?P<absent>\d{1,6}) has failed\.|Worker exit type: SYSTEM_ERROR|"
          r"A worker died or was killed while executing a task", "C04 C02 C05", UNCLEAR,
          "Ray lost the process of a worker, and only guesses why",
          f"{_WHO_KILLED}; ray logs raylet.out, which has the words of its memory monitor",
          "Ray, src/ray/core_worker, python/ray/train; ray-project/ray #47461"),
    _sign(r"Connect to (?:172\.1[789]\.|127\.)[\d.]{1,12}<\d{1,5}> failed", "R05 R09", LIKELY,
          "NCCL took an address that other hosts cannot reach: a bridge of Docker, or the loopback",
          "NCCL_SOCKET_IFNAME=NAME of the interface by which the hosts reach each other: ip -br addr", "NCCL src/misc/socket.cc"),
    _sign(r"Connect to \d[\d.]{1,20}<\d{1,5}> failed", "R09 R05", LIKELY, "NCCL could not connect two ranks",
          "nc -vz ADDRESS PORT, from that host; NCCL_SOCKET_IFNAME=NAME of the interface by which the hosts reach each other",
          "NCCL src/misc/socket.cc"),
    _sign(r"NET/IB ?: Got completion from peer [^\n]{0,80}(?:error|status=?) ?12\b", "R09 S12", LIKELY,
          "what one host sends over RoCE or InfiniBand never reaches the other: its adapter gave up (error 12)",
          "NCCL_IB_GID_INDEX=N, the routable one of show_gids (often 3); NCCL_IB_DISABLE=1 for one run clears the rest",
          "NCCL src/transport/net_ib.cc; NVIDIA/nccl #426, pytorch/pytorch #81628"),
    _sign(r"retrieving ncclUniqueId from \[(?P<absent>\d{1,6})\][^\n]{0,240}(?:timeout|timed out)", "C13 N04 R01", LIKELY,
          "the others gave up while a rank had not come yet: it did long work of its own, such as tokenising or a download, or was gone",
          "a longer timeout: init_process_group(timeout=...), ddp_timeout, InitProcessGroupKwargs; or that work before the job",
          "torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; huggingface/trl #1519"),
    _sign(r"CreateSession still waiting for response from worker: ", "R02 R03", LIKELY, "a task of TensorFlow's cluster does not answer",
          "TF_CONFIG or the ClusterSpec of every task: addresses that every other host reaches, never localhost",
          "TensorFlow, core/distributed_runtime/master.cc; tensorflow/tensorflow #11608"),
    _sign(r"resource request cannot be scheduled right now", "R01", LIKELY, "Ray cannot start a worker: what it asks for is taken",
          "ray status; fewer workers, or resources of the trial that leave room for theirs: ScalingConfig, get_tune_resources",
          "Ray, autoscaler; ray-project/ray_lightning #216"),
    _sign(r"There are not enough slots available in the system", "R01", LIKELY,
          "mpirun started nothing: a host that is given without a number of slots has one",
          "-H HOST:4, or slots=4 in the host file; mpirun --oversubscribe", "Open MPI, help-ras-base.txt; horovod/horovod #978"),
    _sign(r"ephemeral local storage usage exceeds|low on resource: ephemeral-storage|\[[\w, ]{0,60}DiskPressure", "C09", HIGH,
          "the kubelet evicted the pod because its local storage, or the disk of its node, was full",
          "write checkpoints to a mounted volume instead of the container's own directories; or raise limits.ephemeral-storage",
          "kubernetes, pkg/kubelet/eviction"),
    _sign(r"The node was low on resource: memory", "C03", HIGH, "the kubelet evicted the pod because its node had no memory left",
          "kubectl describe node; requests.memory as large as what the job needs", "kubernetes, pkg/kubelet/eviction"),
    _sign(r"Artifact upload failed: ?(?:[^\n]{0,80})[Ii]nsufficient disk space", "C09", HIGH,
          "SageMaker had no room to pack the model after the training: the archive needs as much again as /opt/ml/model",
          "volume_size=GB of the estimator; checkpoints into checkpoint_s3_uri and not below /opt/ml/model",
          "SageMaker, FailureReason; huggingface/blog #114"),
    _sign(r"CapacityError|Unable to provision requested ML compute capacity|InsufficientCapacity", NO_CODE, UNCLEAR,
          "the zone had no machine of this type to give", "another zone or type; keep_alive_period_in_seconds or a training plan",
          "SageMaker, FailureReason"),
    _sign(r"ResourceLimitExceeded", NO_CODE, UNCLEAR, "the account's quota for this type is used up",
          "ask for a quota: aws service-quotas list-service-quotas --service-code sagemaker, or the console's Service Quotas",
          "SageMaker API, CreateTrainingJob"),
    _sign(r"has been set to ERROR in coordination service|[Cc]ollective ops is aborted by|stopped sending heartbeats|"
          r"task:\d+ heartbeat timeout", "C06 C04 N01", UNCLEAR,
          "a peer of TensorFlow's cluster is gone or stands still, and the service only guesses why",
          "the log of the task that this line names", "TensorFlow, coordination_service.cc, ring_alg.cc", True),
)  # fmt: skip

SIGNS: tuple[Sign, ...] = (*_MEMORY_AND_LIMITS, *_ENDS, *_START, *_DIFFERENT, *_MACHINE, *_PROGRAMS, *_SYMPTOMS)


# Of the codes above, for where no rule has a better one.
TITLES = {
    "N01": "rank asleep or blocked in its own code",
    "N02": "rank stopped by a signal or a debugger",
    "N03": "DataLoader worker stuck",
    "N04": "one rank works alone while the others wait",
    "N05": "compiling on some ranks only",
    "N06": "rank busy in its own code",
    "N07": "deadlock on the GIL",
    "M01": "ranks called different collectives",
    "M02": "shapes differ between ranks",
    "M03": "dtype, reduce operation or root differs between ranks",
    "M05": "uneven number of batches",
    "M06": "a collective that only some ranks call",
    "M08": "parameters without a gradient",
    "M09": "models differ at construction",
    "M10": "versions differ between hosts",
    "C01": "exception in the script",
    "C02": "killed at the memory limit of its cgroup",
    "C03": "killed because the machine had no memory left",
    "C04": "ended by a signal from outside",
    "C05": "crash in native code",
    "C06": "rank ended with 0 before the others",
    "C07": "GPU memory exhausted",
    "C08": "/dev/shm too small",
    "C09": "disk full",
    "C10": "limit of open files reached",
    "C11": "limit of processes reached",
    "C12": "a DataLoader worker died",
    "C13": "a rank worked for longer than the others waited",
    "R01": "fewer ranks started than the world size says",
    "R02": "the first host cannot be reached, or nothing listens there",
    "R03": "a name does not resolve, or to the wrong address",
    "R04": "port already in use",
    "R05": "wrong interface name for gloo",
    "R06": "ranks or world sizes disagree",
    "R07": "started without a launcher",
    "R08": "two ranks on one GPU",
    "R09": "ports between ranks are blocked",
    "S12": "wrong network path",
}


def is_symptom(text: str) -> bool:
    """Whether a message only says that somebody else is gone or has not come."""
    return is_symptom_text(text) or any(sign.pattern.search(text) for sign in _SYMPTOMS)
