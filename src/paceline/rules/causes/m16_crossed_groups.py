"""M16: ranks enter collectives of several process groups in different order, and wait for each other."""

from collections import Counter
from collections.abc import Iterator, Sequence

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.desync.desync import call_text
from paceline.diagnosis.hang.wait_cycles import Wait, all_waits, circle_of_waits
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "process groups entered in crossed order"
PAGE = """\
Process groups entered in crossed order

What it means: A rank waits in a collective of one process group for a second rank, and the second rank waits in
  another group for the first. For example, rank 0 enters group A and then B, and rank 1 enters B and then A. Longer
  cycles over more ranks and groups are the same fault.
Why it matters: Every rank of each group does come, so each group by itself looks right. All ranks wait until the
  timeout.
Deciding evidence: There is a cycle of ranks over more than one group. Each rank waits in a collective that the next
  rank has not entered.
Not to be confused with: M04, where the order differs within one group; M17, where a send or a receive is part of the
  cycle; N01, where the last rank waits for nobody.
What to do: Use groups in the same order on every rank, also in hooks and threads. Or issue the calls with
  async_op=True and wait for them afterwards. With NCCL, groups that share ranks must not run at the same time at all.
How to inject it: examples/broken/m16_crossed_groups.py
Source: torch.distributed.new_group, the warning on several process groups.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    circle = circle_of_waits(case)
    if len({wait.group for wait in circle}) < 2 or any(wait.is_to_one_peer for wait in circle):
        return
    still = case.stall
    yield CauseFinding(
        code="M16",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=_out_of_step(case, circle),
        since_step=still.since_step if still is not None else None,
        saw=tuple(_said(wait, circle[(at + 1) % len(circle)]) for at, wait in enumerate(circle)),
        ruled_out=("a late rank: every rank in the cycle waits for another",),
        next=(
            "enter the groups in one order on every rank: "
            + " and ".join(dict.fromkeys(_line(wait) for wait in circle)),
            "or issue the calls with async_op=True, and wait for them afterwards",
        ),
    )


def _out_of_step(case: Case, circle: Sequence[Wait]) -> tuple[int, ...]:
    """The ranks that wait in the group with the fewest waiting ranks; all ranks of the cycle if the groups have equally many."""
    waits = all_waits(case)
    inside = Counter(wait.group for wait in waits)
    fewest = min(inside.values())
    if fewest == max(inside.values()):
        return tuple(sorted(wait.rank for wait in circle))
    return tuple(sorted(wait.rank for wait in waits if inside[wait.group] == fewest))


def _said(wait: Wait, awaited: Wait) -> str:
    what = call_text(wait.call) if wait.call is not None else "a collective"
    return f"rank {wait.rank} waits in {what}, collective {wait.index} of group {wait.group}, for rank {awaited.rank}"


def _line(wait: Wait) -> str:
    return str(wait.call.site) if wait.call is not None and wait.call.site is not None else f"group {wait.group}"


RULE = Cause(code="M16", title=TITLE, page=PAGE, find=find, sure_by=(Ground.CALLS,))
