"""M15: DDP does not exchange some trained parameters: they were added or unfrozen after DDP was made, or are in no DDP model."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, Replica
from paceline.diagnosis.desync.replicas import SURE_STEP, first_and_last, made_at
from paceline.findings import Cause, CauseFinding, Confidence, Ground
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
  required no gradient. Parameters that the script told DDP to ignore do not count. Or one optimizer holds parameters of a
  DDP model and others of none, all have gradients, and the script issues too few collectives to exchange them at each step.
Not to be confused with: M08, where DDP waits for a gradient that never comes; M12, where nothing is exchanged.
What to do: Change the model first and wrap it afterwards. Wrap it anew after each unfreezing:
  DistributedDataParallel(model.module).
How to inject it: examples/broken/m15_new_head.py, examples/broken/m15_unfrozen.py
Source: torch.nn.parallel.DistributedDataParallel, its warning about parameters that change after wrapping.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    yield from _changed_after(case)
    yield from _beside_the_model(case)


def _beside_the_model(case: Case) -> Iterator[CauseFinding]:
    """Parameters of the optimizer that are in no DDP model, beside some that are, with gradients that nobody exchanges."""
    marks = first_and_last(case)
    if marks is None:
        return
    first, last = marks
    if not all(_leaves_some_out(mark, first[rank]) for rank, mark in last.items()):
        return
    mark = last[min(last)]
    yield CauseFinding(
        code="M15",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=tuple(sorted(last)),
        confidence=Confidence.LIKELY,
        since_step=0,
        saw=(
            f"after step {mark.step}, {mark.foreign} of the optimizer's {mark.held} parameters on {named_ranks(last)} have gradients"
            " and belong to no DDP model",
            "no call of the script exchanges gradients at each step",
            *made_at("the DDP model", mark.made_at),
        ),
        next=(
            "wrap what they belong to as well, such as a loss with weights of its own: criterion = DistributedDataParallel(criterion)",
            "or make it a part of the module that is wrapped",
        ),
    )


def _leaves_some_out(mark: Replica, first: Replica) -> bool:
    if mark.calls is None or first.calls is None:
        return False
    # DDP's own exchanges are among the calls: at least one a step, however many forward passes accumulate gradients. They are
    # counted by samples, of which the newest may not be among them yet.
    steps = mark.step - first.step
    of_the_script = mark.calls - first.calls - min(steps, (mark.forwards or 0) - (first.forwards or 0))
    exchanged_by_hand = 8 * of_the_script >= steps
    return (
        mark.models > 0
        and bool(mark.forwards)
        and not mark.libraries
        and mark.optimizers == 1
        and mark.with_gradient == mark.held
        and 0 < (mark.foreign or 0) < mark.held
        and not exchanged_by_hand
    )


def _changed_after(case: Case) -> Iterator[CauseFinding]:
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
            *made_at("the DDP model", mark.made_at),
        ),
        next=(
            "change or unfreeze the model first and wrap it then, or wrap it anew: DistributedDataParallel(model.module)",
            "and make the optimizer after that",
        ),
    )


RULE = Cause(code="M15", title=TITLE, page=PAGE, find=find, sure_by=(Ground.MARKS,))
