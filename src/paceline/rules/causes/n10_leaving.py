"""N10: a rank runs its exit handlers and destructors while the others wait for it."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import log_command
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.diagnosis.hang.progress import cannot_move
from paceline.diagnosis.hang.wait_graph import EXCHANGES, FLIGHT_RECORDER
from paceline.diagnosis.stacks import is_waiting_in_collective, place_of
from paceline.facts import RankError
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "rank leaves while the others wait for it"
PAGE = """\
A rank leaves while the others wait for it

What it means: The program of one rank has come to its end, and so have its threads. Its interpreter is shutting down:
  exit handlers (atexit) and destructors still run, and they may upload, wait for a helper process or sleep. The other
  ranks wait in a collective that this rank will not join any more.
Why it matters: It looks like long work or like a sleeping rank, but waiting does not help. Once the process is gone,
  the other ranks fail.
Deciding evidence: The rank reported that its threads are done, other ranks wait for it, and its process still exists.
Not to be confused with: N01 and N04, where the program continues afterwards. If the main thread is done but a thread
  of the script continues, the rank is not leaving, because that thread may train. paceline says why the rank left
  once its process has ended: M05 (fewer batches), M11 (it left its loop), C06 (sys.exit), C01 (an exception).
What to do: Find out why this rank ends its program before the others. If only its exit takes long, look at the exit
  handler that the finding names. If the rank reported an exception, the finding names it: read its log.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n10_leaving.py`, then `paceline why`.
Source: Python's documentation of atexit and of Py_FinalizeEx.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks that have reported that their interpreter ends."""
    for late in late_ranks(case):
        seconds = _leaves_since(case, late)
        if seconds is not None and late.stall.waiting and not cannot_move(late.snapshot):
            yield _finding(case, late, seconds)
    need_snapshots(case)


def _leaves_since(case: Case, late: LaggingRank) -> float | None:
    """Seconds since the rank began to leave, at its snapshot; None if it does not leave or waits in a collective."""
    heartbeat = case.heartbeats.get(late.rank)
    if heartbeat is None or heartbeat.finalizing_ns is None or is_waiting_in_collective(late.snapshot):
        return None
    return max(0.0, (late.snapshot.at_ns - heartbeat.finalizing_ns) / 1e9)


def _finding(case: Case, late: LaggingRank, seconds: float) -> CauseFinding:
    rank, still = late.rank, late.stall
    raised = _raised(late.snapshot.raised)
    return CauseFinding(
        code="N10",
        title=TITLE,
        level=Level.STALL,
        ranks=(rank,),
        confidence=Confidence.HIGH if still.basis in (EXCHANGES, FLIGHT_RECORDER) else Confidence.LIKELY,
        since_step=still.since_step,
        saw=(
            f"rank {rank} leaves: {raised or 'its program and its threads ended'} {seconds:.0f} s ago, and its interpreter shuts down",
            *((f"its main thread is {place_of(late.snapshot)}",) if late.frames else ()),
            late.how_late,
            late.activity,
        ),
        ruled_out=(
            "neither asleep nor at long work in the training (N01, N04): it will join no collective any more",
            *(("its exit still makes progress: " + ", ".join(late.progress),) if late.progress else ()),
        ),
        next=(log_command(case, rank),) if raised else _find_out(late),
    )


def _find_out(late: LaggingRank) -> tuple[str, ...]:
    return (
        f"find out why rank {late.rank} ends its program before the others: fewer batches, a break, sys.exit, an exception",
        *late.while_it_lasts("once its process has ended, paceline why says which"),
    )


def _raised(error: RankError | None) -> str:
    if error is None:
        return ""
    at = "" if error.file is None else f" at {error.file}:{error.line}"
    return f"it raised {error.type}{at}" + (
        f" ({error.message.splitlines()[0][:200]})" if error.message.strip() else ""
    )


RULE = Cause(
    code="N10",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("N01", "N03", "N04", "N05", "N06", "N07"),
    sure_by=(Ground.SNAPSHOT,),
)
