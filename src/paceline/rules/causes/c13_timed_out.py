"""C13: ranks gave up waiting for a rank that was late for longer than the process group's timeout."""

import re
from collections.abc import Iterator
from dataclasses import replace

from paceline.diagnosis.case import Case, Stall
from paceline.diagnosis.crash.exits import crash, ended, is_echo, log_command, matching_line, words_of
from paceline.diagnosis.hang.activity import what_it_does
from paceline.diagnosis.stacks import frames_of, place_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.fact_json import fact_or_none
from paceline.recording.rank_sets import named_ranks

TITLE = "others gave up waiting for a rank"
PAGE = """\
Others gave up waiting for a rank

What it means: One rank did not come to a collective for longer than the process group's timeout. It wrote a
  checkpoint, evaluated, tokenised or hung. The ranks that waited for it then raised an error, and the job ended.
Why it matters: The error and its traceback come from ranks that did nothing wrong. The late rank itself prints
  nothing.
Deciding evidence: Ranks that were seen waiting printed "Timed out waiting" (gloo), "Watchdog caught collective
  operation timeout" (NCCL) or "did not come to an exchange within" (paceline), and the recording says which rank they
  waited for.
Not to be confused with: N01 to N13, which apply while the ranks still wait; R01 and R02, where the process group
  never formed.
What to do: If the long work is intended (a checkpoint, an evaluation), give that barrier a group of its own with a
  longer timeout, `dist.new_group(timeout=timedelta(hours=2))`, let every rank do a share of the work, or save in the
  background. If the rank hung, read where it was.
How to inject it: examples/broken/c13_outlasted.py
Source: torch.distributed, timeout of init_process_group; gloo/transport/tcp/unbound_buffer.cc.
"""

_GAVE_UP = re.compile(
    r"Timed out waiting \d+ ?ms for \w+ operation|Watchdog caught collective operation timeout|"
    r"did not come to an exchange within",
    re.IGNORECASE,
)


def find(case: Case) -> Iterator[CauseFinding]:
    gave_up = [exit for exit in case.exits if exit.code != 0 and not exit.signalled_by_us and _says_so(case, exit)]
    if not gave_up:
        return
    still = _newest_stall(case)
    if still is None or not still.late or not {exit.rank for exit in gave_up} & set(still.waiting):
        return
    if any(exit.rank in still.late and not exit.signalled_by_us and not is_echo(case, exit) for exit in case.exits):
        # The rank's own end tells more than the wait of the others.
        return
    yield _finding(case, gave_up, still)


def _newest_stall(case: Case) -> Stall | None:
    """The newest stall, also one that has ended: it ends when the waiting ranks give up."""
    if case.stall is not None:
        return case.stall
    for event in reversed(case.events):
        is_of_now = event.get("event") == "standstill" and event.get("attempt", 0) == case.attempt
        # The case lists one that is unreadable.
        if is_of_now and (found := fact_or_none(Stall, event.get("standstill"))) is not None:
            return found
    return None


def _says_so(case: Case, exit: RankExit) -> bool:
    return bool(_GAVE_UP.search(words_of(case, exit)))


def _finding(case: Case, gave_up: list[RankExit], still: Stall) -> CauseFinding:
    late = still.late
    snapshots = [
        snapshot
        for rank in late
        if (snapshot := case.snapshots.get(rank)) is not None and snapshot.at_ns >= still.since_ns
    ]
    waited = (min(exit.error.time_ns if exit.error else exit.time_ns for exit in gave_up) - still.since_ns) / 1e9
    where = f" in {still.operation}" if still.operation else ""
    work = next((work for snapshot in snapshots if (work := what_it_does(frames_of(snapshot))) is not None), None)
    finding = crash(
        case,
        gave_up,
        code="C13",
        title=TITLE,
        confidence=Confidence.HIGH if snapshots else Confidence.LIKELY,
        saw=(
            f"{ended(gave_up[0])}: {matching_line(words_of(case, gave_up[0]), _GAVE_UP)}",
            f"{named_ranks(still.waiting)} had waited{where} for {named_ranks(late)} for {waited:.1f} s",
            *(f"rank {snapshot.rank} {work or 'was'} {place_of(snapshot)}" for snapshot in snapshots[:3]),
            *((f"it made progress: {', '.join(still.progress)}",) if still.progress else ()),
        ),
        next=(
            "if the work is intended, give that barrier a group with a longer timeout: dist.new_group(timeout=timedelta(hours=2))",
            "or save in the background, and let every rank do its share of an evaluation",
            *(log_command(case, rank) for rank in late[:1]),
        ),
    )
    return replace(
        finding,
        ranks=late,
        hosts=tuple(dict.fromkeys(case.host_of(rank) for rank in late)),
        # `crash` rules out ranks that failed after these; it must not rule out the late rank.
        ruled_out=(f"{named_ranks(exit.rank for exit in gave_up)} raised: they only waited",),
    )


RULE = Cause(
    code="C13", title=TITLE, page=PAGE, find=find, beats=("C01",), sure_by=(Ground.EXIT, Ground.WORDS, Ground.CALLS)
)
