"""The doors through which a stranger's bytes come in. Each check returns, or raises what is a fault of ours."""

import asyncio
import importlib.util
import io
import pickle
import struct
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from mutations import as_json, as_lines, changed
from requests_target import REQUESTS, check_request
from web_target import WEB_REQUESTS, check_web_request

from paceline.launch.job import messages
from paceline.launch.job.accepted_messages import SendingHost, objection, objection_to_first
from paceline.launch.job.framed_connection import Connection, WireError, greet
from paceline.launch.job.messages import ExitedMessage, IdleMessage, ReadyMessage
from paceline.launch.job.state import (
    Event,
    HostJoined,
    HostLeft,
    HostSaid,
    Hung,
    JobPhase,
    Member,
    Placement,
    StopRequested,
    Tick,
    begin,
    step,
)


@dataclass(frozen=True, slots=True)
class Target:
    """`strategy` makes bytes; `check` raises where something of ours breaks on them. `needs`: a module of an extra."""

    strategy: st.SearchStrategy[bytes]
    check: Callable[[bytes], None]
    needs: str = ""

    def is_here(self) -> bool:
        """Whether what it needs is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


# --------------------------------------------------------------------------------------------------------------- messages

EXIT = {"host": "b", "rank": 2, "attempt": 0, "code": 1, "time_ns": 1, "error": None, "note": "", "tail": "t"}
HEARTBEAT = {"host": "b", "rank": 2, "at_ns": 1, "moved_ns": 1, "groups": [], "calls": {"": 3}, "last_call": None}
SAID: list[Any] = [
    {"type": "hello", "host_name": "b", "wanted_name": None, "address": None, "node_rank": 1, "ranks": 2,
     "hosts_wanted": [2, 2], "paceline_version": "0.1.0"},
    {"type": "ready", "attempt": 0},
    {"type": "exited", "exit": EXIT},
    {"type": "idle", "attempt": 0},
    {"type": "refused", "code": "U05", "what": "a", "saw": "b", "next": "c"},
    {"type": "claim", "digests": {"a/b.pt": "0" * 64}},
    {"type": "gathered", "kinds": ["model"], "errors": [{"code": "E53", "what": "a", "saw": "b", "next": "c"}]},
    {"type": "event", "event": {"event": "notice", "text": "t", "rank": 2}},
    {"type": "lines", "kind": "telemetry", "lines": [{"t_ns": 1, "progress": {"2": {"step_count": 1}}}]},
    {"type": "pulse", "pulses": [HEARTBEAT], "calls": [{"rank": 2, "group": "", "group_ranks": [], "calls": [], "lost": 0}]},
    {"type": "look_reply", "number": 1, "looks": [{"host": "b", "rank": 2, "pid": 9, "at_ns": 1}], "hosts": []},
    {"type": "trace_reply", "number": 1, "traces": {"2": [{"group": "", "index": 1, "operation": "all_reduce"}]}},
    {"type": "stop_request", "signal": "SIGTERM", "reason": "r", "now": False},
    {"type": "pong", "sent_ns": 1, "at_ns": 2},
    {"type": "beat", "sent_ns": 1},
    {"type": "form", "attempt": 0, "placements": [{"host": "b", "address": "c", "node_rank": 0, "first_rank": 0, "ranks": 2}],
     "master_addr": "a", "store_port": 1},
    {"type": "stop", "signal": "SIGTERM", "grace_seconds": 1.0, "reason": "r"},
    {"type": "finish", "exit_code": 0, "status": "Completed", "secondary_status": "Completed", "reason": "", "failure": ""},
]  # fmt: skip
PLACED = Placement(host="b", address="10.0.0.2", node_rank=1, first_rank=2, ranks=2)


def check_message(data: bytes) -> None:
    """What is decoded is judged, from every sender, without an exception; what is not is refused as no message."""
    try:
        said = messages.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return
    for phase in JobPhase:
        for placement in (PLACED, None):
            sender = SendingHost(
                phase=phase, attempt=0, proven=True, placement=placement, gathering=frozenset({"model"})
            )
            objection(said, sender)
    objection_to_first(said, "b", 2)
    assert messages.decode(messages.encode(said)) == said


def check_greeting(data: bytes) -> None:
    """Whatever comes first, a server that has a token shows no proof and takes in nobody."""

    async def met() -> None:
        reader, writer = asyncio.StreamReader(), _Writer()
        reader.feed_data(data)
        reader.feed_eof()
        with suppress(WireError, asyncio.IncompleteReadError):
            await greet(reader, writer, b"k" * 32, server=True)  # type: ignore[arg-type]
            raise AssertionError("a stranger was taken for one that has the token")
        assert len(writer.sent) <= 26 or writer.sent[26:] == bytes(32)

    asyncio.run(met())


def check_frames(data: bytes) -> None:
    """A stream of frames without a token: messages, or the end of the connection."""

    async def heard() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        link = Connection(reader, _Writer(), None, b"", b"")  # type: ignore[arg-type]
        with suppress(WireError, asyncio.IncompleteReadError):
            while True:
                await link.receive()

    asyncio.run(heard())


class _Writer:
    """Stands for the way to a stranger."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data


