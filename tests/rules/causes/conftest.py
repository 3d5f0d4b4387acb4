"""Made-up cases: a job of two hosts in which rank 1 is late and rank 0 waits for it, changed by each test in what it is about.

def test_it_fires(found, case, snapshot):
    (finding,) = found("n02", case(snapshots=[snapshot(1, state="T")]))
"""

import importlib
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from paceline.diagnosis.case import (
    Call,
    Case,
    Estimate,
    Heartbeat,
    HeldUp,
    HostTiming,
    Level,
    RankTiming,
    Site,
    Stall,
    StepTiming,
)
from paceline.diagnosis.snapshots import Child, Frame, HostSnapshot, RankSnapshot, ThreadStack
from paceline.facts import RankError, RankExit, RankRecord, Run
from paceline.findings import Confidence, Unknown
from paceline.rules import discover

STARTED_NS = 1_795_000_000_000_000_000
NOW_NS = STARTED_NS + 60_000_000_000
SECOND = 1_000_000_000
TRAIN = "/home/me/train.py"


def seconds(after_start):
    """Unix ns of a moment this many seconds after the start of the run."""
    return STARTED_NS + round(after_start * SECOND)


def frame(text):
    """A frame from "FILE:LINE FUNCTION"; files below /home/me are the user's own."""
    place, _, function = text.partition(" ")
    file, _, line = place.rpartition(":")
    return Frame(file=file, line=int(line), function=function, users=file.startswith("/home/me/"))


def make_stack(*frames, pid=1001, thread="MainThread", main=True, **fields):
    """One thread's stack, innermost frame first."""
    return ThreadStack(pid=pid, thread=thread, main=main, frames=tuple(map(frame, frames)), **fields)


def make_snapshot(rank=1, *frames, **fields):
    """A snapshot of a rank that sleeps at train.py:40, with every part read; `frames` replaces the main thread's stack, innermost first."""
    stack = make_stack(*(frames or (f"{TRAIN}:40 wait_for_it", f"{TRAIN}:90 <module>")), pid=1000 + rank)
    known = {
        "host": f"algo-{rank // 2 + 1}",
        "pid": 1000 + rank,
        "at_ns": NOW_NS,
        "seconds": 0.5,
        "state": "S",
        "thread_states": {"S": 4},
        "tracer_pid": 0,
        "wait_channel": "hrtimer_nanosleep",
        "cpu_fraction": 0.0,
        "children_cpu_fraction": 0.0,
        "read_bytes_per_second": 0.0,
        "written_bytes_per_second": 0.0,
        "stacks": (stack,),
        "stack_moved": False,
        "ping_answers": True,
        "traceback_answers": True,
        "children": (),
        "sockets": (),
        "frozen": False,
        "throttled_fraction": 0.0,
    }
    return RankSnapshot(**{"rank": rank, **known, **fields})


def make_witness(rank=0, **fields):
    """A snapshot of a rank that waits in DDP's backward pass."""
    frames = (
        "/usr/lib/python3/site-packages/torch/autograd/graph.py:841 _engine_run_backward",
        "/usr/lib/python3/site-packages/torch/_tensor.py:630 backward",
        f"{TRAIN}:60 step",
    )
    return make_snapshot(rank, *frames, role="witness", **fields)


def make_child(state="S", *frames, pid=2001, role="loader", cpu_fraction=0.0, name="python"):
    return Child(pid=pid, state=state, name=name, cpu_fraction=cpu_fraction, role=role, stack=tuple(map(frame, frames)))


def make_call(index=13, operation="allreduce", line=60, **fields):
    """One collective issued at train.py:`line`."""
    known = {"issued_ns": seconds(20), "reduce_op": "SUM", "dtype": "float32", "shape": (16,), "size_bytes": 64}
    site = Site(file=TRAIN, line=line, function="step")
    return Call(**{"index": index, "operation": operation, "site": site, **known, **fields})


def make_heartbeat(rank, **fields):
    """A rank of the training phase that last moved 20 s after the start."""
    known = {"at_ns": NOW_NS, "moved_ns": seconds(20), "pid": 1000 + rank, "step_count": 12, "step_seconds": 0.02}
    more = {"phase": "training", "state": "S", "last_step_ns": seconds(20)}
    return Heartbeat(**{"host": f"algo-{rank // 2 + 1}", "rank": rank, **known, **more, **fields})


