"""What each process passed to its rendezvous, compared. Pure; worker/rendezvous_identity.py writes what `brought` reads."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.diagnosis.case import Case
from paceline.findings import Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One process that called init_process_group as a rank."""

    host: str
    """Its host."""
    pid: int
    """Its process id."""
    rank: int
    """The rank that it asked for."""
    world_size: int | None = None
    """The world size that it asked for."""
    started_as: int | None = None
    """The rank that the launcher started it as; None: the launcher started another process."""
    brought: Mapping[str, str] = field(default_factory=dict)
    """What it passed to the call: see worker/rendezvous_identity.py; empty if the recording does not have it."""

    @property
    def address(self) -> str | None:
        """Where it looks for the others, host:port; None if it passed no address."""
        return address_in(self.brought)

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


def brought(text: str) -> dict[str, str]:
    """The values of a ring's text "rendezvous"; other lines are ignored.

    Holds:   brought("rank=1\\nMASTER_ADDR=h0") == {"rank": "1", "MASTER_ADDR": "h0"}
    """
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, sign, value in pairs if name and sign}


def address_in(brought: Mapping[str, str]) -> str | None:
    """host:port of the rendezvous that a process passed; None if it passed none."""
    url = brought.get("init_method", "")
    if url.startswith("tcp://"):
        return url.removeprefix("tcp://").partition("?")[0]
    host, port = brought.get("MASTER_ADDR"), brought.get("MASTER_PORT")
    return f"{host}:{port}" if host and port else None


def claimed_twice(case: Case) -> frozenset[int]:
    """Ranks that several of the started processes joined as; empty if it is not known."""
    try:
        claims = Counter(one.rank for one in joined(case) if one.started_as is not None)
    except Unknown:
        return frozenset()
    return frozenset(rank for rank, count in claims.items() if count > 1)


def joined(case: Case) -> tuple[Joined, ...]:
    """The processes of this attempt that became ranks, in the order of rank, host and pid.

    Raises:  Unknown: no rank has ever joined, and the recording does not show that any was observed
    """
    started = {(event.get("host"), event.get("pid")): event.get("rank") for event in _of(case, "rank_started")}
    found = {}
    for event in _of(case, "rank_joined"):
        host, pid, rank = event.get("host"), event.get("pid"), event.get("rank")
        if isinstance(host, str) and isinstance(pid, int) and isinstance(rank, int):
            found[host, pid] = _joined(event, host, pid, rank, started.get((host, pid)))
    for rank, heartbeat in case.heartbeats.items():
        if heartbeat.pid is not None and (heartbeat.rendezvous or (heartbeat.host, heartbeat.pid) not in found):
            known = {
                "world_size": _size(heartbeat.rendezvous),
                "started_as": started.get((heartbeat.host, heartbeat.pid)),
            }
            found[heartbeat.host, heartbeat.pid] = Joined(
                host=heartbeat.host, pid=heartbeat.pid, rank=rank, brought=heartbeat.rendezvous, **known
            )
    return tuple(sorted(found.values(), key=lambda one: (one.rank, one.host, one.pid)))


def started_ranks(case: Case) -> dict[int, tuple[str, int | None]]:
    """Rank -> host and pid of every process that the launcher started in this attempt.

    Raises:  Unknown: the recording does not say which
    """
    started = {
        event["rank"]: (str(event.get("host", "?")), event.get("pid"))
        for event in _of(case, "rank_started")
        if isinstance(event.get("rank"), int)
    }
    if not started:
        raise Unknown("which ranks were started")
    return started


def in_rendezvous(case: Case) -> tuple[int, ...]:
    """Ranks that have called init_process_group and have not returned from it.

    Raises:  Unknown: the ranks were not inspected
    """
    if not case.heartbeats:
        raise Unknown("the phase of the ranks: no stall was seen")
    return tuple(sorted(rank for rank, heartbeat in case.heartbeats.items() if heartbeat.phase == "rendezvous"))


def _joined(event: Mapping[str, Any], host: str, pid: int, rank: int, started_as: Any) -> Joined:
    plain = event.get("rendezvous")
    values = {str(name): str(value) for name, value in plain.items()} if isinstance(plain, Mapping) else {}
    size = event.get("world_size")
    return Joined(
        host=host,
        pid=pid,
        rank=rank,
        world_size=size if isinstance(size, int) else _size(values),
        started_as=started_as if isinstance(started_as, int) else None,
        brought=values,
    )


def _size(values: Mapping[str, str]) -> int | None:
    text = values.get("world_size", "")
    return int(text) if text.isdigit() else None


def _of(case: Case, name: str) -> Iterable[Mapping[str, Any]]:
    return (event for event in case.events if event.get("event") == name and event.get("attempt", 0) == case.attempt)
