"""What kind of desync a divergence is: another operation, another shape, another order, one call too many. Pure.

If two ranks differ at one index, either they issued different calls there, or one of them has reached the index with one
call more or less. The calls before and after decide: order and excess are tested first, otherwise it is a plain substitution.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from paceline.diagnosis.case import Call, Case, Divergence, Level, name_of_recorder
from paceline.diagnosis.desync.calls import crossing_end, differences, place
from paceline.diagnosis.stacks import site_of, users_frame
from paceline.findings import CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks

_LONGEST_EXCESS = 8


class DesyncKind(StrEnum):
    """EXTRA: a call that the others never make; MISSING: one that all others make."""

    ORDER = "order"
    EXTRA = "extra"
    MISSING = "missing"
    OPERATION = "operation"
    SHAPE = "shape"
    VALUES = "values"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """How the ranks of a divergence fall into two sides."""

    kind: DesyncKind
    """What kind of desync it is."""
    odd: tuple[int, ...]
    """Ranks that stand out; all ranks if neither side does."""
    usual: tuple[int, ...]
    """The others."""
    told_apart: bool
    """One side stands out."""
    sure: bool
    """The calls that follow prove this kind."""
    mine: tuple[Call, ...]
    """Calls of one odd rank from the divergence on."""
    theirs: tuple[Call, ...]
    """Calls of one of the others from the divergence on."""
    seen_before: bool
    """Both calls were made before, by some rank."""
    differs: tuple[str, ...]
    """What differs, in words."""

    @property
    def blamed(self) -> tuple[int, ...]:
        """Ranks to name: those that stand out, or all if none does."""
        return self.odd if self.told_apart else tuple(sorted((*self.odd, *self.usual)))


def disagreements(case: Case, *kinds: DesyncKind) -> Iterator[tuple[Divergence, Disagreement]]:
    """The divergences of the case that are of these kinds. Calls from Python count more than the flight recorder's of the same group."""
    told = {divergence.group for divergence in case.divergences if divergence.basis == "calls"}
    for divergence in case.divergences:
        if divergence.basis != "calls" and divergence.group in told:
            continue
        found = disagreement_of(divergence)
        if found is not None and found.kind in kinds:
            yield (divergence, found) if divergence.basis == "calls" else _with_sites(case, divergence, found)


def disagreement_of(divergence: Divergence) -> Disagreement | None:
    """The desync; None if the windows do not have two ranks that differ."""
    sides = _sides(divergence)
    shown = [[rank for rank in side if rank in divergence.windows] for side in sides]
    if len(sides) < 2 or not shown[0] or not shown[1]:
        return None
    odd, usual = sides[0], tuple(rank for side in sides[1:] for rank in side)
    before = _before(divergence)
    told_apart = len(odd) < len(sides[1])
    if not told_apart:
        new_here = [_is_new(divergence, shown[at][0], before) for at in (0, 1)]
        if new_here == [False, True]:
            odd, usual, shown = sides[1], tuple(r for side in (sides[0], *sides[2:]) for r in side), shown[::-1]
        told_apart = new_here[0] != new_here[1]
    mine, theirs = (_from(divergence, side[0]) for side in shown[:2])
    kind, sure = _kind(divergence, shown[0][0], shown[1][0], before)
    return Disagreement(
        kind=kind,
        odd=tuple(sorted(odd)),
        usual=tuple(sorted(usual)),
        told_apart=told_apart,
        sure=sure,
        mine=mine,
        theirs=theirs,
        seen_before={_identity(mine[0]), _identity(theirs[0])} <= before,
        differs=differences(mine[0], theirs[0]),
    )


def _with_sites(case: Case, divergence: Divergence, found: Disagreement) -> tuple[Divergence, Disagreement]:
    """Fills in what the recorder lacks from the ranks' own newest calls, if these are the same calls."""
    mine, theirs = (
        _with_site(case, ranks[0], calls) for ranks, calls in ((found.odd, found.mine), (found.usual, found.theirs))
    )
    steps = [
        heartbeat.step_count
        for rank in found.odd
        if (heartbeat := case.heartbeats.get(rank)) and heartbeat.step_count is not None
    ]
    return replace(divergence, since_step=min(steps, default=None)), replace(found, mine=mine, theirs=theirs)


