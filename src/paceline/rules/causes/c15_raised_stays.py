"""C15: a rank has raised an exception, and something keeps its process."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import late_ranks
from paceline.diagnosis.stacks import has_any, place_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "rank has raised an exception, and its process stays"
PAGE = """\
A rank has raised an exception, and its process stays

What it means: The program of a rank has ended with an exception, and its interpreter waits for something that does not
  end: a thread that is no daemon, an exit handler, a pool of processes.
Why it matters: A launcher sees that a rank failed when its process ends. This one does not, so the others wait for it
  as for a rank that works.
Deciding evidence: The last traceback in the file to which the rank's stderr goes, a main thread without a frame of the
  program, and ranks that wait for it. Several ranks may write to one file, so this is likely and never certain.
Not to be confused with: N10 (the program is over, without an exception); N01 (the rank sleeps in its program).
What to do: Repair what raised. Make the thread a daemon, or end it in a `finally`.
How to inject it: `torchrun --nproc-per-node 2 examples/attached/c15_raised_stays.py 2> err.txt`, then `paceline why PID`.
Source: Python, threading._shutdown.
"""
_PROGRAM = (":<module>", "runpy.py:_run_module_as_main")


def find(case: Case) -> Iterator[CauseFinding]:
    raised = {rank: text for one in case.attached.values() for rank, text in one.raised.items()}
    for late in late_ranks(case):
        if late.rank not in raised or not late.frames or has_any(late.frames, _PROGRAM) is not None:
            continue
        others = [stack for stack in late.snapshot.stacks or () if stack.pid == late.snapshot.pid and not stack.main]
        kept = [f"its thread {one.thread} is at {site_of(one.frames[0])}" for one in others if one.frames][:2]
        yield CauseFinding(
            code="C15",
            title=TITLE,
            level=Level.CRASH,
            ranks=(late.rank,),
            confidence=Confidence.LIKELY,
            saw=(
                f"the last exception in its output: {raised[late.rank]}",
                f"its main thread is {place_of(late.snapshot)}",
                *kept,
                late.how_late,
            ),
            ruled_out=("not asleep in its program: that has ended",),
            next=("repair what raised", *(("make that thread a daemon, or end it in a finally",) if kept else ())),
        )


RULE = Cause(code="C15", title=TITLE, page=PAGE, find=find, beats=("N01", "N04", "N10"), sure_by=(Ground.WORDS,))
