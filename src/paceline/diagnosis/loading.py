"""What each rank took from its DataLoader, and whether it made a step of everything it took. Pure."""

from dataclasses import dataclass
from statistics import median_low

from paceline.diagnosis.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """One rank. `batches`: the length of its loader; `skipped`: batches taken for which, compared with the others, no step was made."""

    rank: int
    batches: int
    taken: int
    steps: int
    skipped: int = 0


def loading_of(case: Case, rank: int) -> Loading | None:
    """None where the rank used no DataLoader of known length, or nobody counted its steps."""
    own = _bare(case, rank)
    if own is None:
        return None
    # A rank that waits in a step has taken the batch of that step, which is not yet counted.
    spare = [other.taken - other.steps - 1 for other in peers_of(case, rank)]
    usual = max(median_low(spare), 0) if spare else max(own.taken - own.steps, 0)
    return Loading(
        rank=rank,
        batches=own.batches,
        taken=own.taken,
        steps=own.steps,
        skipped=max(own.taken - own.steps - usual, 0),
    )


def peers_of(case: Case, rank: int) -> list[Loading]:
    """The other ranks that use a loader, in order."""
    found = (_bare(case, other) for other in case.ranks if other != rank)
    return [loading for loading in found if loading is not None]


def whole_epochs(loading: Loading) -> bool:
    """Whether it has taken all batches of its loader, once or several times."""
    return loading.taken > 0 and loading.taken % loading.batches == 0


def _bare(case: Case, rank: int) -> Loading | None:
    record = case.ranks.get(rank)
    if record is None or not record.loader_batches or record.batches_taken is None or record.step_count is None:
        return None
    return Loading(rank=rank, batches=record.loader_batches, taken=record.batches_taken, steps=record.step_count)
