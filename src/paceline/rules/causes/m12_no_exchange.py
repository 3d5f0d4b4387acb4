"""M12: the ranks train but exchange no gradients, so each trains a model of its own."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level, Replica
from paceline.diagnosis.desync.replicas import first_and_last, made_at
from paceline.findings import Cause, CauseFinding, Confidence, Ground

TITLE = "the ranks exchange no gradients"
# Averaging parameters every few hundred steps is a valid way to train.
_LONGEST_PAUSE_STEPS = 1024
PAGE = """\
The ranks exchange no gradients

What it means: Every rank makes its steps alone. Either the script has no DistributedDataParallel, so the same
  training runs several times. Or the script made a DDP model but calls the model inside it: `model.module(x)`, or the
  variable from before wrapping.
Why it matters: Nothing fails. The job takes as long as on one rank, and of several different models one is kept.
Deciding evidence: After 16 or more steps there is no process group. Or after 1,024 steps no rank has issued a
  collective since its first step; the number is high because averaging parameters now and then is a valid way to
  train. Or DDP's forward pass was never called, and the script has issued no collective of its own. If a library is
  loaded that exchanges in another way (Horovod, mpi4py), paceline reports nothing.
Not to be confused with: M15, where most parameters are exchanged and some are not; a hyperparameter search in which
  each rank should train alone.
What to do: Wrap the model with `model = DistributedDataParallel(model)`, call the wrapped model, and give the
  DataLoader a DistributedSampler.
How to inject it: examples/broken/m12_alone.py, examples/broken/m12_bypassed.py
Source: torch.nn.parallel.DistributedDataParallel.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    marks = first_and_last(case)
    if marks is None:
        return
    first, last = marks
    everybody = tuple(last.values())
    begins, ends = (next(iter(each.values())).step for each in marks)
    if any(mark.libraries or not mark.with_gradient for mark in everybody):
        return
    # DDP logs no forward pass inside `no_sync`, where a script may exchange the gradients itself.
    if all(mark.models and mark.forwards == 0 and mark.calls == first[rank].calls for rank, mark in last.items()):
        why = (
            "DDP was made on every rank, and its forward pass was never called",
            *made_at("the DDP model", everybody[0].made_at),
        )
        yield _finding(
            case, ends, why, "call the DDP model itself, not model.module and not the model that was wrapped"
        )
    elif not any(mark.models for mark in everybody) and _is_alone(first, last):
        where = (
            "no process group was made"
            if not any(mark.groups for mark in everybody)
            else "its process group was not used"
        )
        why = (f"no rank has issued a collective since step {begins}: {where}",)
        wrap = "wrap the model: DistributedDataParallel(model), after init_process_group, and shard the data by a DistributedSampler"
        yield _finding(case, ends, why, wrap, Confidence.LIKELY)


def _is_alone(first: dict[int, Replica], last: dict[int, Replica]) -> bool:
    """Whether every rank could count its collectives and counted none in between."""
    return all(
        mark.calls == first[rank].calls
        and (
            not mark.groups
            or (_is_long(mark) and mark.exchanges is not None and mark.exchanges == first[rank].exchanges)
        )
        for rank, mark in last.items()
    )


def _is_long(mark: Replica) -> bool:
    return mark.step >= _LONGEST_PAUSE_STEPS


def _finding(
    case: Case, step: int, why: tuple[str, ...], wrap: str, confidence: Confidence = Confidence.HIGH
) -> CauseFinding:
    return CauseFinding(
        code="M12",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=tuple(sorted(case.replicas)),
        confidence=confidence,
        saw=(*why, f"all {len(case.replicas)} ranks have made {step} steps and more, with gradients of their own"),
        next=(
            wrap,
            *(
                ("if every rank is meant to train alone, nothing is wrong",)
                if confidence is not Confidence.HIGH
                else ()
            ),
        ),
    )


RULE = Cause(code="M12", title=TITLE, page=PAGE, find=find, sure_by=(Ground.MARKS, Ground.WORDS))
