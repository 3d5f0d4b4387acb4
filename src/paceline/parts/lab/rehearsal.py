"""Runs a rehearsal from its first size to its last, times the collectives, and finds what this machine has for the ranks to share."""

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UsageError
from paceline.parts.lab.short_run import RunRequest, run_to_end, try_size
from paceline.parts.plan.planner.observed import UNEVEN_TIMES, ObservedRun
from paceline.parts.plan.planner.rehearsal import Probe, Rehearsal, RehearsedSize, Slots, crowding

PROBE = "paceline.parts.lab.worker.link_probe"
_PROBE_SECONDS = 180.0
# Private memory of a rank that has imported torch and joined a group: 152 MiB (smaps_rollup, torch 2.13 for CPUs).
_LEAST_RANK_BYTES = 150 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalSpec:
    """The sizes, the script and the options of a rehearsal."""

    sizes: tuple[tuple[int, int], ...]
    """Sizes to run, as (hosts, ranks per host), in this order."""
    predict: tuple[tuple[int, int], ...]
    """Sizes to predict, as (hosts, ranks per host)."""
    steps: int
    """Steps of each size after its warm-up."""
    first_step_seconds: float
    """Longest wait for one step."""
    program: tuple[str, ...]
    """The script (after -m if it is a module) and its arguments."""
    run_options: tuple[str, ...] = ()
    """Further arguments of `paceline run`, for the script's runs only."""
    probe: bool = True
    """Whether the collectives are timed as well."""

    def argv(self, size: tuple[int, int], program: Sequence[str] | None = None) -> tuple[str, ...]:
        """The arguments of `paceline run` for one size, with the script or another program."""
        hosts, ranks = size
        shape = ("--local-hosts", str(hosts)) if hosts > 1 else ()
        ours = self.run_options if program is None else ()
        return (*shape, "--nproc-per-node", str(ranks), *ours, *(self.program if program is None else program))