GREETING = b"PACELINE" + bytes([messages.VERSION, 1])
FRAME = as_json(changed(SAID)).map(lambda payload: len(payload).to_bytes(4, "big") + bytes(32) + payload)

# ----------------------------------------------------------------------------------------------------------- state machine


def check_job(data: bytes) -> None:
    """Any order of what may happen to a job leads to a state, and after its end to nothing more."""
    from paceline.facts import Job, Program, ProgramKind, RankExit
    from paceline.launch.job.outcome import Stop, StopKind

    program = Program(kind=ProgramKind.SCRIPT, target="t.py")
    state = begin(
        Job(name="j", program=program, min_hosts=1, max_hosts=2, max_restarts=2, max_run_seconds=50.0, resume=True), 0.0
    )
    stop, ended = Stop(StopKind.USER, "SIGTERM", "r"), False
    for place in range(0, len(data) - 3, 4):
        kind, host, number, flag = data[place : place + 4]
        at, name = float(place), "ab"[host % 2]
        exit = RankExit(host=name, rank=number % 6 - 1, attempt=flag % 4, code=number % 3 - 1, time_ns=1)
        event: Event = (
            HostJoined(at, Member(host=name, address=name, ranks=1 + number % 3)),
            HostLeft(at, name, "gone"),
            HostSaid(at, exit.host, ExitedMessage(exit=exit)),
            HostSaid(at, name, IdleMessage(attempt=flag % 4, kept={0: (number,)} if flag & 4 else None)),
            HostSaid(at, name, ReadyMessage(attempt=flag % 4)),
            StopRequested(at, stop, bool(flag % 2)),
            Hung(at, "h", bool(flag % 2), resume=bool(flag & 2), ranks=(number % 3,)),
            Tick(at + 60.0 * (flag % 2)),
        )[kind % 8]
        before = state.restarts_left
        state, actions = step(state, event)
        assert state.restarts_left <= before and not (ended and actions)
        ended = state.phase is JobPhase.ENDED


# -------------------------------------------------------------------------------------------------- recordings, logs, dumps

RUN = {
    "schema": "paceline.run/2", "run_id": "r-000001", "name": "j", "directory": "/x", "command": ["paceline", "run", "t.py"],
    "started_ns": 1, "first_host": "a", "hosts_wanted": [1, 1], "version": "0.1.0", "agent_pid": 1, "agent_start_ticks": 1,
}  # fmt: skip
EVENTS = [
    {"t_ns": 1, "event": "run_started", "run": "r-000001", "host": "a", "ranks_per_host": 2, "hosts_wanted": [1, 1]},
    {"t_ns": 2, "event": "attempt_started", "attempt": 0, "world_size": 2, "hosts": [{"host": "a", "first_rank": 0, "ranks": 2}]},
    {"t_ns": 3, "event": "rank_started", "host": "a", "rank": 0, "attempt": 0, "pid": 7},
    {"t_ns": 3, "event": "status", "status": "InProgress", "secondary_status": "Training"},
    {"t_ns": 4, "event": "standstill", "attempt": 0, "late": [1], "waiting": [0], "since_ns": 2, "step": 3},
    {"t_ns": 5, "event": "cause", "attempt": 0, "finding": {"code": "N01", "title": "t", "level": "stall", "ranks": [1],
     "confidence": "high", "saw": ["a"], "next": ["b"]}},
    {"t_ns": 6, "event": "finding", "host": "a", "code": "E54", "severity": "warning", "what": "a", "saw": "b", "next": "c"},
    {"t_ns": 7, "event": "notice", "text": "t", "host": "a"},
    {"t_ns": 8, "event": "replica", "host": "a", "rank": 0, "attempt": 0, "replica": {"step": 1, "held": 3}},
    {"t_ns": 8, "event": "tempo", "attempt": 0, "steps": 20, "step_seconds": 0.1},
    {"t_ns": 9, "event": "rank_exited", "host": "a", "rank": 1, "attempt": 0, "code": 1, "time_ns": 9,
     "error": {"type": "ValueError", "message": "m", "time_ns": 9, "file": "t.py", "line": 3}},
    {"t_ns": 10, "event": "run_finished", "exit_code": 1, "status": "Failed", "secondary_status": "Failed", "reason": "r"},
]  # fmt: skip
TELEMETRY = [
    {
        "t_ns": 1,
        "host": "a",
        "cpu": {"count": 2, "busy_fraction": 0.5},
        "ranks": {"0": {"cpu_seconds": 1.0}},
        "progress": {},
    }
]
SPLIT = b"\n%%%%\n"


