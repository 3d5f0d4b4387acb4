"""C06: a rank ended with 0 by os._exit or sys.exit while the others still exchange; the survivors that then fail are not to blame."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.crash.exits import crash, early_ends, ended, log_command, steps_of
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

TITLE = "rank left with code 0 in the middle"
PAGE = """\
Rank left with code 0 in the middle

What it means: A rank ended with exit code 0 while the other ranks were in the collectives of a step. os._exit,
  sys.exit or a library ended the process. The other ranks then fail with "Connection closed by peer" and look like
  the cause.
Why it matters: Every failed rank is a victim here. The rank to blame reported success.
Deciding evidence: The exit code is 0; other ranks lost the connection to this rank or wait for it; and the rank left
  without running the interpreter's exit handlers (os._exit), or by a call of sys.exit that is not the last line of
  the program.
Not to be confused with: M05, where the program ran to its end because the rank had fewer batches; M11, where the rank
  left its loop; C01, where the exit code is not 0.
What to do: Look for os._exit, sys.exit and exit() in the script and in the code that it calls. To end a job early,
  decide it on every rank.
How to inject it: examples/broken/c06_leaves.py
Source: paceline/worker/exit_handler.py: what a process says when its program is done.
"""


_WORDS = {
    0: "it left without running its exit handlers, as os._exit does",
    2: "it left by a call of sys.exit that is not its program's last line",
}


def find(case: Case) -> Iterator[CauseFinding]:
    unknown = []
    for exit in early_ends(case):
        record = case.ranks.get(exit.rank)
        left_by = record.left_by if record is not None else None
        if left_by is None:
            unknown.append(exit.rank)
        elif left_by in _WORDS:
            yield _finding(case, exit, _WORDS[left_by])
    if unknown:
        raise Unknown(f"how rank {unknown[0]} left")


def _finding(case: Case, exit: RankExit, how: str) -> CauseFinding:
    steps = steps_of(case, exit.rank)
    record = case.ranks.get(exit.rank)
    left_at = record.left_at if record is not None else ""
    return crash(
        case,
        [exit],
        code="C06",
        title=TITLE,
        confidence=Confidence.HIGH,
        saw=(
            f"{ended(exit)}"
            + (f" after {steps} steps" if steps is not None else "")
            + ", while the others still needed it",
            f"{how}: {left_at}" if left_at else how,
        ),
        ruled_out=("fewer batches (M05): its program did not run to its end",),
        next=(*_next(left_at), log_command(case, exit.rank)),
    )


def _next(left_at: str) -> Iterator[str]:
    place = left_at.partition(",")[0]
    if "the handler of" in left_at:
        yield f"{place}: leave with another code than 0, or let the handler set a flag on which all ranks stop together"
    elif left_at:
        yield f"{place}: decide on every rank that the job ends here, or leave with another code than 0"
    else:
        yield "look for os._exit, sys.exit and exit() in the script and in what it calls"


RULE = Cause(
    code="C06",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("M05", "M11", "M07", "N10"),
    sure_by=(Ground.EXIT, Ground.WORDS),
)