class Rehearser:
    """Runs the sizes in order and keeps the results so far. `tell` gets one line after each size."""

    def __init__(self, wanted: RehearsalSpec, environ: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self.wanted, self.tell = wanted, tell
        self.room, self.environ, assumed = room_here(wanted, environ)
        self._tried: list[RehearsedSize] = []
        self._notes = list(assumed)
        self._probe: Probe | None = None
        self._started_ns = time.time_ns()

    def refuse(self, would_run: Callable[[Sequence[str]], object]) -> None:
        """Refuse what `paceline run` would refuse for any size, before anything starts. `would_run` raises for arguments that it refuses.

        Raises:  UsageError U03: more ranks than this machine's memory can hold; others as `paceline run`
        """
        refuse_too_many(self.wanted.sizes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        for size in self.wanted.sizes:
            would_run(self.wanted.argv(size))

    def rehearse(self, folder: Path) -> Rehearsal:
        """Run every size, then the link probe.

        Raises:  UsageError X05: the script failed at a size, or made too few steps
        """
        for size in self.wanted.sizes:
            self._try(size, folder)
        if self.wanted.probe:
            self._probe_links(folder)
        return self.so_far(folder)

    def so_far(self, folder: Path) -> Rehearsal:
        """The results so far, also after a size that failed."""
        return Rehearsal(
            id=folder.name,
            program=self.wanted.program,
            sizes=tuple(self._tried),
            room=self.room,
            probe=self._probe,
            script_hash=_hash(self.wanted.program[0]),
            machine=socket.gethostname(),
            started_ns=self._started_ns,
            notes=tuple(self._notes),
        )

    def _try(self, size: tuple[int, int], folder: Path) -> None:
        hosts, ranks = size
        asked = RunRequest(
            argv=self.wanted.argv(size),
            ranks=hosts * ranks,
            steps=self.wanted.steps,
            first_step_seconds=self.wanted.first_step_seconds,
        )
        seen = try_size(asked, folder / f"{hosts}x{ranks}", self.environ)
        tried = _tried(seen, crowding(hosts * ranks, self.room))
        self._tried.append(tried)
        self._notes += _notes(tried, seen, self.room)
        from paceline.parts.lab.views.rehearse import tried_line

        self.tell(tried_line(tried))

    def _probe_links(self, folder: Path) -> None:
        roomy = [
            size
            for size in self.wanted.sizes
            if size[0] * size[1] > 1 and crowding(size[0] * size[1], self.room) <= 1.0
        ]
        if not roomy:
            return
        file = folder / "curve.json"
        argv = self.wanted.argv(roomy[-1], ("-m", PROBE, "--out", str(file.resolve())))
        reason = run_to_end(argv, folder / "probe", self.environ, _PROBE_SECONDS)
        if not reason:
            try:
                self._probe = read_probe(json.loads(file.read_text(encoding="utf-8")))
            except (OSError, ValueError, KeyError, TypeError) as error:
                reason = str(error)
        if reason:
            self._notes.append(f"the exchange itself could not be timed: {reason}")


def refuse_too_many(sizes: Sequence[tuple[int, int]], memory_bytes: int) -> None:
    """Refuse ranks that would fill the machine's memory before they compute anything.

    Raises:  UsageError U03
    """
    most = memory_bytes // _LEAST_RANK_BYTES
    for hosts, ranks in sizes:
        if hosts * ranks > most:
            raise UsageError(
                "U03",
                f"{hosts * ranks} ranks do not fit on this machine",
                saw=f"{memory_bytes / 1024**3:.0f} GiB of memory; a rank with torch takes {_LEAST_RANK_BYTES // 1024**2} MiB at least",
                next=f"--sizes 1,2 --predict {hosts}x{ranks}",
            )


def read_probe(plain: Mapping[str, Any]) -> Probe:
    """The curve that the probe wrote. With several hosts of several ranks: the curve among one rank of each host, as --curve reads it.

    Raises:  KeyError, TypeError, ValueError: it is not a curve
    """
    part = plain.get("among") or plain
    points = part["points"]
    if not isinstance(points, list):
        raise ValueError("points are no list")
    return Probe(
        points=tuple((float(size), float(seconds)) for size, seconds in points),
        ranks=int(str(part["ranks"])),
        hosts=int(str(plain["hosts"])),
        backend=str(plain.get("backend") or ""),
    )


def room_here(wanted: RehearsalSpec, environ: Mapping[str, str]) -> tuple[Slots, dict[str, str], list[str]]:
    """The resources of this machine, the environment for every size, and the assumptions that were made.

    A rank that runs alone would take every CPU, but several ranks get one CPU each. So on CPUs all sizes get one thread per rank, unless
    the user gave a number. Otherwise one rank would look fast beside two for that reason alone.
    """
    from paceline.probes.environment import read_cpu
    from paceline.probes.gpus import count_visible, read_gpus

    reading = read_gpus()
    count, _ = count_visible(environ, reading)
    cpu = read_cpu()
    cpus = min(float(value) for value in (cpu.usable_count, cpu.quota_cpus, os.cpu_count()) if value)
    inherited = dict(environ)
    assumed = []
    if not count and "OMP_NUM_THREADS" not in inherited:
        inherited["OMP_NUM_THREADS"] = "1"
        assumed.append(
            "each rank computes with one thread at every size, as `paceline run` starts several (OMP_NUM_THREADS)"
        )
    threads = inherited.get("OMP_NUM_THREADS", "1")
    names = {gpu.name for gpu in reading.gpus or ()}
    assumed.append("the script keeps its batch on each rank as ranks are added (weak scaling)")
    room = Slots(
        cpus=cpus,
        devices=count or 0,
        accelerator=names.pop() if count and len(names) == 1 else None,
        threads=int(threads) if threads.isdigit() and int(threads) else 1,
    )
    return room, inherited, assumed


def _tried(seen: ObservedRun, crowded: float) -> RehearsedSize:
    return RehearsedSize(
        measurement=seen.measurement,
        run_id=seen.run,
        step_count=seen.steps,
        mean_step_seconds=seen.mean_step_seconds,
        compute_seconds=seen.compute_seconds,
        startup_seconds=seen.startup_seconds,
        crowding=crowded,
    )


def _notes(tried: RehearsedSize, seen: ObservedRun, room: Slots) -> list[str]:
    devices = tried.measurement.devices
    who = "1 rank" if devices == 1 else f"{devices} ranks"
    found = []
    if tried.crowding > 1.0:
        shared = f"{room.devices} devices" if room.devices else f"{room.cpus:g} CPUs"
        found.append(
            f"{who} shared {shared}: that step is crowded, and says nothing of machines that have room for each rank"
        )
    if tried.mean_step_seconds > UNEVEN_TIMES * tried.measurement.step_seconds:
        found.append(
            f"{who}: the mean of all steps is {tried.mean_step_seconds / tried.measurement.step_seconds:.2f} times their median: "
            "some steps are longer (evaluation, checkpoint, loading, other programs); hours follow the mean"
        )
    elsewhere = [load for load in seen.hosts if (load.waited_fraction or 0.0) > 0.5]
    if elsewhere and tried.crowding <= 1.0 and not room.devices:
        found.append(
            f"{who}: in {elsewhere[0].waited_fraction:.0%} of the time something waited for a CPU: other programs ran beside them"
        )
    return found


def _hash(script: str) -> str | None:
    try:
        return hashlib.sha256(Path(script).read_bytes()).hexdigest()
    except OSError:
        return None
