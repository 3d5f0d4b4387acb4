"""M20: ranks wait while they make a process group, because the others make another one, or none."""

from collections.abc import Iterator, Mapping

from paceline.diagnosis.case import Case, Heartbeat, Level, MixedGroup, Stall
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import frames_of, site_of, users_frame
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown
from paceline.recording.rank_sets import named_ranks
from paceline.spelling import plural

TITLE = "ranks that make different process groups"
PAGE = """\
Ranks that make different process groups

What it means: All ranks wait inside torch.distributed's new_group, and never meet. Some ranks made a group that the
  others did not make. torch names groups by counting them, so the next group has another name on these ranks. With
  NCCL a group of all ranks may be made without a wait: then only some wait in new_group, and the others for these.
  Two groups that are made in the same call have one name. If they come to be, their ranks meet the wrong ones.
Why it matters: new_group has the timeout of a rendezvous, half an hour. No rank is late, so nothing else names the call.
  Groups with one name mix up what they exchange: sums are wrong, or ranks fail with an exception that does not say why.
Deciding evidence: A group has one name, and other members on some ranks. Or each rank's main thread is in new_group, and
  the ranks call it from different lines, or they have made different groups with use_local_synchronization=True on
  torch 2.14 or newer. If none of these is seen, but the ranks exchanged before and none is behind, this cause is likely.
  It is likely too if the late ranks are in new_group, and the ranks that wait for them are not, or if all ranks are in
  the first call of a group that has another name on some.
Not to be confused with: M06, where some ranks wait in a collective that the others skip; R02, where ranks do not reach
  the first rendezvous.
What to do: Call new_group on every rank, in the same order, also on ranks that are not in the group. On torch 2.14 and
  newer this holds for use_local_synchronization=True too: up to 2.13 such a group was not counted, since then its
  members count it and the other ranks do not. Let each rank make one: `new_group([0, 1] if rank < 2 else [2, 3],
  use_local_synchronization=True)`, or leave the argument out and call it on all ranks.
How to inject it: examples/broken/m20_other_groups.py
Source: torch.distributed.new_group, "requires that all processes enter this function"; _process_group_name of torch
  2.14.1 and 2.15.0, which counts `_world.group_count` up for hashed names too.
"""

_EVERY_RANK = "let every rank make the same groups in the same order, ranks outside of a group too"
_MAKES_GROUP = "_new_group_with_tag"
_C10D = "torch/distributed/distributed_c10d.py"
_COUNTS_LOCAL_GROUPS = (2, 14)
_HASH_DIGITS, _HEX = 40, frozenset("0123456789abcdef")


def find(case: Case) -> Iterator[CauseFinding]:
    if case.mixed_groups:
        yield _mixed(case, case.mixed_groups[0])
        return
    still = case.stall
    if still is None or not still.waiting:
        return
    if still.late:
        yield from _alone_in_new_group(case, still)
        return
    if len(still.waiting) < (case.world_size or 2):
        return
    if (other_names := _first_calls_under_other_names(case, still)) is not None:
        yield other_names
        return
    snapshots = {rank: case.snapshots[rank] for rank in still.waiting if rank in case.snapshots}
    if len(snapshots) < 2:
        raise Unknown(f"a snapshot of {named_ranks(still.waiting)}, of which none is behind")
    if not all(map(_is_making_a_group, snapshots.values())):
        return
    by_line = _ranks_by({rank: _line(snapshot) for rank, snapshot in snapshots.items()})
    by_count = _ranks_by({rank: _local_groups(heartbeat) for rank, heartbeat in case.heartbeats.items()})
    differ_in_local = len(by_count) > 1 and all(map(_counts_local_groups, case.heartbeats.values()))
    differ = len(by_line) > 1 or differ_in_local
    if not differ and not all(map(_has_exchanged, case.heartbeats.values())):
        # Perhaps the ranks cannot reach each other at all.
        return
    yield _finding(
        still,
        Confidence.HIGH if differ and len(snapshots) == case.world_size else Confidence.LIKELY,
        *(f"{named_ranks(ranks)} in new_group at {line}" for line, ranks in by_line.items()),
        *(f"{named_ranks(ranks)} made {made}" for made, ranks in by_count.items() if differ_in_local),
        *(() if differ else ("the ranks exchanged before, and none is behind: the group has not one name on all",)),
        no_late_rank="every rank waits for a group that the others do not make",
        next=("from torch 2.14 on, use_local_synchronization=True counts: let each rank make one, or leave it out",)
        if differ_in_local
        else (),
    )


def _mixed(case: Case, mixed: MixedGroup) -> CauseFinding:
    by_members = _ranks_by({rank: named_ranks(members) for rank, members in mixed.members.items()})
    return CauseFinding(
        code="M20",
        title=TITLE,
        level=Level.DIVERGENCE,
        confidence=Confidence.HIGH,
        saw=(
            *(
                f"{named_ranks(ranks)} made group {mixed.group} by a new_group of {members}"
                for members, ranks in by_members.items()
            ),
            "these groups have one name, so what they exchange is mixed up",
        ),
        ruled_out=("the exceptions after it: a rank in such a group gets what is meant for another",)
        if case.exits
        else (),
        next=(_EVERY_RANK,),
    )


