"""The first agent towards peers that are hostile, of another version, or too early. Its own host is a fake that starts nothing."""

import asyncio
import contextlib
import inspect
import json
import struct
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from paceline.facts import Job, Program, ProgramKind, RankError, RankExit, Run
from paceline.launch.coordinator.coordinator import Coordinator
from paceline.launch.coordinator.limits import MOST_OF_ONE_ADDRESS, MOST_TOLD
from paceline.launch.job.framed_connection import MAX_HELLO_BYTES, NO_MAC, greet
from paceline.launch.job.messages import EventMessage, ExitedMessage, Hello, StartAttemptMessage, decode, encode
from paceline.launch.job.outcome import Stop, StopKind, stopped
from paceline.launch.job.state import Dismiss, JobPhase, begin
from paceline.recording.fact_json import from_plain, to_plain
from paceline.recording.layout import RunDirectory
from paceline.recording.writer import EventLog


@dataclass
class QuietHost:
    """Stands for this host's own agent: obeys, and never has anything to say."""

    identity: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(name="first"))
    ports: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(numbers=()))
    said: list[str] = field(default_factory=list)

    def start_attempt(self, message):
        self.said.append("form")

    def stop(self, message):
        self.said.append("stop")

    def kill(self):
        self.said.append("kill")

    async def finish(self, exit_code, failure):
        self.said.append("finish")


HELLO = Hello(
    host_name="peer", wanted_name=None, address=None, node_rank=None, ranks=1, hosts_wanted=(2, 3),
    paceline_version="0.1.0",
)  # fmt: skip


def first_agent(tmp_path, **terms):
    job = Job(
        name="j", program=Program(kind=ProgramKind.SCRIPT, target="t.py"), **{"min_hosts": 2, "max_hosts": 3,
        "node_rank": None, "last_call_seconds": 0.0, **terms},
    )  # fmt: skip
    events = []
    directory = RunDirectory(tmp_path / "run")
    agent = Coordinator(
        job=job,
        run_facts=Run(id="r-1", name="j", directory=str(directory.path), command=(), started_ns=0, first_host="first"),
        directory=directory,
        local=QuietHost(),
        token=None,
        report=events.append,
        events=EventLog(directory.events_file),
        state=begin(job, 0.0),
    )
    return agent, events


