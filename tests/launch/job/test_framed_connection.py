"""The agents' protocol over a pair of sockets: greetings, tokens, frames that were tampered with."""

import asyncio
import socket
import struct

import pytest

from paceline.launch.job.framed_connection import WireError, greet
from paceline.launch.job.messages import VERSION, Beat, Hello, IdleMessage


async def _streams(sock):
    return await asyncio.open_connection(sock=sock)


async def pair(token_a, token_b):
    """Both ends, greeted; an end that refused is its WireError."""
    left, right = socket.socketpair()
    server, client = await _streams(left), await _streams(right)
    results = await asyncio.gather(
        greet(*server, token_a, server=True), greet(*client, token_b, server=False), return_exceptions=True
    )
    return results, (server, client)


def close(ends):
    for _, writer in ends:
        writer.close()


def test_messages_arrive_as_they_were_sent_in_both_directions():
    async def talk():
        (a, b), ends = await pair(b"secret", b"secret")
        a.send(IdleMessage(attempt=3))
        a.send(Beat(sent_ns=1))
        b.send(Beat(sent_ns=2))
        got = [await b.receive(), await b.receive(), await a.receive()]
        close(ends)
        return got, a.authenticated

    got, authenticated = asyncio.run(talk())
    assert got == [IdleMessage(attempt=3), Beat(sent_ns=1), Beat(sent_ns=2)] and authenticated


def test_without_a_token_frames_pass_and_nothing_is_proven():
    async def talk():
        (a, b), ends = await pair(None, None)
        a.send(Beat(sent_ns=7))
        got = await b.receive()
        close(ends)
        return got, b.authenticated

    assert asyncio.run(talk()) == (Beat(sent_ns=7), False)


@pytest.mark.parametrize(("ours", "theirs"), [(b"one", b"two"), (b"one", None), (None, b"two")])
def test_tokens_that_differ_are_refused_on_both_sides(ours, theirs):
    async def talk():
        results, ends = await pair(ours, theirs)
        close(ends)
        return results

    assert all(isinstance(result, WireError) for result in asyncio.run(talk()))


def test_a_stranger_gets_nothing_to_guess_the_token_from():
    async def talk(proof):
        left, right = socket.socketpair()
        server, stranger = await _streams(left), await _streams(right)
        greeted = asyncio.create_task(greet(*server, b"a weak secret", server=True))
        reader, writer = stranger
        writer.write(b"PACELINE" + bytes([VERSION, 1]) + bytes(16))
        greeting = await reader.readexactly(26)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)
        writer.write(proof)
        answer = await reader.readexactly(32)
        with pytest.raises(WireError, match="another one"):
            await greeted
        close((server, stranger))
        return greeting, answer

    greeting, answer = asyncio.run(talk(bytes(32)))
    assert greeting.startswith(b"PACELINE") and answer == bytes(32)


def test_a_frame_that_was_sent_twice_is_refused():
    async def talk():
        (a, b), ends = await pair(b"secret", b"secret")
        sent = []
        write = a.writer.write
        a.writer.write = lambda data: (sent.append(data), write(data))
        a.send(Beat(sent_ns=1))
        await b.receive()
        write(sent[0])
        try:
            await b.receive()
        finally:
            close(ends)

    with pytest.raises(WireError, match="token"):
        asyncio.run(talk())


def test_a_frame_longer_than_allowed_is_refused_before_it_is_read():
    async def talk():
        (a, b), ends = await pair(None, None)
        a.writer.write(struct.pack(">I", 1 << 31))
        try:
            await b.receive()
        finally:
            close(ends)

    with pytest.raises(WireError, match="at most"):
        asyncio.run(talk())


def test_whatever_else_answers_on_the_port_is_no_agent():
    async def talk():
        left, right = socket.socketpair()
        ours, theirs = await _streams(left), await _streams(right)
        theirs[1].write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        try:
            await greet(*ours, None, server=False)
        finally:
            close((ours, theirs))

    with pytest.raises(WireError, match="not a paceline agent"):
        asyncio.run(talk())


def test_a_message_that_is_none_of_the_protocols_is_refused():
    async def talk():
        (a, b), ends = await pair(None, None)
        payload = b'{"type":"format_disk"}'
        a.writer.write(struct.pack(">I", len(payload)) + bytes(32) + payload)
        try:
            await b.receive()
        finally:
            close(ends)

    with pytest.raises(WireError, match="not a message"):
        asyncio.run(talk())


def test_a_hello_carries_what_the_first_agent_checks():
    async def talk():
        (a, b), ends = await pair(b"t", b"t")
        hello = Hello(
            host_name="node07",
            wanted_name=None,
            address="10.0.0.7",
            node_rank=1,
            ranks=8,
            hosts_wanted=(1, 4),
            paceline_version="0.1.0",
        )
        b.send(hello)
        got = await a.receive()
        close(ends)
        return got == hello

    assert asyncio.run(talk())


async def _over_tcp():
    """Two ends over TCP, greeted, and what closes them."""
    accepted = asyncio.get_running_loop().create_future()
    listener = await asyncio.start_server(lambda reader, writer: accepted.set_result((reader, writer)), "127.0.0.1", 0)
    client = await asyncio.open_connection(*listener.sockets[0].getsockname())
    server = await accepted
    a, b = await asyncio.gather(greet(*server, None, server=True), greet(*client, None, server=False))
    listener.close()
    return a, b, (server, client)


def test_an_agent_that_is_stopped_is_not_lost_while_its_machine_answers():
    async def talk():
        a, b, ends = await _over_tcp()
        a.silence_seconds, a.stopped_seconds = 0.5, 1e9
        beating = asyncio.create_task(a.beat())
        hearing = asyncio.create_task(a.hear())
        # Many times the silence in which a machine that does not answer is lost.
        done, _ = await asyncio.wait({hearing}, timeout=3.0)
        b.send(Beat(sent_ns=5))
        got = await hearing
        beating.cancel()
        close(ends)
        return done, got

    assert asyncio.run(talk()) == (set(), Beat(sent_ns=5))


def test_an_agent_that_is_stopped_for_longer_is_lost_and_the_reason_says_so():
    async def talk():
        a, _, ends = await _over_tcp()
        a.silence_seconds, a.stopped_seconds = 0.1, 0.5
        beating = asyncio.create_task(a.beat())
        try:
            await a.hear()
        except TimeoutError as error:
            return str(error)
        finally:
            beating.cancel()
            close(ends)

    assert "its machine answers" in asyncio.run(talk())


def test_silence_is_a_loss_where_nothing_shows_that_the_machine_lives():
    async def talk():
        # A socket of another kind has no acknowledgements to look at, as one to a machine that is gone.
        (a, _), ends = await pair(None, None)
        a.silence_seconds = 0.1
        try:
            await a.hear()
        except TimeoutError as error:
            return str(error)
        finally:
            close(ends)

    assert "network cut" in asyncio.run(talk())
