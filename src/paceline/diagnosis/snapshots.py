"""Snapshots of a rank and of its host. They are facts like those of `case.py`: None means that paceline could not look.

Stamps are Unix ns, times and rates as their names say.
"""

from dataclasses import dataclass, field

from paceline.facts import RankError
from paceline.probes.stacks import Frame as Frame
from paceline.probes.stacks import ThreadStack as ThreadStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process below a rank."""

    pid: int
    """Process id on the host."""
    state: str
    """As in /proc/PID/stat."""
    name: str
    """As in /proc/PID/stat."""
    cpu_fraction: float | None
    """Of one core, over the snapshot."""
    role: str = ""
    """Either "loader" (a DataLoader worker), "compiler" or empty."""
    stack: tuple[Frame, ...] = ()
    """Python frames, innermost first; () was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One TCP connection of a rank, from the kernel's sock_diag, with tcp_info's own meanings."""

    local: str
    """Address and port of the rank."""
    remote: str
    """Address and port of the peer."""
    state: str
    """Such as ESTABLISHED."""
    receive_queue_bytes: int
    """Arrived, and not read by the rank."""
    send_queue_bytes: int
    """Written by the rank, and not acknowledged by the peer."""
    unacked: int = 0
    """Segments in flight."""
    backoff: int = 0
    """How often the retransmission timeout was doubled."""
    retransmits: int = 0
    """Segments that were sent again, in total."""
    lost: int = 0
    """Segments that count as lost now."""
    rto_ms: float | None = None
    """Retransmission timeout."""
    rtt_ms: float | None = None
    """Smoothed round trip."""
    min_rtt_ms: float | None = None
    """Shortest round trip."""
    delivery_rate: float | None = None
    """Bytes per second, newest estimate."""
    not_sent_bytes: int | None = None
    """Bytes of the send queue that were never sent."""
    busy_ms: float | None = None
    """Time with something to send."""
    window_limited_ms: float | None = None
    """Part of that time in which the peer's window limited sending."""
    sent_bytes: int | None = None
    """Acknowledged, in total."""
    received_bytes: int | None = None
    """In total."""
    last_sent_ms: int | None = None
    """Time since data was sent."""
    last_received_ms: int | None = None
    """Time since data was received."""
    congestion_window: int | None = None
    """Segments that may be in flight."""
    peer_host: str | None = None
    """Name of the peer's host, if it is a host of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """One suspected rank, inspected for about half a second. A part that could not be read is None and named in `not_judged`."""

    host: str
    """The host that it runs on."""
    rank: int
    """Its global rank."""
    pid: int
    """Process id on its host."""
    at_ns: int
    """When the snapshot was taken."""
    attempt: int = 0
    """The attempt, counted from 0."""
    role: str = "suspect"
    """Either "suspect", or "witness": a rank that waits for suspects, for comparison."""
    seconds: float = 0.0
    """How long the snapshot took."""
    state: str | None = None
    """Of the main thread, as in /proc/PID/stat."""
    thread_states: dict[str, int] = field(default_factory=dict)
    """State -> number of threads."""
    tracer_pid: int | None = None
    """The debugger that is attached; None: none."""
    wait_channel: str | None = None
    """Kernel function that the main thread sleeps in."""
    system_call: str | None = None
    """The system call that the main thread is in."""
    blocked_on: str | None = None
    """Path or mount that the system call waits for."""
    major_faults_per_second: float | None = None
    """Pages for which it waited for a disk."""
    disk_bytes_per_second: float | None = None
    """Read and written by the disk below that path, for whomever; None: it is no local disk, or not known."""
    cpu_fraction: float | None = None
    """Of one core: the process and everything below it."""
    children_cpu_fraction: float | None = None
    """Of one core: its descendants alone."""
    read_bytes_per_second: float | None = None
    """Bytes read, including page cache, sockets and children."""
    written_bytes_per_second: float | None = None
    """Bytes written, including children."""
    cpu_seconds: float | None = None
    """Used so far, children included."""
    moved_bytes: int | None = None
    """Read and written so far, children included."""
    voluntary_switches_per_second: float | None = None
    """Voluntary context switches per second. A sleeping rank has about 100, from torch's own threads."""
    involuntary_switches_per_second: float | None = None
    """Involuntary context switches per second. They are high if threads compete for CPUs."""
    stacks: tuple[ThreadStack, ...] | None = None
    """Python stacks, that of the main thread first."""
    stack_moved: bool | None = None
    """The Python stack of the main thread differs between the beginning and the end."""
    native: tuple[str, ...] = ()
    """Innermost native frames of the main thread."""
    ping_answers: bool | None = None
    """torch's worker server answers a ping."""
    traceback_answers: bool | None = None
    """It answers a request for a traceback. If it answers a ping only, a thread may hold the GIL."""
    children: tuple[Child, ...] | None = None
    """Processes below it."""
    sockets: tuple[Socket, ...] | None = None
    """Its TCP connections."""
    frozen: bool | None = None
    """Stopped by the cgroup freezer."""
    frozen_by: str | None = None
    """The file that thaws it."""
    throttled_fraction: float | None = None
    """Of the CPU quota's periods."""
    cpu_quota_cpus: float | None = None
    """CPUs that the quota allows."""
    memory_used_bytes: int | None = None
    """Memory in use in its control group."""
    memory_limit_bytes: int | None = None
    """Limit of that control group."""
    open_files: int | None = None
    """File descriptors in use."""
    open_files_limit: int | None = None
    """RLIMIT_NOFILE."""
    process_limit: int | None = None
    """Most processes and threads of its pids control group; None: no limit is set."""
    processes: int | None = None
    """Processes and threads in its pids control group."""
    threads: int | None = None
    """Threads of the process."""
    omp_threads: int | None = None
    """Threads that OpenMP may use."""
    affinity_cpus: int | None = None
    """CPUs that it may run on."""
    gpus: tuple[int, ...] | None = None
    """Numbers of the NVIDIA GPUs whose device files it has open."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that change how training runs; no secrets."""
    rendezvous_seen: str | None = None
    """Result of a connection from this host to the rank's own MASTER_ADDR:MASTER_PORT: see probes.rendezvous."""
    raised: RankError | None = None
    """The exception that ends its program, as the rank reported it while its process still exists."""
    not_judged: tuple[str, ...] = ()
    """What could not be read, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filesystem:
    """Room on one mount."""

    what: str
    """One of "shm", "tmp", "run" and "cwd"."""
    path: str
    """As the rank sees it."""
    total_bytes: int
    """Its size."""
    free_bytes: int
    """Bytes that an unprivileged process may still use."""
    free_inodes: int | None = None
    """None: it does not count inodes."""
    kind: str = ""
    """As in mountinfo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasProcess:
    """A rank as NCCL names it."""

    host: str
    """Address of its host, as NCCL has it."""
    pid: int
    """Process id on its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasGroup:
    """One of NCCL's communicators, from two answers of its RAS service."""

    size: int
    """Its ranks; 0: not known."""
    is_still: bool
    """Nothing in it changed from the first answer to the second."""
    is_whole: bool
    """Every rank gave its counts."""
    ahead: tuple[RasProcess, ...] = ()
    """If the ranks have launched different numbers of collectives: those with most. The text form does not name them."""
    behind: tuple[RasProcess, ...] = ()
    """If they have: all others."""
    launched: tuple[int, int] = (0, 0)
    """The lowest and the highest number of collectives that a rank has launched; they need not be over."""
    silent: tuple[RasProcess, ...] = ()
    """Processes whose NCCL does not answer."""
    errors: tuple[str, ...] = ()
    """What NCCL has found wrong, with the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """One host over the same half second."""

    host: str
    """Its name in the job."""
    at_ns: int
    """When the snapshot was taken."""
    attempt: int = 0
    """The attempt, counted from 0."""
    machine: str | None = None
    """The same for hosts of a job that run on one machine."""
    cpu_count: int | None = None
    """Logical CPUs."""
    load_1m: float | None = None
    """Load average of the last minute."""
    busy_fraction: float | None = None
    """Of all CPUs."""
    steal_fraction: float | None = None
    """Of all CPUs: taken by the hypervisor."""
    pressure_cpu: float | None = None
    """Fraction of the time in which some task waited for a CPU."""
    pressure_memory: float | None = None
    """Fraction of the time in which some task waited for memory."""
    pressure_io: float | None = None
    """Fraction of the time in which some task waited for I/O."""
    memory_available_bytes: int | None = None
    """MemAvailable of /proc/meminfo."""
    foreign: tuple[tuple[int, str, float], ...] | None = None
    """(pid, name, cores) of processes outside the job that use over a tenth of a core."""
    filesystems: tuple[Filesystem, ...] = ()
    """Room where ranks write."""
    kernel_lines: tuple[str, ...] | None = None
    """Relevant lines of the kernel log since the attempt began."""
    ras: tuple[RasGroup, ...] | None = None
    """What NCCL's RAS service here said twice about the communicators of the whole job; None: not asked, or no answer."""
    clock_offset_seconds: float | None = None
    """Its clock minus the first host's."""
    round_trip_seconds: float | None = None
    """Round trip of a message to the first host."""
    not_judged: tuple[str, ...] = ()
    """What could not be read, as text."""
