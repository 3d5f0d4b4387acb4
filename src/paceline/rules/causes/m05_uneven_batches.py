"""M05: a rank has run out of batches and is done, while the others still exchange in their steps."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Divergence, Level
from paceline.diagnosis.ends import crash, early_ends, ended, log_command
from paceline.diagnosis.loading import Loading, loading_of, peers_of, whole_epochs
from paceline.facts import RankExit
from paceline.findings import Cause, CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

TITLE = "uneven number of batches"
PAGE = """\
Uneven number of batches

What it means: One rank's DataLoader gave fewer batches than the others': unequal shards, no drop_last, a sampler that is not
  distributed. It ended with 0, or went on to what comes after the training, and the others wait in a step that it never makes.
Why it matters: The rank that ends well is the one to look at; those that fail with "Connection closed by peer" are right.
Deciding evidence: A rank whose program ran to its end after all batches of its loader, with as many steps as batches, while the
  loaders of the others are longer; or that is in a barrier after its last batch while they are in a step.
Not to be confused with: C01 (a code that is not 0), M07 (it took batches without making steps), M11 (it stopped in the middle of its
  loader).
What to do: DistributedSampler with drop_last=True, shards of equal size, or `with torch.distributed.algorithms.Join([model])`.
How to inject it: examples/broken/m05_uneven.py
Source: torch.distributed.algorithms.Join.
"""


_AFTER_TRAINING = ("barrier", "monitored_barrier", "gather", "all_gather_object", "allgather")


def find(case: Case) -> Iterator[CauseFinding]:
    for exit in early_ends(case):
        own = loading_of(case, exit.rank)
        record = case.ranks.get(exit.rank)
        if record is None or record.left_by in (0, 2) or (own is not None and (own.skipped or not whole_epochs(own))):
            continue
        yield _ended(case, exit, own)
    for divergence in case.divergences:
        yield from _in_a_barrier(case, divergence)


def _ended(case: Case, exit: RankExit, own: Loading | None) -> CauseFinding:
    steps = case.ranks[exit.rank].step_count
    others = peers_of(case, exit.rank)
    longer = own is not None and any(peer.batches > own.batches for peer in others)
    sure = Confidence.HIGH if longer else Confidence.LIKELY if own is not None else Confidence.UNCLEAR
    return crash(
        case,
        [exit],
        code="M05",
        title=TITLE,
        level=Level.DIVERGENCE,
        confidence=sure,
        saw=(
            f"{ended(exit)} after {steps} steps, while the others still exchange",
            f"its loader has {own.batches} batches, and it took them all" if own is not None else "",
            *(f"the loader of rank {peer.rank} has {peer.batches}" for peer in others[:2] if longer),
        ),
        next=(
            "give every rank as many batches: DistributedSampler(..., drop_last=True), or wrap the loop in Join([model])",
            log_command(case, exit.rank),
        ),
    )


def _in_a_barrier(case: Case, divergence: Divergence) -> Iterator[CauseFinding]:
    done = [rank for rank, call in divergence.calls.items() if call.operation in _AFTER_TRAINING]
    training = [rank for rank in divergence.calls if rank not in done]
    finished = [
        rank for rank in done if (own := loading_of(case, rank)) is not None and whole_epochs(own) and not own.skipped
    ]
    if not finished or not training or finished != done:
        return
    lengths = {rank: own.batches for rank in (*done, *training) if (own := loading_of(case, rank)) is not None}
    if not any(lengths.get(rank, 0) > lengths[finished[0]] for rank in training):
        return
    yield CauseFinding(
        code="M05",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=tuple(sorted(finished)),
        since_step=divergence.since_step,
        saw=(
            f"{named_ranks(finished)} took all {lengths[finished[0]]} batches and called {divergence.calls[finished[0]].operation}",
            f"{named_ranks(training)} are in {divergence.calls[training[0]].operation} of a step; "
            f"the loader of rank {training[0]} has {lengths.get(training[0], 'more')} batches",
        ),
        next=(
            "give every rank as many batches: DistributedSampler(..., drop_last=True), or wrap the loop in Join([model])",
        ),
    )


RULE = Cause(code="M05", title=TITLE, page=PAGE, find=find, beats=("M01", "M06"))
