"""M13: the optimizers of the ranks have different settings, so that equal gradients make different models."""

from collections.abc import Iterator, Mapping

from paceline.diagnosis.case import Case, Level, Replica
from paceline.diagnosis.desync.replicas import common_steps, different_settings, marks_at, sides
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "optimizer settings differ between ranks"
PAGE = """\
Optimizer settings differ between ranks

What it means: The learning rate or another setting of the optimizer differs between ranks at the same step. Most
  often a scheduler follows the rank's own loss (ReduceLROnPlateau) or steps on some ranks only, or ranks read
  different configurations.
Why it matters: DDP gives every rank the same gradients and compares the parameters only once, when the model is
  wrapped. With different settings the models drift apart, and only one of them is saved.
Deciding evidence: Each rank records the settings of its optimizer's parameter groups after 1, 16, 64, 256, ... steps.
  They differ at the same step.
Not to be confused with: M09, where the models themselves differ; M11, where a rank's own decision ends its loop.
What to do: Decide on a number that all ranks share: all_reduce the validation loss before scheduler.step(loss). Read
  the configuration on rank 0 and broadcast it. This does not repair models that have drifted apart; restart from a
  checkpoint.
How to inject it: examples/broken/m13_learning_rate.py
Source: torch.optim.lr_scheduler.ReduceLROnPlateau; torch.nn.parallel.DistributedDataParallel.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    same = 0
    for step in common_steps(case):
        marks = marks_at(case, step)
        if not _are_replicas(marks):
            return
        found = sides(marks)
        if len(found) > 1:
            yield _finding(case, marks, found, step, same)
            return
        same = step


def _are_replicas(marks: Mapping[int, Replica]) -> bool:
    """Whether all ranks train the same: one optimizer of one kind, over as many parameters."""
    return len({(mark.optimizer, mark.optimizers, mark.held, len(mark.settings)) for mark in marks.values()}) == 1


def _finding(
    case: Case, marks: Mapping[int, Replica], found: list[tuple[int, ...]], step: int, same: int
) -> CauseFinding:
    before = marks_at(case, same)
    odd, usual = found[0], found[-1]
    if (
        len(odd) == len(usual)
        and before
        and _has_changed(before, marks, usual)
        and not _has_changed(before, marks, odd)
    ):
        odd, usual = usual, odd
    told_apart = len(odd) < len(usual) or (bool(before) and not _has_changed(before, marks, usual))
    differing = different_settings(marks[odd[0]], marks[usual[0]])
    wrapped = all(mark.models for mark in marks.values())
    return CauseFinding(
        code="M13",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=odd if told_apart else tuple(sorted((*odd, *usual))),
        confidence=Confidence.HIGH if wrapped and told_apart else Confidence.LIKELY,
        since_step=same,
        saw=(
            f"after step {step}, {marks[odd[0]].optimizer} on {named_ranks(odd)} against {named_ranks(usual)}: {'; '.join(differing[:4])}",
            f"after step {same} they were the same" if same else "they have differed since the first step",
            *(() if told_apart else ("paceline cannot tell which of the two is intended",)),
        ),
        next=(
            "let every rank decide by the same number: all_reduce the loss that a scheduler follows, or broadcast the setting",
            "the models have drifted apart: continue from an earlier checkpoint",
        ),
    )


def _has_changed(before: Mapping[int, Replica], now: Mapping[int, Replica], ranks: tuple[int, ...]) -> bool:
    return any(different_settings(before[rank], now[rank]) for rank in ranks)


RULE = Cause(code="M13", title=TITLE, page=PAGE, find=find, sure_by=(Ground.MARKS,))
