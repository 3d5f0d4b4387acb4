"""The first failing rank in at most three lines, and the ranks that failed because of it."""

from collections.abc import Sequence

from paceline.diagnosis.crash.missing_package import install_torch, lacks_torch
from paceline.diagnosis.crash.root_cause import signal_name, telling_line
from paceline.facts import RankExit
from paceline.recording.rank_sets import spell_ranks
from paceline.spelling import plural
from paceline.views.table import crop


def headline(exits: Sequence[RankExit], *, width: int | None = None, ascii_only: bool = False) -> str:
    """What ended the run. `exits` are the failed ranks, the one to blame first; empty gives "".

    Holds: at most three lines for the first rank and one for all the others; without torch, the third is how to install it
    """
    failed = [exit for exit in exits if exit.code != 0]
    if not failed:
        return ""
    lines = [crop(line, width, ascii_only=ascii_only) for line in _cause(failed[0])]
    if len(failed) > 1:
        lines.append(crop(f"  others  not causes: {_others(failed[1:])}", width, ascii_only=ascii_only))
    return "\n".join(lines)


def name_of(exit: RankExit) -> str:
    """ "rank 3 on algo-2"."""
    return f"rank {exit.rank} on {exit.host}"


def _cause(exit: RankExit) -> list[str]:
    error = exit.error
    if error is None:
        lines = [f"{name_of(exit)} {_ending(exit.code)}"]
        return lines + [f"  {_first_line(exit.note)}"] if exit.note else lines
    message = telling_line(error.message)
    lines = [f"{name_of(exit)} raised {error.type}" + (f": {message}" if message else "")]
    if error.file is not None:
        lines.append(f"  {_frame(error.file, error.line, error.function)}")
        if error.source and not lacks_torch(error):
            lines.append(f"    {error.source.strip()}")
    if lacks_torch(error):
        lines.append(f"  this Python has no torch: {install_torch(error.python)}")
    return lines


def _frame(file: str, line: int | None, function: str | None) -> str:
    place = file if line is None else f"{file}:{line}"
    return f"{place} in {function}" if function and function != "<module>" else place


def _others(exits: Sequence[RankExit]) -> str:
    """Counted by how they ended: "1 rank (0) raised RuntimeError after it; 2 ranks (2-3) stopped by paceline with SIGTERM"."""
    groups: dict[str, list[RankExit]] = {}
    for exit in exits:
        groups.setdefault(_way_down(exit), []).append(exit)
    return "; ".join(
        f"{len(group)} {plural(len(group), 'rank')} ({spell_ranks(exit.rank for exit in group)}) {way}"
        for way, group in groups.items()
    )


def _way_down(exit: RankExit) -> str:
    if exit.signalled_by_us:
        return f"stopped by paceline with {signal_name(-exit.code)}" if exit.code < 0 else "stopped by paceline"
    if exit.error is not None:
        return f"raised {exit.error.type} after it"
    return f"{_ending(exit.code)} after it"


def _ending(code: int) -> str:
    return f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
