"""A job that was run at a few sizes: the measurements, and predictions for larger sizes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from paceline.catalog.types import Accelerator
from paceline.parts.plan.planner.answer import StepTime
from paceline.parts.plan.planner.collective import Link
from paceline.parts.plan.planner.links import link_from_curve
from paceline.parts.plan.planner.machines import Machines
from paceline.parts.plan.planner.step_time import step_time
from paceline.parts.plan.planner.workload import Measurement, Workload

SCHEMA = "paceline.rehearsal/2"
# Keys that have another name since.
_BEFORE = "paceline.rehearsal/1"
_RENAMED_IN_A_SIZE = {"run": "run_id", "steps": "step_count"}
_RENAMED_IN_ROOM = {"device": "accelerator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """CPUs and devices that the ranks of a rehearsal had to share."""

    cpus: float | None = None
    """CPUs that this user may use, at most the control group's quota."""
    devices: int | None = None
    """Number of devices; 0: the ranks computed on CPUs; None: not known."""
    accelerator: str | None = None
    """Name of the accelerator."""
    threads: int = 1
    """Threads of a rank, OMP_NUM_THREADS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedSize:
    """One size that was run. Times are of one step."""

    measurement: Measurement
    """Its step, with hosts and devices."""
    run_id: str
    """Its recording."""
    step_count: int
    """Steps that were measured."""
    mean_step_seconds: float
    """Mean of all steps."""
    compute_seconds: float | None = None
    """Compute time."""
    startup_seconds: float | None = None
    """Time from the start to the first step."""
    crowding: float = 1.0
    """Ranks per GPU or CPU; 1: each rank has its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """All-reduces that were timed."""

    points: tuple[tuple[float, float], ...]
    """(bytes, seconds), in growing size."""
    ranks: int
    """Number of ranks."""
    hosts: int = 1
    """Number of hosts."""
    backend: str = ""
    """Backend of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A rehearsal, as rehearsal.json has it."""

    id: str
    """Id of the rehearsal."""
    program: tuple[str, ...]
    """Script and arguments."""
    sizes: tuple[RehearsedSize, ...]
    """Sizes that were run."""
    room: Slots = Slots()
    """What the ranks had to share."""
    probe: Probe | None = None
    """Timed all-reduces."""
    script_hash: str | None = None
    """SHA-256 of the script as it was run; None: it is not a file."""
    machine: str = ""
    """Name of the machine."""
    started_ns: int = 0
    """When it started, Unix time."""
    notes: tuple[str, ...] = ()
    """What was assumed or failed."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The sizes to predict from: if some size had room, crowded ones are left out."""
        roomy = tuple(one.measurement for one in self.sizes if one.crowding <= 1.0)
        return roomy or tuple(one.measurement for one in self.sizes)

    @property
    def link(self) -> Link | None:
        """The probe's result for the links inside a host, or between hosts if it had several."""
        if self.probe is None:
            return None
        return link_from_curve(self.probe.points, self.probe.ranks, source=f"probed in {self.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A size that was not run."""

    hosts: int
    """Number of hosts."""
    ranks_per_host: int
    """Ranks on each host."""
    step: StepTime
    """Its predicted step."""
    efficiency_fraction: float
    """Speed of one rank over that of one at the smallest size that was run."""
    crowding: float = 1.0
    """Ranks per GPU or CPU on the rehearsal's machine."""
    here_seconds: float | None = None
    """Its step on the rehearsal's machine, where ranks take turns; None: each has room."""


def crowding(ranks: int, room: Slots) -> float:
    """Number of ranks (in a CPU job: of their threads) per device or CPU of the machine; 1 if each has its own.

    Holds:   never below 1; more ranks are never less crowded; an unknown room crowds nobody
    """
    if room.devices:
        return max(1.0, ranks / room.devices)
    return max(1.0, ranks * room.threads / room.cpus) if room.cpus else 1.0


def predict(rehearsal: Rehearsal, shapes: Iterable[tuple[int, int]]) -> tuple[Prediction, ...]:
    """The step at each of these (hosts, ranks per host), if each rank has as much room as in the measured sizes.

    Raises:  UsageError U03: a measured step that cannot be
    """
    measurements = rehearsal.measurements
    smallest = min(measurements, key=lambda one: one.devices)
    # 1, or where every size was crowded already, by how much the one was that the prediction starts from.
    already = min(crowding(one.devices, rehearsal.room) for one in measurements)
    device = Accelerator(name=rehearsal.room.accelerator) if rehearsal.room.accelerator else None
    among_hosts = rehearsal.probe is not None and rehearsal.probe.hosts > 1
    found = []
    for hosts, per_host in shapes:
        machines = Machines(
            device=device,
            devices_per_host=per_host,
            hosts=hosts,
            intra=None if among_hosts or per_host == 1 else rehearsal.link,
            inter=rehearsal.link if among_hosts and hosts > 1 else None,
        )
        step = step_time(machines, Workload(), measurements)
        crowded = crowding(hosts * per_host, rehearsal.room)
        found.append(
            Prediction(
                hosts=hosts,
                ranks_per_host=per_host,
                step=step,
                efficiency_fraction=smallest.step_seconds / step.seconds,
                crowding=crowded,
                # Ranks that share a CPU or a GPU take turns, also in the exchange, which a CPU computes.
                here_seconds=step.seconds * crowded / already if crowded > already else None,
            )
        )
    return tuple(found)


def sizes_to_predict(sizes: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Twice and four times the largest size, along what grew: the hosts where their number did, else the ranks of a host."""
    hosts, per_host = max(sizes, key=lambda size: size[0] * size[1])
    if len({size[0] for size in sizes}) > 1:
        return (hosts * 2, per_host), (hosts * 4, per_host)
    return (hosts, per_host * 2), (hosts, per_host * 4)


def to_plain(rehearsal: Rehearsal) -> dict[str, Any]:
    """The rehearsal as its file has it."""
    return {"schema": SCHEMA, **msgspec.to_builtins(rehearsal)}


def from_plain(plain: Any) -> Rehearsal:
    """The rehearsal that `to_plain` wrote, in this schema or the one before; keys of a later version are ignored.

    Raises:  ValueError: it is no rehearsal, says which part
    Holds:   from_plain(to_plain(rehearsal)) == rehearsal
    """
    if not isinstance(plain, dict) or plain.get("schema") not in (SCHEMA, _BEFORE):
        raise ValueError(
            f"schema is {plain.get('schema')!r}, not {SCHEMA}" if isinstance(plain, dict) else "not an object"
        )
    try:
        known = _of_before(plain) if plain["schema"] == _BEFORE else plain
        rehearsal = msgspec.convert({name: value for name, value in known.items() if value is not None}, Rehearsal)
    except msgspec.ValidationError as error:
        raise ValueError(f"a part of it has another form: {error}") from None
    for one in rehearsal.sizes:
        _check(one)
    return rehearsal


def _of_before(plain: dict[str, Any]) -> dict[str, Any]:
    """The same with the names of today; what has another form stays, and is refused by its reader."""
    sizes = plain.get("sizes")
    return {
        **plain,
        "sizes": [_renamed(one, _RENAMED_IN_A_SIZE) for one in sizes] if isinstance(sizes, list) else sizes,
        "room": _renamed(plain.get("room"), _RENAMED_IN_ROOM),
    }


def _renamed(plain: Any, names: Mapping[str, str]) -> Any:
    return {names.get(name, name): value for name, value in plain.items()} if isinstance(plain, dict) else plain


def _check(one: RehearsedSize) -> None:
    measured = one.measurement
    whole = measured.hosts >= 1 and measured.devices >= measured.hosts and measured.step_seconds > 0
    if not whole or one.crowding < 1.0:
        raise ValueError(
            f"a size cannot be {measured.devices} ranks on {measured.hosts} hosts in {measured.step_seconds} s"
        )
