"""N01: a rank sleeps or waits in its own code, outside of any collective."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import UNSEEN_DEVICE, LaggingRank, late_ranks, need_snapshots, need_stacks
from paceline.diagnosis.hang.progress import cpus_used
from paceline.diagnosis.snapshots import RankSnapshot
from paceline.diagnosis.stacks import (
    has_any,
    is_compiling,
    is_waiting_for_file_lock,
    is_waiting_for_loader,
    is_waiting_in_collective,
    place_of,
    site_of,
)
from paceline.findings import Cause, CauseFinding, Confidence, Ground

PAGE = """\
A rank is asleep in its own code

What it means: One rank has not come to the collective that the other ranks wait in. Its process is alive, uses no CPU
  and moves no data. It sleeps, or waits for a lock, for input, for an answer from the network or for another process.
Why it matters: The others wait for this rank until the process group's timeout, which is half an hour with gloo. The
  message that then appears names the ranks that waited.
Deciding evidence: The flight recorder (or the rank's calls, or its steps) shows that this rank is behind the others.
  Its state is S, it uses hardly any CPU time and makes no disk traffic. The innermost frame of its main thread is not
  in torch.distributed. If its collectives are of a device and no flight recorder shows them, the line may wait for one of
  them, as the others do: then it is likely only.
Not to be confused with: N02 (the rank is stopped: state T); N03 (the stack waits for a DataLoader worker); N06 (the
  rank uses a full CPU core); N07 (the rank's Python does not answer); N04 (the rank makes progress).
What to do: Read the line that the finding names. Give the request or the lock a timeout, move the work out of the
  training step, or let every rank do it.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n01_asleep.py`, then `paceline why`.
Source: proc(5), field state; torch's flight recorder, last_enqueued_collective.
"""

# Innermost function or file -> what the rank waits for.
_WAITS_FOR = {
    "threading.py:acquire": "a lock",
    "threading.py:wait": "a lock or an event",
    "threading.py:join": "a thread",
    "threading.py:_shutdown": "threads of the script: its own program is done",
    "queue.py:get": "an item of a queue",
    "queue.py:put": "room in a queue",
    "subprocess.py:": "a child process",
    "multiprocessing/": "another process",
    "socket.py:": "the network",
    "ssl.py:": "the network",
    "http/client.py": "an HTTP answer",
    "urllib3/": "an HTTP answer",
    "selectors.py:": "the network or a file",
}


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks that are free to run, and idle in a place that is no collective."""
    unread = []
    for late in late_ranks(case):
        if not late.is_free or late.progress or late.is_busy or _is_nobodys_concern(late):
            continue
        if not late.frames:
            unread.append(late)
        elif not _waits_elsewhere(late.snapshot):
            yield _finding(late)
    need_stacks(unread)
    need_snapshots(case)


def _is_nobodys_concern(late: LaggingRank) -> bool:
    """Whether the rank is not to blame, because other late ranks work.

    Then no rank waits for this one, or this one waits for a file lock that another late rank holds.
    """
    return late.stall.level is Level.WAITING and (not late.stall.waiting or is_waiting_for_file_lock(late.snapshot))


def _waits_elsewhere(snapshot: RankSnapshot) -> bool:
    """Whether the rank waits in a collective, for a loader or for a compiler. Other causes cover these."""
    return is_waiting_in_collective(snapshot) is True or is_waiting_for_loader(snapshot) or is_compiling(snapshot)


def _finding(late: LaggingRank) -> CauseFinding:
    users = late.users
    inner = f"{late.frames[0].file}:{late.frames[0].function}"
    what = next((text for part, text in _WAITS_FOR.items() if part in inner), None)
    what = "a lock on a file" if is_waiting_for_file_lock(late.snapshot) else what
    blind = what is None and late.may_wait_for_device
    sure = users is not None and cpus_used(late.snapshot) is not None and not blind
    seen = f"its main thread is {place_of(late.snapshot)}" + (f", and waits for {what}" if what else "")
    whose = site_of(users or late.frames[0])
    saver = has_any(late.frames, ("torch/serialization.py", "torch/distributed/checkpoint/"))
    return CauseFinding(
        code="N01",
        title="rank asleep in its own code",
        level=Level.STALL,
        ranks=(late.rank,),
        confidence=Confidence.HIGH if sure else Confidence.LIKELY,
        since_step=late.stall.since_step,
        saw=(seen, late.how_late, late.activity, *((UNSEEN_DEVICE,) if blind else ())),
        ruled_out=(
            "not stopped or frozen: "
            + (f"state {late.snapshot.state}" if late.snapshot.state else "a snapshot would show it"),
            "not a loop: it uses no CPU",
            "not a DataLoader worker: its stack does not wait for one",
        ),
        next=(
            "see which of its threads continues, and why its program ends before those of the other ranks"
            if "threading.py:_shutdown" in inner
            else f"{whose}: add a timeout to what it waits for, or move it out of the training step",
            *late.while_it_lasts(
                f"to watch it: paceline stack, or py-spy dump --nonblocking --pid {late.snapshot.pid} on {late.snapshot.host}"
            ),
            *(("the checkpoint's file system may not answer",) if saver else ()),
        ),
    )


RULE = Cause(code="N01", title="rank asleep in its own code", page=PAGE, find=find, sure_by=(Ground.SNAPSHOT,))
