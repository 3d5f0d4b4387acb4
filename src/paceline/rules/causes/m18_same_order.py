"""M18: a DistributedSampler shuffles without set_epoch, so every epoch has the same order."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, DataSampler, Level
from paceline.diagnosis.desync.replicas import made_at
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "the same order of samples in every epoch"
PAGE = """\
The same order of samples in every epoch

What it means: A DistributedSampler shuffles by its seed and its epoch, and the script does not call `set_epoch`. In
  each epoch the same ranks get the same samples in the same order and in the same batches.
Why it matters: Nothing fails. The model learns from fewer different batches and often ends a little worse.
Deciding evidence: Training steps were made in two successive passes over a loader, and its sampler's epoch did not
  change. An evaluation makes no steps, so its order does not count; neither does a look at a first batch before the
  epoch is set.
Not to be confused with: M19, where the shards of the ranks overlap.
What to do: Call `sampler.set_epoch(epoch)` at the beginning of every epoch, on every rank.
How to inject it: examples/broken/m18_same_order.py
Source: torch.utils.data.distributed.DistributedSampler.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    found = [sampler for sampler in case.samplers if _is_the_same_again(sampler)]
    ranks = tuple(sorted({sampler.rank for sampler in found}))
    if not ranks:
        return
    one = found[0]
    yield CauseFinding(
        code="M18",
        title=TITLE,
        level=Level.QUALITY,
        ranks=ranks,
        saw=(
            f"the sampler of rank {one.rank} shuffles by its epoch: {one.epoch} in pass {one.turn}, as in the last pass that trained",
            f"{one.steps_before} steps were made in that pass, and the same batches come again",
            *made_at("the sampler", one.made_at),
        ),
        next=("call sampler.set_epoch(epoch) at the beginning of every epoch, on every rank",),
    )


def _is_the_same_again(sampler: DataSampler) -> bool:
    return sampler.shuffle and sampler.epoch == sampler.epoch_before and bool(sampler.steps_before)


RULE = Cause(code="M18", title=TITLE, page=PAGE, find=find, levels=(Level.QUALITY,), sure_by=(Ground.MARKS,))
