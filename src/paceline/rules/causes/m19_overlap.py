"""M19: the samplers of the ranks contradict each other: some samples are read twice, others not at all."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from paceline.diagnosis.case import Case, DataSampler, Level
from paceline.diagnosis.desync.replicas import made_at
from paceline.findings import Cause, CauseFinding, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "shards of the data overlap"
PAGE = """\
Shards of the data overlap

What it means: The DistributedSamplers of the ranks cut one data set into shards, but with different numbers. Two
  ranks with the same shard number (`rank=local_rank` on several hosts) read the same samples. With different seeds or
  epochs each rank shuffles in its own way, and the shards overlap.
Why it matters: Some samples count twice in a step, and others are never read. Nothing fails.
Deciding evidence: The samplers report as many shards as there are ranks. For the same loader and pass, one shard
  number occurs twice, or some rank shuffles with another seed or epoch.
Not to be confused with: M18, where every epoch has the same order; ranks of one tensor-parallel group, which rightly
  read the same samples: their samplers report fewer shards than there are ranks.
What to do: DistributedSampler(dataset) without arguments takes its numbers from the process group;
  rank=dist.get_rank() is the same. Use one seed on every rank, and call set_epoch on every rank.
How to inject it: examples/broken/m19_seeds.py, examples/broken/m19_shard_twice.py
Source: torch.utils.data.distributed.DistributedSampler.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    turns: dict[tuple[int, int], dict[int, DataSampler]] = defaultdict(dict)
    for sampler in case.samplers:
        turns[sampler.loader, sampler.turn][sampler.rank] = sampler
    for of_turn in turns.values():
        found = _judged(of_turn) if len(of_turn) == case.world_size else None
        if found is not None:
            yield found
            return


def _judged(samplers: Mapping[int, DataSampler]) -> CauseFinding | None:
    """Findings about the samplers of all ranks in one pass over one loader."""
    if len({(each.samples, each.replicas, each.shuffle) for each in samplers.values()}) > 1:
        return None
    some = next(iter(samplers.values()))
    if some.replicas != len(samplers) or some.replicas < 2:
        return None
    return _same_shard(samplers) or (_other_order(samplers) if some.shuffle else None)


def _same_shard(samplers: Mapping[int, DataSampler]) -> CauseFinding | None:
    shards = Counter(sampler.shard for sampler in samplers.values())
    shard, count = shards.most_common(1)[0]
    if count == 1:
        return None
    sharing = [rank for rank, sampler in samplers.items() if sampler.shard == shard]
    return _finding(
        sharing,
        samplers[sharing[0]],
        f"{named_ranks(sharing)} read shard {shard} of {len(samplers)}, and some other shard is read by nobody",
    )


def _other_order(samplers: Mapping[int, DataSampler]) -> CauseFinding | None:
    for name in ("seed", "epoch"):
        values = {rank: getattr(sampler, name) for rank, sampler in sorted(samplers.items())}
        usual = Counter(values.values()).most_common(1)[0][0]
        odd = [rank for rank, value in values.items() if value != usual]
        if odd:
            shown = ", ".join(f"{value} on rank {rank}" for rank, value in list(values.items())[:4])
            return _finding(
                odd if len(odd) < len(values) / 2 else list(values),
                samplers[odd[0]],
                f"they shuffle by another {name}: {shown}",
            )
    return None


def _finding(ranks: list[int], sampler: DataSampler, seen: str) -> CauseFinding:
    return CauseFinding(
        code="M19",
        title=TITLE,
        level=Level.QUALITY,
        ranks=tuple(sorted(ranks)),
        saw=(
            seen,
            "each rank cuts the data by its own numbers, so that samples are read twice and others not at all",
            *made_at("the sampler", sampler.made_at),
        ),
        next=(
            "let the sampler take its numbers from the process group: DistributedSampler(dataset)",
            "one seed on every rank, and sampler.set_epoch(epoch) on every rank",
        ),
    )


RULE = Cause(code="M19", title=TITLE, page=PAGE, find=find, levels=(Level.QUALITY,), sure_by=(Ground.MARKS,))