async def joined(port, hello=HELLO):
    """A greeted connection whose hello was sent and answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    link = await greet(reader, writer, None, server=False)
    link.send(hello)
    await link.receive()
    return link


def raw(link, **message):
    payload = json.dumps(message).encode()
    link.writer.write(struct.pack(">I", len(payload)) + NO_MAC + payload)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def takes_port(talk):
    return len(inspect.signature(talk).parameters) == 4


def with_agent(tmp_path, talk, **terms):
    """Run `talk(agent, events, join[, port])` beside a running first agent; `join()` is a new peer. Fails on an exception nobody saw."""
    links, unseen = [], []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        agent, events = first_agent(tmp_path, **terms)
        server = await asyncio.start_server(agent.accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        running = asyncio.get_running_loop().create_task(agent.run(server))

        async def join():
            links.append(await joined(port))
            return links[-1]

        await talk(agent, events, join, *([port] if takes_port(talk) else []))
        for link in links:
            link.close()
            await link.writer.wait_closed()
        await until(lambda: not agent.peers)
        running.cancel()
        await asyncio.wait([running])
        # A transport closes one turn of the loop after it is told to.
        await asyncio.sleep(0)
        agent.flush()

    asyncio.run(main())
    assert unseen == []


GARBAGE = [
    {"type": "exited", "exit": {}},
    {"type": "exited", "exit": {"host": "x", "rank": "y", "attempt": 0, "code": "z", "time_ns": 0}},
    {"type": "event", "event": {}},
    {"type": "event", "event": {"event": ["list"]}},
    {"type": "event", "event": {"event": "finding", "severity": "??"}},
    {"type": "event", "event": {"event": "notice", "self": 1, "t_ns": "late"}},
    {"type": "lines", "kind": "../../../outside", "lines": [{"t_ns": 1}]},
    {"type": "lines", "kind": "telemetry", "lines": [{"progress": "none"}]},
    {"type": "lines", "kind": "telemetry", "lines": [{"progress": {"0": 7}}]},
    {"type": "idle", "attempt": -1},
    {"type": "welcome", "run_id": "r", "name": "n", "job_name": "j"},
    {"type": "stop_request", "signal": "SIGKILL", "reason": "because", "now": True},
    {"type": "form", "attempt": 9, "placements": [], "master_addr": "x", "store_port": 1},
]


PONG = {"type": "pong", "sent_ns": 1, "at_ns": 1}


async def heard_out(agent, link, host):
    """Everything that this guest has sent was read: it may always say what its clock shows."""
    raw(link, **PONG)
    await until(lambda: host in agent.hang_monitor.offsets or len(agent.peers) == 1)


async def guest_of(agent, join):
    """One more host than the running attempt has."""
    await join()
    await until(lambda: agent.state.phase is JobPhase.RUNNING)
    before = set(agent.peers)
    guest = await join()
    (name,) = set(agent.peers) - before
    return guest, name


@pytest.mark.parametrize("message", GARBAGE, ids=lambda message: json.dumps(message)[:60])
def test_nothing_that_a_waiting_host_sends_ends_the_job_or_the_agent(tmp_path, message):
    async def talk(agent, events, join):
        guest, name = await guest_of(agent, join)
        raw(guest, **message)
        await heard_out(agent, guest, name)
        assert agent.state.phase is JobPhase.RUNNING
        assert not {"stop", "kill"} & set(agent.local.said)
        assert agent.progress == {}

    with_agent(tmp_path, talk)
    assert not list(tmp_path.glob("outside*")) and not list(tmp_path.parent.glob("outside*"))


OTHERS = [
    {"type": "refused", "code": "U06", "what": "no", "saw": "no", "next": "no"},
    {"type": "exited", "exit": {"host": "first", "rank": 0, "attempt": 0, "code": 1, "time_ns": 1}},
    {"type": "idle", "attempt": 0},
    {"type": "ready", "attempt": 0},
    {"type": "event", "event": {"event": "run_finished", "exit_code": 0}},
    {"type": "event", "event": {"event": "finding", "severity": "error", "what": "curl ... | sudo sh"}},
    {"type": "lines", "kind": "logs", "lines": [{"rank": 0, "text": "mine"}]},
    {"type": "claim", "digests": {"model.pt": "0" * 64}},
    {"type": "gathered", "kinds": ["model"], "errors": []},
    {"type": "stop_request", "signal": "SIGTERM", "reason": "because"},
]


@pytest.mark.parametrize("message", OTHERS, ids=lambda message: json.dumps(message)[:40])
def test_of_a_host_that_is_not_part_of_the_attempt_nothing_counts_and_it_is_told_once(tmp_path, message):
    async def talk(agent, events, join):
        guest, name = await guest_of(agent, join)
        recorded = len(events)
        raw(guest, **message)
        raw(guest, **message)
        await heard_out(agent, guest, name)
        assert agent.state.phase is JobPhase.RUNNING
        assert agent.data.gathered == {} and agent.data.ledger.owners == {}
        told = [(event["event"], event["host"]) for event in events[recorded:] if event["event"] != "status"]
        assert told == [("notice", name)]
        assert not list(tmp_path.rglob("peers/*"))

    with_agent(tmp_path, talk)


def test_a_guest_that_takes_the_name_of_a_lost_host_has_no_part_in_its_attempt(tmp_path):
    async def talk(agent, events, join):
        lost = await join()
        await until(lambda: agent.state.phase is JobPhase.RUNNING)
        (name,) = agent.peers
        # Its ranks were done, so that its loss ends nothing.
        raw(lost, type="exited", exit={"host": name, "rank": 1, "attempt": 0, "code": 0, "time_ns": 1})
        raw(lost, type="idle", attempt=0)
        await until(lambda: name in agent.state.idle)
        lost.close()
        await until(lambda: not agent.peers)
        guest = await join()
        assert name in agent.peers
        raw(guest, type="claim", digests={"model.pt": "0" * 64})
        raw(guest, **PONG)
        await until(lambda: name in agent.hang_monitor.offsets)
        assert agent.data.ledger.owners == {}

    with_agent(tmp_path, talk)


def test_an_exit_is_of_the_host_that_says_it_whatever_host_it_names(tmp_path):
    async def talk(agent, events, join):
        link = await join()
        await until(lambda: agent.state.phase is JobPhase.RUNNING)
        (name,) = agent.peers
        raw(link, type="exited", exit={"host": "first", "rank": 1, "attempt": 0, "code": 0, "time_ns": 1})
        await until(lambda: agent.state.exits)
        assert [exit.host for exit in agent.state.exits] == [name]

    with_agent(tmp_path, talk)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "gathered", "kinds": ["model"], "errors": []},
        {"type": "claim", "digests": {"../../outside": "0" * 64}},
        {"type": "exited", "exit": {"host": "x", "rank": 0, "attempt": 0, "code": 1, "time_ns": 1}},
        {"type": "hello", **json.loads(encode(HELLO))},
    ],
    ids=lambda message: message["type"],
)
def test_a_placed_host_that_says_what_nobody_says_is_lost_or_not_heard(tmp_path, message):
    async def talk(agent, events, join):
        link = await join()
        await until(lambda: agent.state.phase is JobPhase.RUNNING)
        raw(link, **message)
        raw(link, **PONG)
        await until(lambda: agent.hang_monitor.offsets or not agent.peers)
        assert agent.data.gathered == {} and agent.data.ledger.owners == {}
        assert not [exit for exit in agent.state.exits if exit.rank == 0]

    with_agent(tmp_path, talk)


def test_a_host_that_says_what_no_agent_says_is_sent_away(tmp_path):
    async def talk(agent, events, join):
        link = await join()
        await until(lambda: agent.state.phase is JobPhase.RUNNING)
        raw(link, **json.loads(encode(HELLO)))
        await until(lambda: not agent.peers)
        assert "host_lost" in [event["event"] for event in events]

    with_agent(tmp_path, talk)


def test_a_crowd_of_strangers_costs_few_connections_and_a_host_still_comes_in(tmp_path):
    async def talk(agent, events, join, port):
        await join()
        strangers = []
        for _ in range(300):
            with contextlib.suppress(ConnectionError):
                strangers.append(await asyncio.open_connection("127.0.0.1", port))
        await join()
        assert agent.state.phase is JobPhase.RUNNING and len(agent.peers) == 2
        told = [event for event in events if event["event"] == "notice"]
        assert len(told) <= MOST_TOLD
        open_ones = 0
        for reader, writer in strangers:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(0.01):
                    await reader.read()
            open_ones += not reader.at_eof() and reader.exception() is None
            writer.close()
        assert open_ones <= MOST_OF_ONE_ADDRESS
        await asyncio.gather(*(writer.wait_closed() for _, writer in strangers), return_exceptions=True)

    with_agent(tmp_path, talk)


def test_a_host_of_the_name_of_one_that_left_and_was_gone_is_lost_all_the_same(tmp_path):
    async def talk(agent, events, join):
        agent._act(Dismiss("peer", stopped(Stop(StopKind.SIGNAL, "SIGTERM", "it leaves"))))
        link = await join()
        await until(lambda: agent.peers)
        assert list(agent.peers) == ["peer"]
        link.close()
        await until(lambda: not agent.peers)
        assert "host_lost" in [event["event"] for event in events]

    with_agent(tmp_path, talk)


def test_whoever_says_nothing_loses_the_place_and_a_long_first_word_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.launch.coordinator.coordinator.GREETING_SECONDS", 0.05)

    async def talk(agent, events, join, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            assert await reader.read() != b"" and reader.at_eof()
        writer.close()
        await writer.wait_closed()
        monkeypatch.setattr("paceline.launch.coordinator.coordinator.GREETING_SECONDS", 5.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await greet(reader, writer, None, server=False)
        writer.write(struct.pack(">I", MAX_HELLO_BYTES + 1))
        assert await reader.read() == b""
        # Not because the time was up.
        assert any(f"a frame of {MAX_HELLO_BYTES + 1} bytes" in event.get("text", "") for event in events)
        writer.close()
        await writer.wait_closed()

    with_agent(tmp_path, talk)


def test_what_a_host_says_beyond_its_rate_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.launch.coordinator.limits.BURST_MESSAGES", 1.0)
    monkeypatch.setattr("paceline.launch.coordinator.limits.MESSAGES_PER_SECOND", 4.0)

    async def talk(agent, events, join):
        link = await join()
        await until(lambda: agent.state.phase is JobPhase.RUNNING)
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            raw(link, type="beat", sent_ns=1)
        raw(link, **PONG)
        await until(lambda: agent.hang_monitor.offsets)
        assert asyncio.get_running_loop().time() - began > 0.5

    with_agent(tmp_path, talk)


def test_a_peer_that_is_quicker_than_the_first_host_itself_still_comes_second(tmp_path):
    async def main():
        agent, _ = first_agent(tmp_path)
        server = await asyncio.start_server(agent.accept, "127.0.0.1", 0)
        early = asyncio.get_running_loop().create_task(joined(server.sockets[0].getsockname()[1]))
        await asyncio.wait([early], timeout=0.1)
        running = asyncio.get_running_loop().create_task(agent.run(server))
        link = await early
        await until(lambda: agent.state.phase is JobPhase.RUNNING)
        hosts = [placement.host for placement in agent.state.placements]
        link.close()
        await link.writer.wait_closed()
        await until(lambda: not agent.peers)
        running.cancel()
        await asyncio.wait([running])
        return hosts

    assert asyncio.run(main())[0] == "first"


def test_every_host_is_told_the_first_hosts_strategy_and_a_notice_of_all_ranks_is_recorded_once(tmp_path):
    async def talk(agent, events, join):
        link = await join()
        formed = await link.receive()
        while not isinstance(formed, StartAttemptMessage):
            formed = await link.receive()
        assert (formed.gradients, formed.allow_lossy) == ("auto", True)
        started = next(event for event in events if event["event"] == "attempt_started")
        assert {**to_plain(formed), "world_size": formed.world_size}.items() <= started.items()
        assert started["store_port"] > 0 and [host["first_rank"] for host in started["hosts"]] == [0, 1]
        for rank in (2, 3):
            said = {"event": "notice", "text": "direct", "topic": "gradients", "rank": rank, "attempt": 0}
            link.send(EventMessage(event=said))
        link.send(EventMessage(event={"event": "notice", "text": "last"}))
        await until(lambda: "last" in [event.get("text") for event in events])
        assert [event["rank"] for event in events if event.get("text") == "direct"] == [2]

    with_agent(tmp_path, talk, gradients="auto", allow_lossy=True)


def test_the_end_of_a_rank_is_recorded_once_it_is_judged_and_of_the_host_that_said_it(tmp_path):
    async def talk(agent, events, join):
        link = await join()
        await until(lambda: agent.state.placements)
        exit = RankExit(host="first", rank=1, attempt=0, code=1, time_ns=4)
        link.send(ExitedMessage(exit=exit, early=True))
        link.send(ExitedMessage(exit=replace(exit, note="n")))
        await until(lambda: "rank_exited" in [event["event"] for event in events])
        (ended,) = [event for event in events if event["event"] == "rank_exited"]
        assert from_plain(RankExit, ended) == replace(exit, note="n", host=next(iter(agent.peers)))

    with_agent(tmp_path, talk)


def test_what_cannot_be_carried_out_ends_the_run_instead_of_leaving_it_waiting(tmp_path):
    class Broken(QuietHost):
        def start_attempt(self, message):
            raise RuntimeError("no way")

    async def main():
        agent, _ = first_agent(tmp_path, min_hosts=1, max_hosts=1)
        agent.local = Broken()
        async with asyncio.timeout(10):
            await agent.run()

    with pytest.raises(RuntimeError, match="no way"):
        asyncio.run(main())


def test_a_wish_to_stop_that_comes_after_the_end_leaves_no_trace(tmp_path):
    async def talk(agent, events, join):
        await until(lambda: agent.state.members)
        agent.ask_stop(Stop(StopKind.USER, "SIGTERM", "first"))
        assert agent.state.phase is JobPhase.ENDED
        agent.ask_stop(Stop(StopKind.USER, "SIGTERM", "second"), now=True)
        assert [event["reason"] for event in events if event["event"] == "stop_asked"] == ["first"]

    with_agent(tmp_path, talk)


def test_the_exit_of_a_rank_keeps_its_reason_across_the_wire():
    error = RankError(type="ValueError", message="no", time_ns=3, file="t.py", line=7)
    message = ExitedMessage(exit=RankExit(host="h", rank=1, attempt=0, code=1, time_ns=4, error=error, note="n"))
    assert decode(encode(message)) == message
