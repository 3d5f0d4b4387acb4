"""R06: two processes joined as one rank, a rank is not below the world size, or ranks ask for different world sizes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import failures, log_command, matching_line, steps_of, words_of
from paceline.diagnosis.crash.rendezvous import Joined, joined
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "ranks or world sizes contradict each other"
PAGE = """\
Ranks or world sizes contradict each other

What it means: In a process group every process must have its own number below the world size, and all must name the
  same world size. Here two processes have the same number, one has a number outside the range, or their world sizes
  differ.
Why it matters: Some ranks wait until the timeout for a rank that cannot come, or the second process with a number
  fails with "address already in use".
Deciding evidence: paceline compares what each process passed to init_process_group with the rank that it was started
  as.
Not to be confused with: R01, where all ranks agree on a world size but too few were started; R04, where an unrelated
  process holds the port.
What to do: Leave RANK and WORLD_SIZE as the launcher sets them. Look for os.environ["RANK"] = ... and for rank= in
  init_process_group.
How to inject it: examples/broken/r06_duplicate_rank.py, also with --joins-as 2 or --world-size 3
Source: torch/distributed/rendezvous.py.
"""


_SAYS = re.compile(
    r"[Rr]ank .*(>=|larger|exceed|out of range|should be less).*world.?size|[Dd]uplicate rank|rank \d+ .*already (joined|exists)"
)


def find(case: Case) -> Iterator[CauseFinding]:
    found = [one for one in joined(case) if not steps_of(case, one.rank)]
    told: set[int] = set()
    for finding in (*_duplicates(case, found), *_beyond(case, found), *_sizes(case, found)):
        if not told & set(finding.ranks):
            told |= set(finding.ranks)
            yield finding
    for exit in failures(case):
        line = matching_line(words_of(case, exit), _SAYS)
        if line and exit.rank not in told:
            yield _finding(case, (exit.rank,), (exit.host,), (line,))


def _duplicates(case: Case, found: Sequence[Joined]) -> Iterator[CauseFinding]:
    by_rank: dict[int, list[Joined]] = defaultdict(list)
    for one in found:
        # A process that the launcher did not start may be a legitimate helper of the rank that it names.
        if one.started_as is not None:
            by_rank[one.rank].append(one)
    for rank, claims in by_rank.items():
        wrong = [one for one in claims if one.started_as != rank]
        if len(claims) > 1 and wrong:
            saw = tuple(f"{one}, started as rank {one.started_as}, joined as rank {rank}" for one in claims[:4])
            # The finding names the process by the rank that the launcher started it as.
            yield _finding(case, _as_started(wrong), tuple(dict.fromkeys(one.host for one in wrong)), saw)


def _beyond(case: Case, found: Sequence[Joined]) -> Iterator[CauseFinding]:
    for one in found:
        if one.world_size is not None and one.rank >= one.world_size:
            saw = (f"{one}, started as rank {one.started_as}, joined as rank {one.rank} of {one.world_size}",)
            yield _finding(case, _as_started([one]), (one.host,), saw)


def _sizes(case: Case, found: Sequence[Joined]) -> Iterator[CauseFinding]:
    sizes = Counter(one.world_size for one in found if one.world_size is not None)
    if len(sizes) < 2:
        return
    right = case.world_size if case.world_size in sizes else sizes.most_common(1)[0][0]
    odd = [one for one in found if one.world_size is not None and one.world_size != right]
    other = next(one for one in found if one.world_size == right)
    saw = (
        *(f"rank {one.rank} ({one}) asks for a world size of {one.world_size}" for one in odd[:4]),
        f"rank {other.rank} ({other}) asks for {right}",
    )
    yield _finding(case, _as_started(odd), tuple(dict.fromkeys(one.host for one in odd)), saw)


def _as_started(claims: Sequence[Joined]) -> tuple[int, ...]:
    return tuple(sorted({one.rank if one.started_as is None else one.started_as for one in claims}))


def _finding(case: Case, ranks: tuple[int, ...], hosts: tuple[str, ...], saw: tuple[str, ...]) -> CauseFinding:
    return CauseFinding(
        code="R06",
        title=TITLE,
        level=Level.START,
        ranks=ranks,
        hosts=hosts,
        saw=saw,
        next=(
            "leave RANK and WORLD_SIZE as paceline sets them: look for os.environ[...] = and for rank=, world_size= in the script",
            log_command(case, ranks[0]),
        ),
    )


RULE = Cause(
    code="R06",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("R04", "R01", "R02", "C01"),
    sure_by=(Ground.EVENTS, Ground.WORDS, Ground.EXIT),
)
