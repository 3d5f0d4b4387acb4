"""M15: DDP does not exchange some trained parameters, because they were added or unfrozen after DDP was made."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.desync.replicas import SURE_STEP
from paceline.findings import Cause, CauseFinding, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "parameters that DDP does not exchange"
PAGE = """\
Parameters that DDP does not exchange

What it means: DDP looks at the parameters once, when it is made. A layer may be replaced or added afterwards, or its
  requires_grad may be turned on afterwards (gradual unfreezing). Each rank computes gradients for such a layer, and
  DDP never averages them.
Why it matters: That part of the model differs from rank to rank. The difference grows with each step, without an
  error.
Deciding evidence: Parameters of DDP's module have gradients of their own, but when DDP was made they did not exist or
  required no gradient. Parameters that the script told DDP to ignore do not count.
Not to be confused with: M08, where DDP waits for a gradient that never comes; M12, where nothing is exchanged.
What to do: Change the model first and wrap it afterwards. Wrap it anew after each unfreezing:
  DistributedDataParallel(model.module).
How to inject it: examples/broken/m15_new_head.py, examples/broken/m15_unfrozen.py
Source: torch.nn.parallel.DistributedDataParallel, its warning about parameters that change after wrapping.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    newest = {rank: marks[-1] for rank, marks in case.replicas.items() if marks[-1].step >= SURE_STEP}
    ranks = tuple(sorted(rank for rank, mark in newest.items() if mark.unexchanged))
    if not ranks or (case.world_size or 0) < 2:
        return
    mark = newest[ranks[0]]
    earlier = [marked.step for marked in case.replicas[ranks[0]] if not marked.unexchanged]
    names = ", ".join(mark.unexchanged_names) + (
        ", ..." if (mark.unexchanged or 0) > len(mark.unexchanged_names) else ""
    )
    yield CauseFinding(
        code="M15",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=ranks,
        since_step=max(earlier, default=0),
        saw=(
            f"after step {mark.step}, {mark.unexchanged} parameters on {named_ranks(ranks)} have gradients"
            f" that DDP does not exchange: {names}",
            "when DDP was made they did not exist, or required no gradient",
        ),
        next=(
            "change or unfreeze the model first and wrap it then, or wrap it anew: DistributedDataParallel(model.module)",
            "and make the optimizer after that",
        ),
    )


RULE = Cause(code="M15", title=TITLE, page=PAGE, find=find, sure_by=(Ground.MARKS,))
