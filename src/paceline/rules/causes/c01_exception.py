"""C01: a rank's own code raised. The first real traceback is named; ranks that only lost the connection afterwards are victims."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case
from paceline.diagnosis.ends import (
    MODELS_DIFFER,
    after_it,
    crash,
    ended,
    failures,
    log_command,
    own_line_of,
    place_of,
    tail_of,
    words_of,
)
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding
from paceline.recording.rank_sets import named_ranks

TITLE = "exception in the script"
PAGE = """\
Exception in the script

What it means: A rank ended with a Python exception that is its own, and not one that only says that another rank is gone. Its
  peers fail a moment later with "Connection closed by peer"; their tracebacks, often longer and printed last, are not the
  cause.
Why it matters: The last traceback on the terminal is usually a victim's. The first one names the line to change.
Deciding evidence: The exception that was raised first, by the rank's own clock corrected for the hosts' offsets, whose text is
  not a lost connection. Ranks that raised the same exception at the same line count as one finding.
Not to be confused with: C02 and C04, where no exception is raised; C08, C09, M08, M09 and the R codes, which know what this exception
  means.
What to do: Read the line named under "saw" and the rank's stderr. If every rank raised it, try it on one: `--nproc-per-node 1`.
How to inject it: examples/broken/c01_exception.py
Source: paceline/worker/failure.py writes the exception when it is raised.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    groups: dict[tuple[str, str, str], list[RankExit]] = {}
    for exit in failures(case):
        if MODELS_DIFFER.search(words_of(case, exit)):
            # M09 says who is the odd one.
            continue
        if exit.error is not None:
            # The numbers in a text (a rank, an address, a size) differ between ranks that fell over the same line.
            groups.setdefault(
                (exit.error.type, place_of(exit), "" if place_of(exit) else exit.error.message), []
            ).append(exit)
        elif exit.code > 0 and exit.code <= 128:
            groups.setdefault((str(exit.code), "", ""), []).append(exit)
    for exits in groups.values():
        yield _finding(case, exits)


def _finding(case: Case, exits: list[RankExit]) -> CauseFinding:
    first = exits[0]
    error = first.error
    said = f": {error.message.strip().splitlines()[0][:300]}" if error is not None and error.message.strip() else ""
    where = place_of(first)
    words = "" if error is not None else tail_of(case, first.rank).strip().rpartition("\n")[2]
    return crash(
        case,
        exits,
        code="C01",
        title=TITLE if error is not None else "script ended with an error code",
        saw=(
            f"{ended(first)}{said}",
            f"at {where}" + (f": {error.source.strip()}" if error is not None and error.source else "")
            if where
            else "",
            f"its last words on stderr: {words[:200]}" if words else "",
            f"{'raised' if error is not None else 'ended'} {after_it(case, first)} fell"
            if after_it(case, first)
            else "",
            f"the same on {named_ranks(exit.rank for exit in exits)}" if len(exits) > 1 else "",
        ),
        ruled_out=() if where or error is not None else ("a signal: the process ended by itself",),
        next=(
            f"edit {own_line_of(first)}" if where else "",
            # A script that ends itself often says why on stdout.
            log_command(case, first.rank) if error is not None else f"paceline logs {case.run.id} --rank {first.rank}",
        ),
    )


RULE = Cause(code="C01", title=TITLE, page=PAGE, find=find)
