"""Whether a recorded call is outside of the loops in which the job makes most of its calls. The source says which loops are around a line.

Inside a rank of `paceline run` the bytecode says it, and the optimizer's steps say which loop is that of the training. From outside a line
from which three of the newest calls came, with the same callers, is in the training.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from paceline.diagnosis.case import Site
from paceline.diagnosis.flight_recorder import TraceEntry

# Of a place in the training there are at least as many calls.
_OFTEN = 3
Loop = tuple[str, int, int]
"""A file, and the first and the last line of a loop in it."""


def with_loops(
    entries: Sequence[TraceEntry], loops_of: Callable[[str], Sequence[Loop] | None]
) -> tuple[TraceEntry, ...]:
    """The entries, their sites with `outside_loop`. `loops_of`: the loops of a file; None: its source is not known, or is another one."""
    counts = Counter(entry.site for entry in entries if entry.site is not None)
    around = {site: tuple(_around(site, loops_of)) for site in counts}
    of_training = {loop for site, count in counts.items() if count >= _OFTEN for loop in around[site]}
    if not of_training:
        return tuple(entries)

    def placed(site: Site) -> Site:
        known = all(loops_of(file) is not None for file, _ in _places(site))
        return replace(site, outside_loop=of_training.isdisjoint(around[site])) if known else site

    return tuple(entry if entry.site is None else replace(entry, site=placed(entry.site)) for entry in entries)


def loops_in(file: str, source: bytes) -> tuple[Loop, ...] | None:
    """The loops of a source, its header included; None: it is not Python.

    Holds:   loops_in("t.py", b"for i in a:\\n  f(i)\\n") == (("t.py", 1, 2),)
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    kinds = ast.For | ast.While | ast.AsyncFor
    return tuple((file, n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, kinds))


def _around(site: Site, loops_of: Callable[[str], Sequence[Loop] | None]) -> Iterator[Loop]:
    for file, line in _places(site):
        yield from (loop for loop in loops_of(file) or () if loop[1] <= line <= loop[2])


def _places(site: Site) -> Iterable[tuple[str, int]]:
    yield site.file, site.line
    for caller in site.callers:
        file, _, line = caller.rpartition(":")
        if line.isdigit():
            yield file, int(line)