def _with_site(case: Case, rank: int, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    heartbeat = case.heartbeats.get(rank)
    last = heartbeat.last_call if heartbeat is not None else None
    # The newest of both is the call that the rank is in.
    if last is None or len(calls) != 1 or last.operation != calls[0].operation:
        return calls
    # DDP's own exchange has an operation of the same name.
    if None not in (last.shape, calls[0].shape) and last.shape != calls[0].shape:
        return calls
    return (replace(calls[0], site=last.site),)


def call_text(call: Call) -> str:
    """ "all_reduce(float32[4], SUM) at train.py:41 in step"."""
    shape = "" if call.shape is None else f"[{', '.join(map(str, call.shape))}]"
    parts = [f"{call.dtype}{shape}" if call.dtype else shape, call.reduce_op or ""]
    role = "peer" if call.operation in ("send", "recv") else "root"
    parts.append(f"{role} {call.root}" if call.root is not None else "")
    what = f"{call.operation}({', '.join(part for part in parts if part)})"
    return f"{what} at {call.site}" if call.site is not None else what


def seen_at(divergence: Divergence, found: Disagreement) -> tuple[str, ...]:
    """The calls of both sides, and the step after which they were issued."""
    where = f"call {divergence.index} of group {divergence.group}" + (
        f", by {name_of_recorder(divergence.recorder)}" if divergence.recorder else ""
    )
    step = "" if divergence.since_step is None else f", after step {divergence.since_step}"
    return (
        f"{where}{step}: {named_ranks(found.odd)}: {call_text(found.mine[0])}",
        f"{where}: {named_ranks(found.usual)}: {call_text(found.theirs[0])}",
        *(() if found.told_apart else ("paceline cannot tell which of the two is intended from the calls",)),
    )


def whereabouts(case: Case, found: Disagreement) -> tuple[str, ...]:
    """Where the ranks stand whose call no line of Python made, such as an exchange of DDP: by a snapshot, which may be later."""
    sides = ((found.odd, found.mine), (found.usual, found.theirs))
    return tuple(
        f"rank {ranks[0]} stands at {site_of(users)}"
        for ranks, calls in sides
        if calls[0].site is None
        and (snapshot := case.snapshots.get(ranks[0])) is not None
        and (users := users_frame(snapshot)) is not None
    )


def differing(
    divergence: Divergence,
    found: Disagreement,
    *,
    code: str,
    title: str,
    saw: Sequence[str],
    next: Sequence[str],
    ruled_out: Sequence[str] = (),
    confidence: Confidence | None = None,
) -> CauseFinding:
    """A finding about ranks that issued different calls, with what is the same in all of them.

    The confidence is high if the calls show both the kind and the wrong side, unless the rule says otherwise.
    """
    surely = Confidence.HIGH if found.sure and found.told_apart else Confidence.LIKELY
    return CauseFinding(
        code=code,
        title=title,
        level=Level.DIVERGENCE,
        ranks=found.blamed,
        confidence=confidence or surely,
        since_step=divergence.since_step,
        saw=tuple(saw),
        ruled_out=tuple(ruled_out),
        next=tuple(next),
    )


def places(found: Disagreement) -> str:
    """Both lines of the user's code, in a form that editors open."""
    lines = dict.fromkeys(str(call.site) for call in (found.mine[0], found.theirs[0]) if call.site is not None)
    return " and ".join(lines)


# ------------------------------------------------------------------------------------------------------------ sides


def _sides(divergence: Divergence) -> list[tuple[int, ...]]:
    """Groups of ranks with the same call, the smallest first; of equally large ones, those with the higher ranks first."""
    by_call: dict[tuple[object, ...], list[int]] = defaultdict(list)
    calls = divergence.calls
    plain = any(differences(calls[a], calls[b]) for a in list(calls)[:1] for b in calls)
    for rank, call in calls.items():
        key: tuple[object, ...] = (call.operation, call.reduce_op, call.root, call.dtype, call.shape, call.size_bytes)
        by_call[key if plain else (*key, place(call))].append(rank)
    return sorted((tuple(ranks) for ranks in by_call.values()), key=lambda ranks: (len(ranks), -ranks[0]))


def _before(divergence: Divergence) -> set[tuple[object, ...]]:
    """Calls before the divergence, and pairs of consecutive calls."""
    seen: set[tuple[object, ...]] = set()
    for window in divergence.windows.values():
        earlier = [_identity(call) for call in window if call.index < divergence.index]
        seen.update(earlier)
        seen.update((one, other) for one, other in itertools.pairwise(earlier))
    return seen


def _is_new(divergence: Divergence, rank: int, before: set[tuple[object, ...]]) -> bool:
    """Whether no rank issued this call before, or not after this predecessor."""
    window = [call for call in divergence.windows[rank] if call.index <= divergence.index]
    here = _identity(window[-1])
    if here not in before:
        return True
    return len(window) > 1 and (_identity(window[-2]), here) not in before


def _identity(call: Call) -> tuple[object, ...]:
    return (call.operation, call.reduce_op, call.root, call.dtype, call.shape, place(call))


def _from(divergence: Divergence, rank: int) -> tuple[Call, ...]:
    return tuple(call for call in divergence.windows[rank] if call.index >= divergence.index)


# ------------------------------------------------------------------------------------------------------------- kind


def _kind(divergence: Divergence, odd: int, usual: int, before: set[tuple[object, ...]]) -> tuple[DesyncKind, bool]:
    mine, theirs = _from(divergence, odd), _from(divergence, usual)
    if _changed_places(divergence, odd, usual, in_the_same_step=True):
        return DesyncKind.ORDER, True
    substituted = _aligned(mine[1:], theirs[1:])
    for kind, longer, shorter in ((DesyncKind.EXTRA, mine, theirs), (DesyncKind.MISSING, theirs, mine)):
        if _has_excess(longer, shorter, substituted):
            return kind, True
    if _changed_places(divergence, odd, usual, in_the_same_step=False):
        return DesyncKind.ORDER, True
    one, other = mine[0], theirs[0]
    same_line = one.site is not None and other.site is not None and place(one) == place(other)
    known = [_identity(call) in before for call in (one, other)]
    if all(known) and not substituted:
        # Nothing shows that the other call comes later on either side, as in another order it must.
        follows = (_identity(other), _identity(one)) in before
        return (DesyncKind.MISSING if follows else DesyncKind.EXTRA), False
    if before and known == [False, True] and not same_line and not substituted and not _same_payload(one, other):
        return DesyncKind.EXTRA, False
    return _substitution(one, other), same_line or substituted


def _changed_places(divergence: Divergence, odd: int, usual: int, *, in_the_same_step: bool) -> bool:
    one, other = ({call.index: call for call in divergence.windows[rank]} for rank in (odd, usual))
    return crossing_end(one, other, divergence.index, in_the_same_step=in_the_same_step) is not None


def _aligned(one: Sequence[Call], other: Sequence[Call]) -> bool:
    """Whether two sequences of calls are equal as far as both are known, and at least one call is."""
    pairs = list(zip(one, other, strict=False))
    return bool(pairs) and all(_same_moment(a, b) for a, b in pairs)


def _same_moment(one: Call, other: Call) -> bool:
    steps, sites = (one.step, other.step), (place(one), place(other))
    return (
        not differences(one, other)
        and (None in steps or steps[0] == steps[1])
        and ("" in sites or sites[0] == sites[1])
    )


def _has_excess(longer: Sequence[Call], shorter: Sequence[Call], substituted: bool) -> bool:
    """Whether one side makes a few calls more and then continues like the other, in the same steps."""
    if substituted and longer[0].step is not None:
        return False
    for excess in range(1, min(_LONGEST_EXCESS, len(longer) - 1) + 1):
        if _aligned(longer[excess:], shorter):
            elsewhere = {place(call) for call in shorter}
            return not substituted or (bool(place(longer[0])) and place(longer[0]) not in elsewhere)
    return False


def _same_payload(one: Call, other: Call) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.dtype is not None


def _substitution(one: Call, other: Call) -> DesyncKind:
    differs = differences(one, other)
    if "operation" in differs:
        return DesyncKind.OPERATION
    return DesyncKind.SHAPE if "shape" in differs or "size_bytes" in differs else DesyncKind.VALUES


def only_arranged_otherwise(found: Disagreement) -> bool:
    """Whether the shapes differ but have equally many elements: they are exchanged element by element, perhaps on purpose."""
    one, other = found.mine[0].shape, found.theirs[0].shape
    return one is not None and other is not None and one != other and prod(one) == prod(other)
