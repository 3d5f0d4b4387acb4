"""N06: a rank uses a CPU core in one place and does not reach the collective."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.hang.activity import what_it_does
from paceline.diagnosis.hang.lagging_ranks import UNSEEN_DEVICE, LaggingRank, late_ranks, need_snapshots, need_stacks
from paceline.diagnosis.hang.progress import THROTTLED_FRACTION, UNCHANGING_SECONDS, cpus_used
from paceline.diagnosis.stacks import is_compiling, is_waiting_for_loader, place_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Level

PAGE = """\
A rank is in an endless loop, or in one very long computation

What it means: The late rank uses a whole core and stays in one place: a loop that does not end, a regular expression
  with exponential backtracking, or one call that takes very long. If such a loop is in C code, no other thread of the
  rank can run Python. A rank that waits for its GPU looks the same, because CUDA waits with a busy core: then a kernel does
  not end.
Why it matters: The process is busy, so a monitor that looks only at load sees nothing wrong.
Deciding evidence: The rank uses about one core of CPU time and makes no disk or network traffic. Every snapshot shows
  the same functions on its stack. Its CPU quota does not slow it down. After two minutes in one place the rank counts
  as stalled, for sure unless its collectives are of a device and no flight recorder shows them.
Not to be confused with: N01 (the rank is idle); N04 (the stack changes, or data move); N05 (the rank compiles); S02
  (a CPU quota stops the rank).
What to do: Read the line that the finding names, and find out what should end its loop. `py-spy dump --locals --pid
  PID` shows the variables. If the rank uses a GPU, `CUDA_LAUNCH_BLOCKING=1` makes each call wait for its own kernel, so
  that the line is the one that launched it.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n06_busy_loop.py`, then `paceline why`.
Source: proc(5), fields utime and stime.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks that use a core, move no data and stay in one place."""
    unread = []
    for late in late_ranks(case):
        snapshot = late.snapshot
        if not late.is_free or not late.is_busy or late.moves_bytes:
            continue
        if (snapshot.throttled_fraction or 0.0) >= THROTTLED_FRACTION:
            continue
        if not late.frames:
            unread.append(late)
            continue
        if (
            is_compiling(snapshot)
            or is_waiting_for_loader(snapshot)
            or not (late.is_in_its_own_code or snapshot.stack_moved is False)
        ):
            continue
        if late.stall.waiting or late.in_place_seconds >= UNCHANGING_SECONDS:
            yield _finding(late)
    need_stacks(unread)
    need_snapshots(case)


def _finding(late: LaggingRank) -> CauseFinding:
    place = late.users or late.frames[0]
    for_long = late.in_place_seconds >= UNCHANGING_SECONDS
    named_work = what_it_does(late.frames)
    if for_long and not late.may_wait_for_device:
        confidence = Confidence.HIGH
    else:
        confidence = Confidence.UNCLEAR if named_work else Confidence.LIKELY
    known = f"for {late.in_place_seconds:.0f} s" if late.in_place_seconds >= 1 else "in this snapshot"
    return CauseFinding(
        code="N06",
        title="rank in an endless loop or one very long computation",
        level=late.level,
        ranks=(late.rank,),
        confidence=confidence,
        since_step=late.stall.since_step,
        saw=(
            f"its main thread is {place_of(late.snapshot)}, {known}",
            f"{cpus_used(late.snapshot) or 0.0:.2f} CPUs used, and nothing read, written or received",
            late.how_late,
            *(
                ("its Python does not answer: C code keeps the interpreter's lock",)
                if late.snapshot.ping_answers and late.snapshot.traceback_answers is False
                else ()
            ),
            *((UNSEEN_DEVICE,) if late.may_wait_for_device else ()),
            *(
                ("it has a GPU open, and CUDA waits with a busy core: it may be a kernel that does not end",)
                if late.snapshot.gpus and not late.may_wait_for_device
                else ()
            ),
        ),
        ruled_out=(
            "not asleep: it uses the CPU",
            *(("not throttled by a CPU quota",) if late.snapshot.throttled_fraction is not None else ()),
            "not the compiler: its stack is not in it",
        ),
        next=(
            f"{site_of(place)}: see what would end this",
            *(("the line that launched the kernel: CUDA_LAUNCH_BLOCKING=1",) if late.snapshot.gpus else ()),
            *late.while_it_lasts(
                f"its variables: py-spy dump --nonblocking --locals --pid {late.snapshot.pid} on {late.snapshot.host}"
            ),
        ),
    )


RULE = Cause(
    code="N06",
    title="rank in an endless loop",
    page=PAGE,
    find=find,
    levels=(Level.STALL, Level.WAITING),
    sure_by=(Ground.SNAPSHOT,),
)
