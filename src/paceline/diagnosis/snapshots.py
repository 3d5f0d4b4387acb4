"""What one look shows of a rank and of its host. Facts like those of `case.py`: None means that nobody could look.

Stamps are Unix ns, times and rates as their names say.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    file: str
    line: int
    function: str
    # Whether it is the user's own code, and not of the standard library, an installed package or paceline.
    users: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """One thread's Python frames, innermost first. `active`: on a CPU when looked at; `owns_gil` None: not known."""

    pid: int
    thread: str
    main: bool
    frames: tuple[Frame, ...]
    active: bool = False
    owns_gil: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process below a rank. `cpu_fraction` over the look; `role`: "loader" (a DataLoader worker), "compiler" or ""."""

    pid: int
    state: str
    name: str
    cpu_fraction: float | None
    role: str = ""
    stack: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One TCP connection of a rank, from the kernel's sock_diag: queues in bytes, times in ms, tcp_info's own meanings.

    `peer_rank`, `peer_host`: where the address is a host of the job. Rates in bytes per second. `sent_bytes`, `received_bytes` and
    `retransmits` (segments that were sent again) are totals; `lost` is what is held to be lost at this instant.
    """

    local: str
    remote: str
    state: str
    receive_queue_bytes: int
    send_queue_bytes: int
    unacked: int = 0
    backoff: int = 0
    retransmits: int = 0
    lost: int = 0
    rto_ms: float | None = None
    rtt_ms: float | None = None
    min_rtt_ms: float | None = None
    delivery_rate: float | None = None
    not_sent_bytes: int | None = None
    busy_ms: float | None = None
    window_limited_ms: float | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    last_sent_ms: int | None = None
    last_received_ms: int | None = None
    congestion_window: int | None = None
    peer_host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """One suspect, looked at for about half a second. A part that could not be looked at is None and named in `not_judged`.

    `state`: as in /proc/PID/stat, of the main thread. `thread_states`: state -> threads. `stack_moved`: the Python stacks
    differ between the beginning and the end. `traceback_answers`, `ping_answers`: torch's worker server; a ping without a
    traceback means that somebody holds the GIL. `*_fraction`: of one core, `*_per_second`: over the look, of the process and
    everything below it; bytes are those that reads and writes moved, from page cache and sockets too; a rank that sleeps has
    about 100 voluntary switches, of torch's own threads.
    `cpu_seconds`, `moved_bytes`: the same as sums, up to the end of the look. `frozen`: by the cgroup freezer; `frozen_by`: the file
    that thaws it. `throttled_fraction`: of the CPU quota's periods. `processes`: in its pids control group, against `process_limit` (None:
    none is set). `native`: innermost native frames of the main thread. `blocked_on`: path or mount that a system call waits
    for, where it can be told. `role`: "suspect" or "witness" (a rank that waits for suspects, looked at for comparison).
    """

    host: str
    rank: int
    pid: int
    at_ns: int
    attempt: int = 0
    role: str = "suspect"
    seconds: float = 0.0
    state: str | None = None
    thread_states: dict[str, int] = field(default_factory=dict)
    tracer_pid: int | None = None
    wait_channel: str | None = None
    system_call: str | None = None
    blocked_on: str | None = None
    cpu_fraction: float | None = None
    children_cpu_fraction: float | None = None
    read_bytes_per_second: float | None = None
    written_bytes_per_second: float | None = None
    cpu_seconds: float | None = None
    moved_bytes: int | None = None
    voluntary_switches_per_second: float | None = None
    involuntary_switches_per_second: float | None = None
    stacks: tuple[ThreadStack, ...] | None = None
    stack_moved: bool | None = None
    native: tuple[str, ...] = ()
    ping_answers: bool | None = None
    traceback_answers: bool | None = None
    children: tuple[Child, ...] | None = None
    sockets: tuple[Socket, ...] | None = None
    frozen: bool | None = None
    frozen_by: str | None = None
    throttled_fraction: float | None = None
    cpu_quota_cpus: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    open_files: int | None = None
    open_files_limit: int | None = None
    process_limit: int | None = None
    processes: int | None = None
    threads: int | None = None
    omp_threads: int | None = None
    affinity_cpus: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    # What a connection from this host to the rank's own MASTER_ADDR:MASTER_PORT saw, in the words of probes.rendezvous.
    rendezvous_seen: str | None = None
    not_judged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filesystem:
    """Room on one mount. `what`: "shm", "tmp", "run", "cwd"."""

    what: str
    path: str
    total_bytes: int
    free_bytes: int
    free_inodes: int | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """One host over the same half second. `foreign`: (pid, name, cores) of processes outside the job that use over a tenth of a core.

    Pressure: the share of time in which some task waited for the resource, over the look. `kernel_lines`: since the attempt
    began, those that matter. `machine`: the same for hosts of a job that run on one machine.
    """

    host: str
    at_ns: int
    attempt: int = 0
    machine: str | None = None
    cpu_count: int | None = None
    load_1m: float | None = None
    busy_fraction: float | None = None
    steal_fraction: float | None = None
    pressure_cpu: float | None = None
    pressure_memory: float | None = None
    pressure_io: float | None = None
    memory_available_bytes: int | None = None
    foreign: tuple[tuple[int, str, float], ...] | None = None
    filesystems: tuple[Filesystem, ...] = ()
    kernel_lines: tuple[str, ...] | None = None
    clock_offset_seconds: float | None = None
    round_trip_seconds: float | None = None
    not_judged: tuple[str, ...] = ()
