"""What is known of the hosts of a job before it starts, and the checks that they pass then."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.findings import Judgement, Rule, Verdict, judge
from paceline.rules import discover


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU as its driver has it before the job starts. None is unknown."""

    index: int
    """As the driver numbers it."""
    name: str | None = None
    """The model."""
    used_bytes: int | None = None
    """Memory that somebody uses."""
    memory_bytes: int | None = None
    """All of its memory."""
    uncorrected_errors: int | None = None
    """Memory errors that ECC could not correct, since the driver was loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host as it describes itself. None is unknown, never fine."""

    name: str
    """As messages name it."""
    python: str | None = None
    """Version of the interpreter that runs the ranks."""
    interpreter: str = ""
    """Path of that interpreter; "" is unknown."""
    torch: str | None = None
    """Version of its torch; None: there is none, or the interpreter could not be asked, where `python` is None too."""
    paceline: str | None = None
    """Version of paceline."""
    cpu_count: int | None = None
    """CPUs that its ranks may use."""
    open_files: int | None = None
    """Soft limit of open files; None: no limit."""
    shm_bytes: int | None = None
    """Room on /dev/shm."""
    run_dir: str = ""
    """Where recordings go."""
    run_dir_bytes: int | None = None
    """Room there."""
    own_address: str | None = None
    """What its own name resolves to; None: to nothing."""
    busy_ports: Mapping[int, str] = field(default_factory=dict)
    """Ports that the job wants and that are taken -> by whom."""
    gpus: tuple[GpuState, ...] | None = None
    """Its GPUs; None: they could not be asked."""
    clock_offset_seconds: float | None = None
    """By how much its clock is ahead of this machine's; None: it was not asked."""
    clock_error_seconds: float = 0.0
    """How wrong that may be: half of the time that the question took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedLink:
    """One connection from host to host that was tried before the job."""

    source: str
    """The host that connected."""
    target: str
    """The host that it connected to."""
    delay_seconds: float | None = None
    """Median time of one byte there and one back."""
    bytes_per_second: float | None = None
    """Rate of some MiB in one direction; None: not measured."""
    error: str = ""
    """Why there was no connection; empty where there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsBefore:
    """The hosts of one job before it starts."""

    hosts: tuple[HostFacts, ...]
    """Those that were looked at."""
    host_count: int = 1
    """Hosts of the job."""
    ranks_per_host: int | None = None
    """Ranks on each."""
    links: tuple[TriedLink, ...] = ()
    """Connections that were tried; empty: none were."""


def all_host_checks() -> tuple[Rule, ...]:
    """Every check of hosts, in order of code."""
    return discover("hosts")


def host_verdicts(before: HostsBefore) -> tuple[Verdict, ...]:
    """One verdict per check of hosts."""
    return tuple(judge(all_host_checks(), before))


def hosts_not_judged(missing: str) -> tuple[Verdict, ...]:
    """The verdicts where no host could be looked at. `missing`: what is not known, and why."""
    return tuple(Verdict(check.code, Judgement.NOT_JUDGED, missing=missing) for check in all_host_checks())