def _finding(
    still: Stall,
    confidence: Confidence,
    *saw: str,
    no_late_rank: str,
    ranks: tuple[int, ...] = (),
    next: tuple[str, ...] = (),
) -> CauseFinding:
    """`no_late_rank`: why a late rank is not the cause."""
    return CauseFinding(
        code="M20",
        title=TITLE,
        level=Level.DIVERGENCE,
        ranks=ranks,
        confidence=confidence,
        since_step=still.since_step,
        saw=saw,
        ruled_out=(f"a late rank: {no_late_rank}",),
        next=(_EVERY_RANK, *next),
    )


def _alone_in_new_group(case: Case, still: Stall) -> Iterator[CauseFinding]:
    """The late ranks wait in new_group for the others, which wait for them in a collective."""
    snapshots = {rank: case.snapshots[rank] for rank in still.late if rank in case.snapshots}
    others = {rank: case.snapshots[rank] for rank in still.waiting if rank in case.snapshots}
    if len(snapshots) < len(still.late) or not all(map(_is_making_a_group, snapshots.values())):
        return
    if not others or any(map(_is_making_a_group, others.values())):
        return
    by_line = _ranks_by({rank: _line(snapshot) for rank, snapshot in snapshots.items()})
    by_wait = _ranks_by({rank: f" at {_line(others[rank])}" if rank in others else "" for rank in still.waiting})
    what = (still.operation or "a collective") + ("" if still.group is None else f" of group {still.group}")
    yield _finding(
        still,
        Confidence.LIKELY,
        *(f"{named_ranks(ranks)} in new_group at {line}" for line, ranks in by_line.items()),
        *(f"{named_ranks(ranks)} in {what}{at}" for at, ranks in by_wait.items()),
        ranks=still.late,
        no_late_rank="it waits for a group that the others do not make now",
    )


def _first_calls_under_other_names(case: Case, still: Stall) -> CauseFinding | None:
    """The ranks are in one line, in the first call of a group of the same ranks, and the group has another name on some of them.

    NCCL makes a group without a wait, and connects its ranks at the first call.
    """
    heartbeats = {rank: case.heartbeats[rank] for rank in still.waiting if rank in case.heartbeats}
    names = {rank: next(reversed(heartbeat.calls), "") for rank, heartbeat in heartbeats.items()}
    members = {frozenset(heartbeat.group_ranks.get(names[rank], ())) for rank, heartbeat in heartbeats.items()}
    calls = {rank: heartbeat.last_call for rank, heartbeat in heartbeats.items() if heartbeat.last_call is not None}
    are_first = all(call.index == 1 == heartbeats[rank].calls.get(names[rank]) for rank, call in calls.items())
    lines = {call.site for call in calls.values()}
    by_name = _ranks_by(names)
    if len(calls) < len(still.waiting) or not are_first or len(lines) != 1 or None in lines:
        return None
    if members != {frozenset(still.waiting)} or len(by_name) < 2:
        return None
    return _finding(
        still,
        Confidence.LIKELY,
        f"{named_ranks(still.waiting)} wait at {lines.pop()}, each in its first call of a group of {named_ranks(still.waiting)}",
        *(f"the group is called {name} on {named_ranks(ranks)}" for name, ranks in by_name.items()),
        no_late_rank="every rank has come to the call",
    )


def _is_making_a_group(snapshot: RankSnapshot) -> bool:
    return any(frame.function == _MAKES_GROUP and frame.file.endswith(_C10D) for frame in frames_of(snapshot))


def _line(snapshot: RankSnapshot) -> str:
    frame = users_frame(snapshot)
    return str(site_of(frame)) if frame is not None else "a library"


def _local_groups(heartbeat: Heartbeat) -> str:
    """How many groups this rank made with their members alone, in words. torch hashes the names of these, and counts the others."""
    names = {*heartbeat.group_ranks, *(group.name for group in heartbeat.groups or ())}
    count = sum(len(name) == _HASH_DIGITS and set(name) <= _HEX for name in names)
    return f"{count or 'no'} {plural(count, 'group')} with use_local_synchronization=True"


def _has_exchanged(heartbeat: Heartbeat) -> bool:
    return bool(heartbeat.step_count) or any(group.completed for group in heartbeat.groups or ())


def _counts_local_groups(heartbeat: Heartbeat) -> bool:
    numbers = heartbeat.rendezvous.get("torch", "").split(".")[:2]
    return len(numbers) == 2 and all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) >= _COUNTS_LOCAL_GROUPS


def _ranks_by(texts: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Text -> the ranks that have it, in the order of the first rank of each."""
    found: dict[str, tuple[int, ...]] = {}
    for rank in sorted(texts):
        found[texts[rank]] = (*found.get(texts[rank], ()), rank)
    return found


RULE = Cause(
    code="M20",
    title=TITLE,
    page=PAGE,
    find=find,
    beats=("M01", "M02", "M03", "M06", "C01", "C05"),
    sure_by=(Ground.SNAPSHOT, Ground.CALLS),
)
