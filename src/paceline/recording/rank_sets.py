"""Sets of ranks as people write them: "0-3,7"."""

import re
from collections.abc import Iterable, Mapping, Sequence

from paceline.spelling import plural

_PART = re.compile(r"(\d+)(?:-(\d+))?\Z")


def spell_ranks(ranks: Iterable[int]) -> str:
    """Ranks in order, neighbours folded: "0-3,7".

    Holds: parse_ranks(spell_ranks(ranks)) == frozenset(ranks)
    """
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def named_ranks(ranks: Iterable[int], most: int = 8) -> str:
    """The same in a sentence: "rank 3", "ranks 0-3,7"; with many ranges the first ones and the number of the others.

    Holds: named_ranks([0, 2, 4], most=2) == "ranks 0,2 and 1 more"
    """
    known = sorted(set(ranks))
    parts = spell_ranks(known).split(",")
    more = len(known) - len(parse_ranks(",".join(parts[:most]))) if len(parts) > most else 0
    return f"{plural(len(known), 'rank')} {','.join(parts[:most])}" + (f" and {more} more" if more else "")


def parse_ranks(text: str) -> frozenset[int]:
    """The ranks that "3,8-11" names.

    Raises:  ValueError: anything that is not numbers and rising ranges
    """
    ranks: set[int] = set()
    for part in text.split(","):
        match = _PART.match(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is neither a rank nor a range of ranks")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range {part.strip()!r} runs backwards")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def newest_common(steps_by_rank: Mapping[int, Sequence[int]]) -> int | None:
    """The newest step that every rank has kept; None: there is none.

    Holds:   newest_common({0: (7, 6), 1: (6, 5)}) == 6; newest_common({}) is None
    """
    common = set.intersection(*(set(steps) for steps in steps_by_rank.values())) if steps_by_rank else set()
    return max(common, default=None)