def check_recording(data: bytes) -> None:
    """Every verb that reads says something, or refuses in our own words."""
    from paceline.cli import main

    run, events, telemetry, segment = (data.split(SPLIT) + [b""] * 4)[:4]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "runs" / "r-000001"
        for name, content in (
            ("run.json", run), ("events.jsonl", events), ("hosts/a/telemetry.jsonl", telemetry),
            ("hosts/a/attempt_0/rank_0.seg", segment),
        ):  # fmt: skip
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        for words in (["why", str(place)], ["why", "--json", str(place)], ["logs", str(place)]):
            said = io.StringIO()
            with redirect_stdout(said), redirect_stderr(said), suppress(SystemExit):
                main(words)


def check_log(data: bytes) -> None:
    """Any text is a log."""
    from paceline.diagnosis.logs.judge_logs import judge_logs
    from paceline.diagnosis.logs.lines import Log, plain_text

    judge_logs([Log("job-0.log", plain_text(data.decode(errors="replace")))])


PIECES = st.sampled_from(
    [
        "Traceback (most recent call last):\n", '  File "t.py", line 3, in f\n', "ValueError: m\n", "[rank1]:[E1118 12:00:00.000 ",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)",
        "[Rank 3] ", "0: ", "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
        "exitcode  : -9 (pid: 7)\n", "Root Cause (first observed failure):\n", "NCCL WARN ", "\r", "\x1b[31m", "\n", " ",
        "torch.distributed.DistBackendError: ", "2026-01-01 00:00:00,123 ", "CUDA out of memory", "(pid 7) is killed by signal: Killed",
    ]
)  # fmt: skip
LOGS = st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=30).map(lambda parts: "".join(parts).encode())


def check_dump(data: bytes) -> None:
    """A flight-recorder dump, or a ValueError; nothing is imported and nothing called."""
    from paceline.diagnosis.logs.compare_dumps import judge_dumps
    from paceline.diagnosis.logs.flight_recorder_dumps import looks_like_dump, parse_dump

    if looks_like_dump(data):
        with suppress(ValueError):
            dump = parse_dump("dump_rank0", data)
            judge_dumps([dump, parse_dump("dump_rank1", pickle.dumps(DUMP))])
            judge_dumps([dump])


MESSAGE = {
    "process_group": ["0", "default_pg"],
    "pg_id": 0,
    "p2p_seq_id": 1,
    "op_id": 4,
    "state": "scheduled",
    "retired": False,
}
DUMP = {
    "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 3, "last_completed_collective": 2}},
    "entries": [{"collective_seq_id": 3, "pg_id": 0, "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce",
                 "input_sizes": [[4]], "input_dtypes": ["Float"], "state": "scheduled", "retired": False, "is_p2p": False,
                 "op_id": 3, "record_id": 0, "frames": [{"name": "f", "filename": "t.py", "line": 3}]},
                MESSAGE | {"collective_seq_id": 3, "profiling_name": "nccl:send 0->1", "is_p2p": True, "record_id": 1},
                MESSAGE | {"collective_seq_id": 3, "profiling_name": "nccl:coalesced", "is_p2p": False, "record_id": 2},
                {"collective_seq_id": 2, "process_group": ["", ""], "profiling_name": "nccl2:all_reduce", "op_id": 1}],
}  # fmt: skip


def check_ras(data: bytes) -> None:
    """An answer of NCCL's RAS service, or a ValueError; what is taken is compared with itself without an exception."""
    from paceline.launch.inspect.nccl_ras_answers import compared
    from paceline.probes.nccl_ras import parse_answer

    with suppress(ValueError):
        answer = parse_answer(data.decode("utf-8", "replace"))
        found = compared(answer, answer, {7, 8})
        assert found.groups is None or all(group.launched[0] <= group.launched[1] for group in found.groups)