def make_stall(late=(1,), waiting=(0,), **fields):
    known = {"level": Level.STALL, "since_ns": seconds(20), "detected_ns": seconds(24), "threshold_seconds": 3.0}
    return Stall(**{"late": late, "waiting": waiting, "basis": "flight recorder", "since_step": 12, **known, **fields})


def make_exit(rank, code=1, *, after=20.0, error=None, **fields):
    """How a rank ended, `after` seconds after the start; `error`: (type, message) of the exception that ended it."""
    raised = error and RankError(type=error[0], message=error[1], time_ns=seconds(after), file=TRAIN, line=50)
    known = {"host": f"algo-{rank // 2 + 1}", "attempt": 0, "time_ns": seconds(after), "error": raised or None}
    return RankExit(**{"rank": rank, "code": code, **known, **fields})


def make_run(**fields):
    known = {"name": "train", "directory": "/runs/r-000001", "command": ("train.py",), "first_host": "algo-1"}
    return Run(**{"id": "r-000001", "started_ns": STARTED_NS, **known, **fields})


def make_case(
    *,
    world_size=2,
    still: Stall | bool | None = True,
    snapshots: Iterable[RankSnapshot] = (),
    heartbeats: Iterable[Heartbeat] | None = None,
    host_snapshots: Iterable[HostSnapshot] = (),
    **fields,
):
    """A case of a lasting run. `still` True: rank 1 is late for rank 0; False: nothing stands still; or a Stall."""
    if isinstance(still, bool):
        still = make_stall() if still else None
    heartbeats = [make_heartbeat(rank) for rank in range(world_size)] if heartbeats is None else heartbeats
    hosts = tuple(f"algo-{index + 1}" for index in range((world_size + 1) // 2))
    ranks = {
        rank: RankRecord(
            host=hosts[rank // 2], rank=rank, attempt=0, pid=1000 + rank, world_size=world_size, step_count=12
        )
        for rank in range(world_size)
    }
    known = {
        "run": make_run(),
        "now_ns": NOW_NS,
        "lasts": True,
        "world_size": world_size,
        "hosts": hosts,
        "ranks": ranks,
    }
    looked = {snapshot.rank: snapshot for snapshot in snapshots}
    asked = {snapshot.host: snapshot for snapshot in host_snapshots}
    return Case(
        **{
            **known,
            "stall": still,
            "snapshots": looked,
            "host_snapshots": asked,
            "heartbeats": {p.rank: p for p in heartbeats},
            **fields,
        }
    )


def make_rank_timing(rank, lag_ms=0.0, *, step_ms=50.0, **fields):
    """A rank that comes `lag_ms` after the first one to all three buckets of its steps."""
    known = {"host": f"algo-{rank // 2 + 1}", "steps": 400, "step_seconds": step_ms / 1000, "data_seconds": 0.0}
    times = {"communication_seconds": (step_ms - 20 - lag_ms) / 1000, "checkpoint_seconds": 0.0, "cpu_fraction": 0.5}
    times |= {"cpu_wait_seconds": 0.0, "checkpoint_count": 9}
    late = {"lags": (lag_ms / 1000,) * 3, "late_seconds": lag_ms / 1000, "last_fraction": 1.0 if lag_ms else 0.0}
    return RankTiming(**{"rank": rank, **known, **times, **late, **fields})


def make_estimate(value, spread=0.1):
    """A time that noise leaves a tenth of itself to either side."""
    return Estimate(seconds=value, low=value * (1 - spread), high=value * (1 + spread), blocks=20)


def behind(rank, seconds_of):
    """How much later one is than the last of the others."""
    return seconds_of[rank] - max(seconds for other, seconds in seconds_of.items() if other != rank)


def make_held_up(ranks):
    """Who is late for at least a third of what the last one is, by lags or else by own times; None where neither is known."""
    late = {rank.rank: max(rank.lags) for rank in ranks if rank.lags}
    measured = len(late) == len(ranks)
    if not measured:
        late = {rank.rank: rank.own_seconds for rank in ranks if rank.own_seconds is not None}
    if len(ranks) < 2 or len(late) < len(ranks):
        return None
    least, most = min(late.values()), max(late.values())
    found = tuple(rank for rank, seconds in late.items() if seconds - least > (most - least) / 3)
    others = max((seconds for rank, seconds in late.items() if rank not in found), default=least)
    return HeldUp(ranks=found, gain=make_estimate(most - others), measured=measured)


def make_timing(*ranks, step_ms=50.0, hosts=None, **fields):
    """20 s of steps of 50 ms; every host quiet, unless `hosts` says otherwise: name -> what differs. Noise is small."""
    late = {rank.rank: rank.late_seconds for rank in ranks if rank.late_seconds is not None}
    ranks = tuple(
        replace(
            rank,
            behind=make_estimate(behind(rank.rank, late)) if len(late) == len(ranks) > 1 else None,
            data=None if rank.data_seconds is None else rank.data or make_estimate(rank.data_seconds),
        )
        for rank in ranks
    )
    exchanged = [rank.communication_seconds for rank in ranks if rank.communication_seconds is not None]
    names = sorted({rank.host for rank in ranks})
    quiet = {
        "cpu_count": 4,
        "busy_fraction": 0.3,
        "steal_fraction": 0.0,
        "throttled_fraction": 0.0,
        "pressure_cpu": 0.01,
        "pressure_memory": 0.0,
        "pressure_io": 0.0,
        "ranks_cpu": 1.0,
        "sent_bytes_per_second": 1e6,
        "received_bytes_per_second": 1e6,
    }
    known = {"window_seconds": 20.0, "from_step": 100, "to_step": 500, "step_seconds": step_ms / 1000}
    spread = max((rank.late_seconds or 0.0) for rank in ranks) - min((rank.late_seconds or 0.0) for rank in ranks)
    told = {"step_bytes": 4e6, "collectives_per_step": 3.0, "spread_seconds": spread, "held_up": make_held_up(ranks)}
    told["spread"] = make_estimate(fields.get("spread_seconds", spread))
    told["communication"] = make_estimate(sum(exchanged) / len(exchanged)) if exchanged else None
    machines = tuple(HostTiming(**{"host": name, **quiet, **(hosts or {}).get(name, {})}) for name in names)
    return StepTiming(**{"ranks": ranks, "hosts": machines, **known, **told, **fields})


def findings_of(code, case):
    """What the one rule of this code says; raises Unknown where it could not look."""
    (rule,) = [rule for rule in discover("causes") if rule.code.lower() == code.lower()]
    findings = list(rule.find(case))
    for finding in findings:
        hold_together(finding)
        assert finding.level in (rule.levels or (_OF_LETTER[rule.code[0]],)), "docs/causes.md says another level"
    return findings


_OF_LETTER = {"N": Level.STALL, "M": Level.DIVERGENCE, "C": Level.CRASH, "R": Level.START, "S": Level.SLOW}


_DOUBT = re.compile(r"\b(unclear|not judged|may be|might|perhaps|could not be looked|not known)\b")


def hold_together(finding):
    """What every finding of every case in these tests must be: sure only where nothing that it shows says otherwise."""
    doubts = [text for text in (*finding.saw, *finding.ruled_out) if _DOUBT.search(text)]
    if finding.confidence == Confidence.HIGH:
        assert not doubts, f"{finding.code} is sure, and says: {doubts}"
        assert finding.saw and all(finding.saw), f"{finding.code} is sure, and shows nothing"
    own = [text for text in finding.ruled_out if any(re.match(rf"ranks? {rank}\b", text) for rank in finding.ranks)]
    assert not own, f"{finding.code} names ranks that it says are not to blame: {own}"
    assert set(finding.saw).isdisjoint(finding.ruled_out)


def missing_of(code, case):
    """The fact whose absence keeps the rule from judging; fails where it judged."""
    try:
        found = findings_of(code, case)
    except Unknown as unknown:
        return str(unknown)
    raise AssertionError(f"{code} judged: {found}")


def _factory(function):
    return pytest.fixture(name=function.__name__.removeprefix("make_"))(lambda: function)


case = _factory(make_case)
snapshot = _factory(make_snapshot)
witness = _factory(make_witness)
child = _factory(make_child)
stack = _factory(make_stack)
call = _factory(make_call)
heartbeat = _factory(make_heartbeat)
stall = _factory(make_stall)
exit_of = pytest.fixture(name="exit_of")(lambda: make_exit)
run = _factory(make_run)
rank_timing = _factory(make_rank_timing)
timing = _factory(make_timing)
estimate = _factory(make_estimate)
at = pytest.fixture(name="at")(lambda: seconds)
found = pytest.fixture(name="found")(lambda: findings_of)
missing = pytest.fixture(name="missing")(lambda: missing_of)


@pytest.fixture
def rule_of():
    """The module of one rule: rule_of("n01_asleep").RULE."""
    return lambda name: importlib.import_module(f"paceline.rules.causes.{name}")
