"""N07: a thread of the rank holds the interpreter's lock and does nothing."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.diagnosis.hang.progress import cannot_move, cpus_used, uses_a_cpu
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import gil_is_held, is_waiting_in_collective, place_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

PAGE = """\
Native code holds Python's lock and waits

What it means: A thread of the rank entered native code without releasing the interpreter's lock (GIL), and waits
  there. Either a C extension sleeps or blocks, or the GIL and a lock of a C++ thread form a deadlock. No Python code
  of this rank can run.
Why it matters: Everything that reaches the rank through Python hangs too: signal handlers, tracebacks, exit.
Deciding evidence: The rank uses no CPU, and one of its threads owns the lock, or the main thread's native frames show
  take_gil. This is seen in two snapshots, or torch's worker server answers a ping and does not answer a request for a
  traceback. That request alone decides nothing, because on a busy machine an answer may take long.
Not to be confused with: N06 (the rank holds the lock and uses a full CPU core); N01 (no thread owns the lock); N02
  (nothing in the process answers).
What to do: Look at the native stack: `py-spy dump --native --nonblocking --pid PID`. In the extension, release the
  lock around the call that waits (Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release; `ctypes.CDLL` instead of `PyDLL`).
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n07_lock_held.py`, then `paceline why`.
Source: py-spy, owns_gil; torch.distributed's worker server, handlers ping and dump_traceback.
"""


# Least time between the two snapshots of the same place.
_TWO_SNAPSHOTS_SECONDS = 1.0


def find(case: Case) -> Iterator[CauseFinding]:
    """Late idle ranks: one of their threads holds the lock, or their worker server answers while their Python does not."""
    unknown = None
    for late in late_ranks(case):
        snapshot = late.snapshot
        if cannot_move(snapshot) or snapshot.state == "D" or uses_a_cpu(snapshot):
            continue
        held = gil_is_held(snapshot)
        if held is False or is_waiting_in_collective(snapshot):
            continue
        if held or _leaves_a_question_open(snapshot):
            yield _finding(late, held is True)
        elif snapshot.ping_answers is None or snapshot.traceback_answers is None:
            unknown = late.rank
    if unknown is not None:
        raise Unknown(
            f"whether the Python of rank {unknown} answers (torch's worker server was not asked or not there)"
        )
    need_snapshots(case)


def _leaves_a_question_open(snapshot: RankSnapshot) -> bool:
    return snapshot.ping_answers is True and snapshot.traceback_answers is False


def _confidence(late: LaggingRank, is_seen: bool) -> Confidence:
    twice = late.in_place_seconds >= _TWO_SNAPSHOTS_SECONDS
    if is_seen and cpus_used(late.snapshot) is not None:
        return Confidence.HIGH if twice or _leaves_a_question_open(late.snapshot) else Confidence.LIKELY
    return Confidence.LIKELY if twice else Confidence.UNCLEAR


def _finding(late: LaggingRank, is_seen: bool) -> CauseFinding:
    snapshot = late.snapshot
    place = late.users
    native = ", ".join(snapshot.native[:3])
    owner = next(
        (stack.thread for stack in snapshot.stacks or () if stack.owns_gil and stack.pid == snapshot.pid), None
    )
    return CauseFinding(
        code="N07",
        title="native code holds Python's lock",
        level=Level.STALL,
        ranks=(late.rank,),
        confidence=_confidence(late, is_seen),
        since_step=late.stall.since_step,
        saw=(
            *((f"its thread {owner} owns the lock and uses no CPU",) if owner is not None else ()),
            *(
                ("torch's worker server answers a ping, and did not answer a request for a traceback",)
                if _leaves_a_question_open(snapshot)
                else ()
            ),
            *((f"native frames: {native}",) if native else ()),
            *((f"its main thread is {place_of(snapshot)}",) if late.frames else ()),
            late.how_late,
            late.activity,
        ),
        ruled_out=(
            "not a loop: it uses no CPU",
            *((f"not stopped: state {snapshot.state}",) if snapshot.state else ()),
            *(("not asleep in Python: a sleep there releases the lock",) if is_seen else ()),
        ),
        next=(
            f"see who holds the lock: py-spy dump --native --nonblocking --pid {snapshot.pid} on {snapshot.host}"
            if late.lasts
            else "see who holds the lock, when it happens again: paceline stack --native",
            *((f"{site_of(place)}: the call here should release the lock while it waits",) if place else ()),
        ),
    )


RULE = Cause(
    code="N07", title="deadlock on Python's lock", page=PAGE, find=find, beats=("N01",), sure_by=(Ground.SNAPSHOT,)
)
