"""How long a rank whose program is done may take to go: as long as it does something. Pure."""

from dataclasses import dataclass

from paceline.probes.processes import MovedBytes

# Without any I/O and nearly without the CPU: threads that wait for each other for good.
IDLE_SECONDS = 10.0
# Without any I/O, but busy: a destructor may compute, and a thread of a library may spin for ever.
SILENT_SECONDS = 120.0
_IDLE_CORES = 0.05
_SHORTEST_SECONDS = 0.5


@dataclass(slots=True)
class ExitDeadline:
    """What one process does after its program was done; stamps in Unix ns.

    Holds:   a process that writes or reads something every 10 s is never overdue
    """

    since_ns: int
    """When the program was done."""
    _idle_since_ns: int = 0
    _silent_since_ns: int = 0
    _seen_ns: int = 0
    _cpu_seconds: float = 0.0
    _moved: MovedBytes | None = None

    def __post_init__(self) -> None:
        self._idle_since_ns = self._silent_since_ns = self.since_ns

    def is_over(self, now_ns: int, cpu_seconds: float, moved: MovedBytes | None) -> bool:
        """Take in what the process has used and moved so far, and say whether it hangs."""
        seconds = (now_ns - self._seen_ns) / 1e9
        if seconds < _SHORTEST_SECONDS:
            return False
        if self._seen_ns and moved != self._moved:
            self._idle_since_ns = self._silent_since_ns = now_ns
        elif self._seen_ns and cpu_seconds - self._cpu_seconds > _IDLE_CORES * seconds:
            self._idle_since_ns = now_ns
        self._seen_ns, self._cpu_seconds, self._moved = now_ns, cpu_seconds, moved
        return (
            now_ns - self._idle_since_ns >= IDLE_SECONDS * 1e9 or now_ns - self._silent_since_ns >= SILENT_SECONDS * 1e9
        )
