"""M14: the optimizer holds parameters that are not those of the model that trains: its steps change nothing."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, Replica
from paceline.diagnosis.desync.replicas import SURE_STEP
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "the optimizer holds other parameters than the model"
PAGE = """\
The optimizer holds other parameters than the model

What it means: The optimizer was made from a model that was replaced afterwards: the model was copied (copy.deepcopy),
  built a second time, or wrapped by something that makes new parameters (FSDP, a conversion). `model.to(device)`
  alone keeps the parameters.
Why it matters: The loss does not fall, and nothing fails. Gradients are computed and exchanged, but no optimizer step
  uses them.
Deciding evidence: When the optimizer steps, none of its parameters has a gradient, and none of them belongs to a DDP
  model of the rank.
Not to be confused with: M12, where gradients are used and not exchanged; M15, where single parameters are left out of
  the exchange.
What to do: Make the optimizer last, from the model that is trained: `optimizer = SGD(ddp_model.parameters(), ...)`.
How to inject it: examples/broken/m14_other_parameters.py
Source: torch.optim.Optimizer, param_groups.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    newest = {rank: marks[-1] for rank, marks in case.replicas.items() if marks[-1].step >= SURE_STEP}
    ranks = tuple(sorted(rank for rank, mark in newest.items() if _changes_nothing(mark)))
    if not ranks:
        return
    mark = newest[ranks[0]]
    yield CauseFinding(
        code="M14",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=ranks,
        confidence=Confidence.HIGH if mark.models else Confidence.LIKELY,
        since_step=0,
        saw=(
            f"after step {mark.step} none of the {mark.held} parameters of {mark.optimizer} on {named_ranks(ranks)} has a gradient",
            *(
                (f"none of them belongs to the DDP model, which was called {mark.forwards} times or more",)
                if mark.models
                else ()
            ),
        ),
        ruled_out=("frozen parameters: the model's own are not those that the optimizer holds",) if mark.models else (),
        next=("make the optimizer last, from the model that is called: SGD(model.parameters(), ...)",),
    )


def _changes_nothing(mark: Replica) -> bool:
    """Whether none of the optimizer's parameters has a gradient or belongs to a model.

    Several optimizers may step in turn, and a wrapper other than DDP may set gradients in its own way: then the answer is no.
    """
    all_foreign = mark.foreign == mark.held if mark.models else mark.foreign is None
    return mark.optimizers == 1 and mark.held > 0 and mark.with_gradient == 0 and all_foreign


RULE = Cause(code="M14", title=TITLE, page=PAGE, find=find, sure_by=(Ground.MARKS,))
