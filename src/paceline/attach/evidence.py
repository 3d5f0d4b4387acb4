"""What one host says about a job that runs there and that paceline did not start: plain facts, sent between hosts and kept as JSON."""

from dataclasses import dataclass

from paceline.diagnosis.case import Heartbeat, StoreSeen
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at all ranks of a host."""

    at_ns: int
    """When it was over, Unix time."""
    heartbeats: tuple[Heartbeat, ...]
    """Of every rank."""
    snapshots: tuple[RankSnapshot, ...]
    """Of the ranks that were looked at in full."""
    host: HostSnapshot
    """Of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen:
    """What is said once about a rank."""

    rank: int
    """Its global rank."""
    pid: int
    """Its process."""
    entries: tuple[TraceEntry, ...] = ()
    """The newest collectives of its flight recorders, with their lines."""
    sources: tuple[str, ...] = ()
    """What could be read of it: "recorder", "stacks", "proc"."""
    raised: str = ""
    """The last exception in the plain file to which its stderr goes, which other ranks may share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvidence:
    """Everything that one host says about one job."""

    host: str
    """Its name."""
    job: str
    """The script."""
    launcher: str
    """What started the ranks: torchrun, Slurm, ...; empty: not known."""
    launcher_pid: int | None
    """Its process; None: not known."""
    world_size: int | None
    """Ranks of the job; None: not known."""
    missing: tuple[int, ...] = ()
    """Ranks that belong on this host and have no process."""
    hosts_wanted: int | None = None
    """Hosts of the job; None: not known."""
    restarts: int = 0
    """How often the launcher has started the ranks again."""
    rounds: tuple[Round, ...]
    """The looks, in order."""
    ranks: tuple[RankSeen, ...]
    """The ranks here."""
    store: StoreSeen | None = None
    """The job's store; None: it was not asked."""
    addresses: tuple[str, ...] = ()
    """Addresses of other hosts to which its ranks are connected."""
    notes: tuple[str, ...] = ()
    """What could not be read, and why."""
    seconds: float = 0.0
    """How long it took."""
    clock_ns: int = 0
    """This host's clock when it was done; 0: not known."""
    identity: tuple[str, ...] = ()
    """What the ranks of other hosts of the job share with these: its store, its Slurm job, torchrun's id."""
