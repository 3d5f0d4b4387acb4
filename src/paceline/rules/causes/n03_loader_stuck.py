"""N03: a worker process of a rank's DataLoader is stuck."""

from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.hang.lagging_ranks import LaggingRank, late_ranks, need_snapshots, need_stacks
from paceline.diagnosis.snapshots import Child, Frame
from paceline.diagnosis.stacks import first_users_frame, is_waiting_for_loader, site_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground, Unknown

PAGE = """\
A DataLoader worker is stuck

What it means: The late rank waits for its next batch, and a worker process of its DataLoader does not deliver it. The
  worker hangs in `__getitem__` or `collate_fn`, in a lock that was held when the worker was forked (OpenCV,
  tokenizers, OpenMP), or on a file or a socket.
Why it matters: The rank itself looks idle. Only the worker's own stack proves that the loader is the cause.
Deciding evidence: The main thread is in DataLoader's `_try_get_data`. A worker process of the rank uses no CPU, and
  its stack shows where it is.
Not to be confused with: N01 (no loader in the stack); S05 (the loader is slow, and its workers use CPU or disk).
What to do: Repair the line where the worker hangs. For a lock inherited by fork, use
  `multiprocessing_context="spawn"`, `cv2.setNumThreads(0)` or `TOKENIZERS_PARALLELISM=false`.
  `DataLoader(timeout=60)` turns the wait into an error.
How to inject it: `paceline run --nproc-per-node 2 examples/broken/n03_loader_stuck.py`, then `paceline why`.
Source: torch/utils/data/dataloader.py, _MultiProcessingDataLoaderIter.
"""

_IDLE_CPUS = 0.05
_LOCKS_TAKEN_OVER = ("cv2", "tokenizers", "gomp", "omp_", "threading.py")


def find(case: Case) -> Iterator[CauseFinding]:
    """Late ranks that wait for a loader, with their idle workers."""
    unread, childless = [], []
    for late in late_ranks(case):
        if late.is_free and not late.frames:
            unread.append(late)
        elif late.is_free and is_waiting_for_loader(late.snapshot):
            if late.snapshot.children is None:
                childless.append(late.rank)
            else:
                yield _finding(late, [child for child in late.snapshot.children if child.role == "loader"])
    if childless:
        raise Unknown(f"the processes below rank {childless[0]}")
    need_stacks(unread)
    need_snapshots(case)


def _finding(late: LaggingRank, workers: list[Child]) -> CauseFinding:
    # A worker that waits for its next index has nothing to deliver.
    busy = [child for child in workers if (child.cpu_fraction or 0.0) > _IDLE_CPUS]
    stuck = [child for child in workers if child not in busy and not _has_nothing_to_do(child)]
    named = (stuck or busy or workers)[:2]
    moving = bool(busy) or late.moves_bytes
    where = [_where(child) for child in named]
    frame = next((f for child in named if (f := first_users_frame(_at_work(child))) is not None), None)
    taken_over = any(
        part in f"{f.file}:{f.function}" for child in stuck for f in _at_work(child) for part in _LOCKS_TAKEN_OVER
    )
    return CauseFinding(
        code="N03",
        title="DataLoader worker slow over one item" if moving else "DataLoader worker stuck",
        level=Level.WAITING if moving else Level.STALL,
        ranks=(late.rank,),
        confidence=Confidence.HIGH if stuck and not moving else Confidence.LIKELY,
        since_step=late.stall.since_step,
        saw=(
            *where,
            f"the main thread of rank {late.rank} waits for its next batch; {len(workers)} loader workers below it",
            late.how_late,
        ),
        ruled_out=(
            "not asleep in its own code: it waits for its loader",
            *(() if moving else ("not a slow loader: no worker uses CPU or disk",)),
        ),
        next=(
            f"{site_of(frame)}: see why it does not return" if frame else "see the worker's stack: paceline stack",
            *(('try DataLoader(multiprocessing_context="spawn")',) if taken_over else ()),
            "DataLoader(timeout=60) makes an error of such a wait",
        ),
    )


def _at_work(child: Child) -> tuple[Frame, ...]:
    """The worker's own frames. Below its loop a forked worker still shows the frames of its parent rank."""
    loop = next((at for at, frame in enumerate(child.stack) if frame.function == "_worker_loop"), len(child.stack))
    return child.stack[:loop]


def _has_nothing_to_do(child: Child) -> bool:
    frames = _at_work(child)
    waits = any(frame.file.endswith(("queues.py", "connection.py")) for frame in frames)
    return waits and first_users_frame(frames) is None


def _where(child: Child) -> str:
    frames = _at_work(child)
    frame = first_users_frame(frames) or (frames[0] if frames else None)
    cpu = "" if child.cpu_fraction is None else f", {child.cpu_fraction:.2f} CPUs"
    place = f" stands at {site_of(frame)}" if frame else " (its stack could not be read)"
    return f"loader worker {child.pid}{place} (state {child.state}{cpu})"


RULE = Cause(
    code="N03",
    title="DataLoader worker stuck",
    page=PAGE,
    find=find,
    levels=(Level.STALL, Level.WAITING),
    beats=("N01", "N04", "N06"),
    sure_by=(Ground.SNAPSHOT,),
)
