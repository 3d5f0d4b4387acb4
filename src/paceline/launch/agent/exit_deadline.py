"""Decides when a rank hangs in its interpreter's shutdown. A rank may take as long as it does something. Pure."""

from dataclasses import dataclass

from paceline.probes.processes import MovedBytes

# Limit without I/O and with almost no CPU time: threads wait for each other forever.
IDLE_SECONDS = 10.0
# The same for a rank of TensorFlow or JAX that has raised: it waits for all others, which have 3 s more before they are killed.
FAILED_IDLE_SECONDS = 4.0
# Limit without I/O, but with CPU time: a destructor may compute, and a thread of a library may spin forever.
SILENT_SECONDS = 120.0
_IDLE_CORES = 0.05
_SHORTEST_SECONDS = 0.5
_LONGEST_SECONDS = 3.0


@dataclass(slots=True)
class ExitDeadline:
    """The activity of one process after its program was done. Stamps are Unix ns.

    Holds:   a process that writes or reads something every `idle_seconds` is never overdue
    """

    since_ns: int
    """When the program was done."""
    idle_seconds: float = IDLE_SECONDS
    _idle_since_ns: int = 0
    _silent_since_ns: int = 0
    _seen_ns: int = 0
    _cpu_seconds: float = 0.0
    _moved: MovedBytes | None = None

    def __post_init__(self) -> None:
        self._idle_since_ns = self._silent_since_ns = self.since_ns

    def is_over(self, now_ns: int, cpu_seconds: float, moved: MovedBytes | None) -> bool:
        """Note the CPU time and the I/O of the process so far, and say whether the process hangs."""
        seconds = (now_ns - self._seen_ns) / 1e9
        if seconds < _SHORTEST_SECONDS:
            return False
        if self._seen_ns and seconds > _LONGEST_SECONDS:
            # Whoever looks did not run for that long. The process may not have run either.
            self._idle_since_ns += now_ns - self._seen_ns
            self._silent_since_ns += now_ns - self._seen_ns
        if self._seen_ns and moved != self._moved:
            self._idle_since_ns = self._silent_since_ns = now_ns
        elif self._seen_ns and cpu_seconds - self._cpu_seconds > _IDLE_CORES * seconds:
            self._idle_since_ns = now_ns
        self._seen_ns, self._cpu_seconds, self._moved = now_ns, cpu_seconds, moved
        idle, silent = (now_ns - since for since in (self._idle_since_ns, self._silent_since_ns))
        return idle >= self.idle_seconds * 1e9 or silent >= SILENT_SECONDS * 1e9
