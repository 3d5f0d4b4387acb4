"""What each rank took from its DataLoader, and whether it made a step of every batch. Pure."""

from dataclasses import dataclass
from statistics import median_low

from paceline.diagnosis.case import Case

# A loader that reads ahead runs out before the steps of its last batches.
_READ_AHEAD_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Batches and steps of one rank."""

    rank: int
    """Global rank."""
    batches: int
    """Length of its loader."""
    taken: int
    """Batches that it has taken."""
    steps: int
    """Steps that it has made."""
    skipped: int = 0
    """Batches without a step, compared with the other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOut:
    """The moment at which a rank's DataLoader had no more batches."""

    steps: int
    """Steps that the rank had made."""
    batches: int
    """Batches that it had taken."""


def ran_out(case: Case, rank: int) -> RanOut | None:
    """When the rank's loader had no more batches; None: it had, or it is not known.

    None also if the rank has begun to train with another epoch's batches since.
    """
    record, out = case.ranks.get(rank), _last_ran_out(case, rank)
    if record is None or record.step_count is None or out is None:
        return None
    return out if record.step_count - out.steps <= _READ_AHEAD_STEPS else None


def has_more(case: Case, rank: int, out: RanOut) -> bool:
    """Whether this rank's loader has given it more batches than the loader of a rank that ran out.

    Holds:   of two ranks that both came to the end of equally many batches, neither has more
    """
    record, own = case.ranks.get(rank), _last_ran_out(case, rank)
    taken = record.batches_taken if record is not None else None
    return taken is not None and taken > out.batches and (own is None or own.steps != out.steps)


def loading_of(case: Case, rank: int) -> BatchCounts | None:
    """The counts of one rank; None if it used no DataLoader of known length or its steps were not counted."""
    own = _bare(case, rank)
    if own is None:
        return None
    # A rank that waits in a step has taken the batch of that step, and the step is not counted yet.
    spare = [other.taken - other.steps - 1 for other in peers_of(case, rank)]
    usual = max(median_low(spare), 0) if spare else max(own.taken - own.steps, 0)
    return BatchCounts(
        rank=rank,
        batches=own.batches,
        taken=own.taken,
        steps=own.steps,
        skipped=max(own.taken - own.steps - usual, 0),
    )


def peers_of(case: Case, rank: int) -> list[BatchCounts]:
    """The other ranks that use a loader, in order."""
    found = (_bare(case, other) for other in case.ranks if other != rank)
    return [loading for loading in found if loading is not None]


def whole_epochs(loading: BatchCounts) -> bool:
    """Whether it has taken all batches of its loader, once or several times."""
    return loading.taken > 0 and loading.taken % loading.batches == 0


def _last_ran_out(case: Case, rank: int) -> RanOut | None:
    record = case.ranks.get(rank)
    if record is None or record.ran_out_steps is None or record.ran_out_batches is None:
        return None
    return RanOut(steps=record.ran_out_steps, batches=record.ran_out_batches)


def _bare(case: Case, rank: int) -> BatchCounts | None:
    record = case.ranks.get(rank)
    if record is None or not record.loader_batches or record.batches_taken is None or record.step_count is None:
        return None
    return BatchCounts(rank=rank, batches=record.loader_batches, taken=record.batches_taken, steps=record.step_count)
