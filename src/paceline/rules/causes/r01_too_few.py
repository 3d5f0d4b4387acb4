"""R01: the job waits for ranks that were never started or never reached the rendezvous."""

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import log_command, steps_of
from paceline.diagnosis.crash.rendezvous import in_rendezvous, joined, started_ranks
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks

TITLE = "fewer ranks started than the world size"
PAGE = """\
Fewer ranks started than the world size

What it means: A process group forms only when every rank of its world size has called init_process_group. Some ranks
  were never started (a host is missing, or the world size is too large), or were started and never reached the call.
Why it matters: The other ranks wait silently until the timeout of the rendezvous, half an hour by default.
Deciding evidence: The launcher still waits for hosts; or the ranks ask for a world size above the number of ranks
  that were started; or started ranks have not joined while the others wait in the rendezvous.
Not to be confused with: R02, where a rank looks for the others at an address where no process listens; R06, where the
  ranks ask for different world sizes; N01, which says what a missing rank is doing.
What to do: Start the missing host with the same command, or correct the number: --nnodes, --nproc-per-node, or
  WORLD_SIZE in the script.
How to inject it: examples/broken/r01_too_few.py; or start one of two hosts
Source: torch/distributed/rendezvous.py.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    for entry in case.missing_hosts:
        yield _missing_host(entry)
    found = joined(case)
    sizes = {one.world_size for one in found if one.world_size is not None}
    if found and not any(steps_of(case, one.rank) for one in found):
        try:
            started = started_ranks(case)
        except Unknown:
            if case.stall is None:
                return
            raise
        if len(sizes) == 1 and (size := sizes.pop()) > len(started) and {one.rank for one in found} <= set(range(size)):
            yield _too_large(case, size, sorted(started))
    if case.stall is not None and case.heartbeats:
        yield from _never_joined(case)


def _missing_host(entry: Mapping[str, Any]) -> CauseFinding:
    ranks = entry.get("ranks")
    first, last = ranks if isinstance(ranks, (list, tuple)) and len(ranks) == 2 else (0, -1)
    host = str(entry.get("host", "?"))
    return _finding(
        ranks=tuple(range(first, last + 1)),
        hosts=(host,),
        saw=(
            f"{host} has not come" + (f" (ranks {first} to {last})" if last >= first else ""),
            str(entry.get("saw", "")),
        ),
        next=(f"start paceline run on {host} with the same options, or lower --nnodes",),
    )


def _too_large(case: Case, size: int, started: list[int]) -> CauseFinding:
    absent = [rank for rank in range(size) if rank not in started]
    return _finding(
        ranks=tuple(absent),
        hosts=(),
        saw=(
            f"the ranks ask for a world size of {size}, and {len(started)} were started: {named_ranks(absent)} cannot come",
            f"{named_ranks(one.rank for one in joined(case))} wait in init_process_group",
        ),
        next=("leave WORLD_SIZE as paceline sets it, or start more: --nproc-per-node, --nnodes",),
    )


def _never_joined(case: Case) -> Iterator[CauseFinding]:
    waiting = in_rendezvous(case)
    here = {one.started_as for one in joined(case)} | {one.rank for one in joined(case)} | set(case.heartbeats)
    gone = {exit.rank for exit in case.exits}
    absent = sorted(set(started_ranks(case)) - here - gone) if waiting else []
    if absent:
        pids = started_ranks(case)
        yield _finding(
            ranks=tuple(absent),
            hosts=tuple(dict.fromkeys(pids[rank][0] for rank in absent)),
            # Another rule may know better what the rank does instead.
            confidence=Confidence.LIKELY,
            level=Level.STALL,
            saw=(
                f"{named_ranks(absent)} started (pid {pids[absent[0]][1]}) and never called init_process_group",
                f"{named_ranks(waiting)} wait there: {len(waiting)} of {case.world_size or '?'} have come",
            ),
            next=("paceline stack shows where it is instead", log_command(case, absent[0])),
        )


def _finding(*, level: Level = Level.START, **fields: Any) -> CauseFinding:
    return CauseFinding(code="R01", title=TITLE, level=level, **fields)


RULE = Cause(
    code="R01",
    title=TITLE,
    page=PAGE,
    find=find,
    levels=(Level.START, Level.STALL),
    sure_by=(Ground.EVENTS, Ground.SNAPSHOT, Ground.WORDS, Ground.EXIT),
)
