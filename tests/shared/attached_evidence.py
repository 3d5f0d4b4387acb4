"""What a host may have seen of a job that hangs, made up: ranks that wait in an all_reduce for ranks that sleep in their own code."""

from paceline.attach.evidence import HostEvidence, RankSeen, Round
from paceline.diagnosis.case import GroupCounters, Heartbeat, Site
from paceline.diagnosis.flight_recorder import TraceEntry
from paceline.diagnosis.snapshots import Frame, HostSnapshot, RankSnapshot, ThreadStack

NOW_NS = 1_795_000_000_000_000_000
SECOND = 1_000_000_000
TORCH = "/venv/lib/python3.11/site-packages/torch/"
TRAIN = "/home/me/train.py"
WAITS = ((TORCH + "distributed/distributed_c10d.py", 90, "all_reduce"), (TRAIN, 20, "<module>"))
SLEEPS = ((TRAIN, 14, "<module>"),)


def entries(count, *, operation="allreduce", last=None, line=20):
    """The newest calls of a rank; `last`: the operation and the line of the newest one, if it is another."""
    found = []
    for index in range(1, count + 1):
        name, at = last if last is not None and index == count else (operation, line)
        stamp = NOW_NS - 30 * SECOND + index * SECOND // 10
        found.append(
            TraceEntry(
                group="0",
                index=index,
                operation=name,
                created_ns=stamp,
                retired=index < count,
                site=Site(file=TRAIN, line=at),
            )
        )
    return tuple(found)


def rank_round(host, rank, at_ns, *, sleeps, moved_ns, enqueued, completed):
    frames = SLEEPS if sleeps else WAITS
    stack = ThreadStack(
        pid=1000 + rank,
        thread="MainThread",
        main=True,
        frames=tuple(Frame(file=file, line=line, function=name, users=file == TRAIN) for file, line, name in frames),
    )
    counters = GroupCounters(name="0", enqueued=enqueued, completed=completed, operation="allreduce")
    about = {"host": host, "rank": rank, "at_ns": at_ns, "pid": 1000 + rank, "state": "S"}
    heartbeat = Heartbeat(
        **about,
        moved_ns=moved_ns,
        cpu_seconds=5.0,
        step_count=2,
        step_seconds=0.1,
        phase="training" if sleeps else "communication",
        phase_since_ns=moved_ns,
        groups=(counters,),
    )
    snapshot = RankSnapshot(
        **about,
        seconds=0.5,
        wait_channel="hrtimer_nanosleep" if sleeps else "futex_wait_queue",
        cpu_fraction=0.0,
        read_bytes_per_second=0.0,
        written_bytes_per_second=0.0,
        stacks=(stack,),
        stack_moved=False,
        frozen=False,
        children=(),
        sockets=(),
    )
    return heartbeat, snapshot


def evidence(host="node-a", ranks=(0, 1), size=2, *, late=(1,), moves=False, calls=None, **fields):
    """One host's evidence. `late`: ranks that sleep; `moves`: collectives are completed meanwhile; `calls`: rank -> its entries."""
    rounds = []
    for number in range(2):
        at_ns = NOW_NS + number * 2 * SECOND
        done = 100 + 10 * number if moves else 100
        moved_ns = at_ns if moves else NOW_NS - 20 * SECOND
        made = [
            rank_round(
                host, rank, at_ns, sleeps=rank in late, moved_ns=moved_ns,
                enqueued=done if rank in late or moves else done + 1, completed=done,
            )
            for rank in ranks
        ]  # fmt: skip
        rounds.append(
            Round(
                at_ns=at_ns,
                heartbeats=tuple(heartbeat for heartbeat, _ in made),
                snapshots=tuple(snapshot for _, snapshot in made),
                host=HostSnapshot(host=host, at_ns=at_ns),
            )
        )
    seen = tuple(
        RankSeen(rank=r, pid=1000 + r, entries=(calls or {}).get(r, ()), sources=("recorder", "stacks", "proc"))
        for r in ranks
    )
    known = {"job": "train.py", "launcher": "torchrun", "launcher_pid": 900, "world_size": size, "seconds": 2.5}
    return HostEvidence(**{"host": host, "rounds": tuple(rounds), "ranks": seen, **known, **fields})
