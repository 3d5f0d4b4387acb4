"""N07: something in the rank holds the interpreter's lock and does nothing."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.late import LateRank, late_ranks, need_looks
from paceline.diagnosis.progress import cannot_move, cpus_used, uses_a_cpu
from paceline.diagnosis.stacks import is_waiting_in_collective, place_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Unknown

PAGE = """\
Native code holds Python's lock and waits

What it means: A thread of the rank went into native code without giving up the interpreter's lock (GIL), and waits there: a C
  extension that sleeps or blocks, or a deadlock between that lock and one of a C++ thread. No Python of this rank can run.
Why it matters: Everything that asks the rank through Python hangs with it: signal handlers, tracebacks, exit.
Deciding evidence: torch's worker server, which needs no Python, answers a ping and does not answer a request for a traceback; the rank uses
  no CPU. Native frames show take_gil, or who keeps it.
Not to be confused with: N06 (the same, but it burns CPU), N01 (its Python answers), N02 (nothing answers).
What to do: Look at the native stack: `py-spy dump --native --nonblocking --pid PID`. In the extension, release the lock around what waits
  (Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release; `ctypes.CDLL` in place of `PyDLL`).
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n07_lock_held.py`, then `paceline why`.
Source: torch.distributed's worker server, handlers ping and dump_traceback.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    """Late idle ranks whose server answers and whose Python does not."""
    unknown = None
    for late in late_ranks(case):
        look = late.look
        if cannot_move(look) or look.state == "D" or uses_a_cpu(look):
            continue
        waits_for_lock = any("take_gil" in frame for frame in look.native)
        if look.ping_answers is True and look.traceback_answers is False:
            yield _finding(late, waits_for_lock)
        elif look.ping_answers is None or look.traceback_answers is None:
            if waits_for_lock and not is_waiting_in_collective(look):
                yield _finding(late, waits_for_lock)
            else:
                unknown = late.rank
    if unknown is not None:
        raise Unknown(
            f"whether the Python of rank {unknown} answers (torch's worker server was not asked or not there)"
        )
    need_looks(case)


def _finding(late: LateRank, waits_for_lock: bool) -> CauseFinding:
    look = late.look
    asked = look.ping_answers is True and look.traceback_answers is False
    place = late.users
    native = ", ".join(look.native[:3])
    return CauseFinding(
        code="N07",
        title="native code holds Python's lock",
        level=Level.STALL,
        ranks=(late.rank,),
        confidence=Confidence.HIGH if asked and cpus_used(look) is not None else Confidence.LIKELY,
        since_step=late.standstill.since_step,
        saw=(
            *(
                ("torch's worker server answers a ping and not a request for a traceback: no Python runs",)
                if asked
                else ()
            ),
            *((f"native frames: {native}",) if native else ()),
            *((f"its main thread is {place_of(look)}",) if late.frames else ()),
            late.how_late,
            late.activity,
        ),
        ruled_out=(
            "not a loop: it uses no CPU",
            *((f"not stopped: state {look.state}",) if look.state else ()),
            *(() if waits_for_lock else ("not asleep in Python: its Python would answer",)),
        ),
        next=(
            f"see who holds the lock: py-spy dump --native --nonblocking --pid {look.pid} on {look.host}"
            if late.lasts
            else "see who holds the lock, when it happens again: paceline stack --native",
            *((f"{site_of(place)}: what is called here should release the lock while it waits",) if place else ()),
        ),
    )


RULE = Cause(code="N07", title="deadlock on Python's lock", page=PAGE, find=find, beats=("N01",))
