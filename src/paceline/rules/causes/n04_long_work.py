"""N04: one rank does long work and makes progress while the others wait."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.activity import what_it_does
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots
from paceline.diagnosis.stacks import is_compiling, is_waiting_for_loader, place_of, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

PAGE = """\
One rank does long work while the others wait

What it means: One rank, most often rank 0, saves, evaluates, tokenises, downloads or unpacks something alone. All
  other ranks wait for it in a barrier or in their next collective. The rank makes progress; nothing hangs.
Why it matters: The whole job stands still while the rank works. If the work takes longer than the process group's
  timeout, the job fails, and the message blames the collective.
Deciding evidence: The rank is behind the others, and its CPU, disk or network counters move. The stack shows what it
  does.
Not to be confused with: N01 (no counter moves); N05 (the rank compiles); N06 (the rank uses CPU in one place and
  never leaves it).
What to do: Do the work before the job, on all ranks in shares, or in the background
  (`torch.distributed.checkpoint.async_save`). If it must stay there, give that barrier a group of its own with a
  longer timeout: `dist.new_group(timeout=...)`.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n04_long_work.py --rank 0`, then `paceline why`.
Source: torch.distributed, timeout of init_process_group and new_group.
"""

_SMALL_BYTES = 64


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks that make progress: only if they are few, or if their stack names long work."""
    for late in late_ranks(case):
        work = what_it_does(late.frames)
        if (
            not (late.is_free or late.waits_for_a_slow_disk)
            or not late.progress
            or is_compiling(late.snapshot)
            or is_waiting_for_loader(late.snapshot)
        ):
            continue
        alone = len(late.stall.late) <= max(1, len(late.stall.waiting) // 2)
        if late.stall.waiting and (alone or work is not None):
            yield _finding(case, late, work)
    need_snapshots(case)


def _finding(case: Case, late: LaggingRank, work: str | None) -> CauseFinding:
    still = late.stall
    users = late.users
    barrier = _is_a_meeting(case, late)
    only_cpu = not late.moves_bytes and late.is_busy
    in_one_place = only_cpu and (late.snapshot.stack_moved is not True or late.is_in_its_own_code)
    if late.moves_bytes or (late.is_busy and work is not None):
        confidence = Confidence.HIGH if late.frames and not in_one_place else Confidence.LIKELY
    else:
        confidence = Confidence.UNCLEAR if in_one_place else Confidence.LIKELY
    doing = work or "does work of its own"
    return CauseFinding(
        code="N04",
        title=f"rank {late.rank} {doing} while the others wait",
        level=Level.WAITING,
        ranks=(late.rank,),
        confidence=confidence,
        since_step=still.since_step,
        saw=(
            f"rank {late.rank} makes progress: " + ", ".join(late.progress),
            *((f"its main thread is {place_of(late.snapshot)}",) if late.frames else ()),
            late.how_late,
            late.activity,
            *((f"it waits on {late.snapshot.blocked_on}",) if late.waits_for_a_slow_disk else ()),
            *((f"{named_ranks(still.waiting)} came to a barrier and not to a step",) if barrier else ()),
        ),
        ruled_out=("not asleep: " + ", ".join(late.progress), "not the compiler: its stack is not in it"),
        next=(
            *(
                ("write to a faster disk, or in the background: torch.distributed.checkpoint.async_save",)
                if late.waits_for_a_slow_disk
                else ()
            ),
            (f"{site_of(users)}: " if users else "") + "do this before the job, on all ranks, or in the background",
            "or let the others wait in a group of their own: dist.new_group(timeout=...)",
        ),
    )


def _is_a_meeting(case: Case, late: LaggingRank) -> bool:
    if late.stall.operation in ("barrier", "monitored_barrier"):
        return True
    calls = [case.heartbeats[rank].last_call for rank in late.stall.waiting if rank in case.heartbeats]
    sizes = [call.size_bytes for call in calls if call is not None and call.operation == late.stall.operation]
    return bool(sizes) and all(size is not None and size <= _SMALL_BYTES for size in sizes)


RULE = Cause(
    code="N04",
    title="one rank at long work while the others wait",
    page=PAGE,
    find=find,
    levels=(Level.WAITING,),
    sure_by=(Ground.SNAPSHOT,),
)