RAS_RANK = {
    "rank": 0,
    "host": "h",
    "pid": 7,
    "status": {"init_state": 0, "async_error": 6},
    "collective_counts": {"AllReduce": 3},
}
RAS = {
    "communicators": [{"hash": "0x1", "secondary_hash": "0x2:0x3", "size": 3, "ranks": [RAS_RANK, RAS_RANK | {"pid": 8}],
                       "missing_ranks": [{"pid": 9, "host": "h", "status": {"unresponsive": True, "considered_dead": False}}]}],
    "ras": {"timeouts_count": 1},
}  # fmt: skip
RAS_LINES = st.sampled_from(
    [
        "Communicators... (0.00s)", "Errors", "======", "Warnings", "    0  1  4  8  32  32   RUNNING  MISMATCH",
        "#0-0 (27a079b828ff1a75) MISMATCH", "#0-0 (27a079b828ff1a75) INCOMPLETE", "#1-0 (0a) ERROR", "INCOMPLETE",
        "  Communicator ranks have different AllReduce operation counts", "  26 ranks have launched up to operation 6650",
        "  3 ranks have not launched any operations", "  Rank 1 -- GPU 1 managed by process 7 on node h", "  2 ranks reported System error",
        "  Rank 1 has launched up to operation 99999999999999999999 -- GPU 1 managed by process 8 on node h",
        "  Rank 1 has not launched any operations -- [process information not found]", "  Process 9 on node h managing GPUs 1,2",
        "  Rank 3 reported Remote process error -- GPU 3 (NVML 7) managed by process 7 on node h",
    ]
)  # fmt: skip
RAS_TEXT = st.lists(st.one_of(RAS_LINES, st.text(max_size=12)), max_size=40).map(
    lambda lines: "\n".join(["Communicators...", *lines, "Errors", *lines, "Warnings", *lines]).encode()
)


def check_ring(data: bytes) -> None:
    """A rank's ring as a file of any content and length."""
    from paceline.recording.ring import RingReader

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0-1.ring"
        path.write_bytes(data)
        try:
            reader = RingReader(path)
        except (ValueError, OSError):
            return
        # The agent leaves out what these raise: a rank that crashes may have written over its own ring.
        try:
            for read in (reader.header, reader.drain, reader.exchanges):
                with suppress(ValueError, struct.error):
                    read()
        finally:
            reader.close()


def _whole_ring() -> bytes:
    from paceline.recording.ring import RingWriter

    with tempfile.TemporaryDirectory() as folder:
        writer = RingWriter(Path(folder) / "0-1.ring", capacity=8)
        data = (Path(folder) / "0-1.ring").read_bytes()
        writer.drop()
        return data


@st.composite
def damaged(draw: Any, whole: bytes) -> bytes:
    """These bytes with some runs of them overwritten, and often cut."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        new = draw(st.binary(min_size=1, max_size=16))
        data[place : place + len(new)] = new
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


JSON_RUN = as_json(changed([RUN]))
TARGETS = {
    "messages": Target(as_json(changed(SAID)), check_message),
    "greetings": Target(
        st.one_of(st.binary(max_size=80), st.binary(max_size=60).map(lambda rest: GREETING + rest)), check_greeting
    ),
    "frames": Target(st.lists(st.one_of(FRAME, st.binary(max_size=50)), max_size=4).map(b"".join), check_frames),
    "jobs": Target(st.binary(max_size=120), check_job),
    "recordings": Target(
        st.tuples(JSON_RUN, as_lines(changed(EVENTS)), as_lines(changed(TELEMETRY), 3), st.binary(max_size=300)).map(
            SPLIT.join
        ),
        check_recording,
    ),
    "logs": Target(LOGS, check_log),
    "dumps": Target(
        st.one_of(as_json(changed([DUMP])), changed([DUMP]).map(pickle.dumps), damaged(pickle.dumps(DUMP))), check_dump
    ),
    "ras": Target(st.one_of(as_json(changed([RAS])), RAS_TEXT, st.binary(max_size=60)), check_ras),
    "rings": Target(damaged(_whole_ring()), check_ring),
    "requests": Target(as_json(changed(REQUESTS)), check_request, needs="uvicorn"),
    "web": Target(WEB_REQUESTS, check_web_request),
}
