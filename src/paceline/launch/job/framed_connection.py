"""Framed, authenticated messages between agents over one TCP connection.

    frame      = length (4 bytes, big endian) + mac (32 bytes) + payload (JSON)
    greeting   = "PACELINE" + version (1 byte) + token flag (1 byte) + nonce (16 bytes), sent by both sides first
    proof      = HMAC-SHA256(key, direction), sent next, so that a wrong token is detected at once. The client sends its proof first:
                 the server sends nothing that helps to guess a token, and answers a wrong proof with zeros
    mac        = HMAC-SHA256(key, direction + frame number + payload); key = HMAC-SHA256(token, server nonce + client nonce)

Every mac depends on both nonces and on the frame number. A frame that was recorded elsewhere, repeated, or sent back is refused.
Without a token the macs are zero and nothing is proven. The caller decides what an unproven peer may do.
"""

import asyncio
import hmac
import os
import socket
import struct
import time
from dataclasses import dataclass, field

import msgspec

from paceline.launch.job import messages
from paceline.launch.job.messages import Beat, Message, Ping

_MAGIC = b"PACELINE"
_LENGTH = struct.Struct(">I")
_COUNTER = struct.Struct(">Q")
# struct tcp_info of <linux/tcp.h>: tcpi_last_ack_recv, in ms.
_TCP_INFO_BYTES = 104
_LAST_ACKNOWLEDGED = struct.Struct("=I")
_LAST_ACKNOWLEDGED_AT = 56
_NONCE_BYTES = 16
_MAC_BYTES = 32
_GREETING_BYTES = len(_MAGIC) + 2 + _NONCE_BYTES
MAX_FRAME_BYTES = 16 * 1024 * 1024
# The limit for a host that is not admitted yet.
MAX_HELLO_BYTES = 16 * 1024
NO_MAC = bytes(_MAC_BYTES)
BEAT_SECONDS = 1.0
PING_SECONDS = 2.0
SILENCE_SECONDS = 10.0
# So long an agent may be silent whose machine answers: it is stopped (Ctrl-Z), or gets no CPU.
STOPPED_SECONDS = 300.0
STOPPED = f"its agent was silent for {STOPPED_SECONDS:g} s, although its machine answers (the agent is stopped)"
SILENT = f"its agent was silent for {SILENCE_SECONDS:g} s (network cut, or its machine is stopped)"
ENDED = "its agent ended without a word (killed, or its machine is gone)"


class WireError(Exception):
    """The other side is not a paceline agent of this version, or could not prove that it holds the token."""


class TokenMismatch(WireError):
    """The two agents have different tokens, or only one of them has one."""


@dataclass(slots=True)
class Connection:
    """One connection to another agent."""

    reader: asyncio.StreamReader
    """Where the other agent's bytes arrive."""
    writer: asyncio.StreamWriter
    """Where bytes for the other agent go."""
    key: bytes | None
    """The session's key, which authenticates every frame; None: there is no token, and nothing is proven."""
    send_direction: bytes
    """A byte in the MAC of every frame that is sent. A frame that is sent back has the wrong byte and is refused."""
    receive_direction: bytes
    """The byte in the MAC of every frame that arrives."""
    sent: int = 0
    """Number of frames sent so far. The next frame gets this number."""
    received: int = 0
    """Number of frames received so far. The next frame has this number."""
    most_bytes: int = MAX_HELLO_BYTES
    """The longest payload that is accepted. The limit is small until the host is admitted."""
    received_bytes: int = 0
    """Length of the last payload that arrived."""
    closed: bool = field(default=False)
    """`close` was called on this side."""
    silence_seconds: float = SILENCE_SECONDS
    """How long an agent may be silent whose machine does not answer either."""
    stopped_seconds: float = STOPPED_SECONDS
    """How long an agent may be silent whose machine answers."""

    @property
    def authenticated(self) -> bool:
        return self.key is not None

    def send(self, message: Message) -> None:
        """Queue the message. If the connection is closed already, the message is dropped: `receive` reports the loss."""
        if self.closed or self.writer.is_closing():
            return
        payload = messages.encode(message)
        mac = _mac(self.key, self.send_direction, self.sent, payload)
        self.sent += 1
        self.writer.write(_LENGTH.pack(len(payload)) + mac + payload)

    async def receive(self) -> Message:
        """The next message.

        Raises:  WireError: a frame that is too long, unproven or not a message
                 asyncio.IncompleteReadError, OSError: the connection ended
        """
        (length,) = _LENGTH.unpack(await self.reader.readexactly(_LENGTH.size))
        if length > self.most_bytes:
            raise WireError(f"a frame of {length} bytes (at most {self.most_bytes})")
        self.received_bytes = length
        mac = await self.reader.readexactly(_MAC_BYTES)
        payload = await self.reader.readexactly(length)
        if not hmac.compare_digest(mac, _mac(self.key, self.receive_direction, self.received, payload)):
            raise WireError("a frame whose token does not match")
        self.received += 1
        try:
            return messages.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise WireError(f"not a message of version {messages.VERSION}: {error}") from error

    async def hear(self) -> Message:
        """The next message of an agent that sends a sign of life every second.

        An agent that is stopped sends nothing, and its ranks train on. Its machine still acknowledges our own signs of life.

        Raises:  TimeoutError: no message arrived for SILENCE_SECONDS, or for STOPPED_SECONDS from a machine that answers;
                 otherwise as receive()
        """
        receiving = asyncio.ensure_future(self.receive())
        try:
            silent_seconds = 0.0
            while not (await asyncio.wait({receiving}, timeout=self.silence_seconds))[0]:
                silent_seconds += self.silence_seconds
                if not self._machine_answers():
                    raise TimeoutError(SILENT)
                if silent_seconds >= self.stopped_seconds:
                    raise TimeoutError(STOPPED)
            return receiving.result()
        finally:
            receiving.cancel()

    def _machine_answers(self) -> bool:
        """Whether the other machine's kernel has acknowledged something since our last signs of life."""
        try:
            found = self.writer.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES
            )
        except OSError:
            return False
        (age_ms,) = _LAST_ACKNOWLEDGED.unpack_from(found, _LAST_ACKNOWLEDGED_AT)
        return bool(age_ms < 1000 * (2 * BEAT_SECONDS + 1))

    async def beat(self) -> None:
        """Send a sign of life every second until the connection ends."""
        while not self.closed and not self.writer.is_closing():
            self.send(Beat(sent_ns=time.time_ns()))
            await asyncio.sleep(BEAT_SECONDS)

    async def ask_time(self) -> None:
        """Ask for the time of the other host's clock repeatedly until the connection ends."""
        while not self.closed and not self.writer.is_closing():
            self.send(Ping(sent_ns=time.time_ns()))
            await asyncio.sleep(PING_SECONDS)

    def close(self) -> None:
        self.closed = True
        self.writer.close()


def _mac(key: bytes | None, direction: bytes, number: int, payload: bytes) -> bytes:
    if key is None:
        return NO_MAC
    return hmac.digest(key, direction + _COUNTER.pack(number) + payload, "sha256")


async def greet(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes | None, *, server: bool
) -> Connection:
    """Exchange greetings and derive the session's key.

    Raises:  WireError: another protocol, another version, or a token on one side only
    """
    nonce = os.urandom(_NONCE_BYTES)
    writer.write(_MAGIC + bytes([messages.VERSION, token is not None]) + nonce)
    theirs = await reader.readexactly(_GREETING_BYTES)
    if theirs[: len(_MAGIC)] != _MAGIC:
        raise WireError("what answers there is not a paceline agent")
    version, has_token = theirs[len(_MAGIC)], bool(theirs[len(_MAGIC) + 1])
    if version != messages.VERSION:
        raise WireError(f"the other agent speaks version {version}, this one version {messages.VERSION}")
    if has_token != (token is not None):
        raise TokenMismatch("one of the two agents has a token, the other has none")
    their_nonce = theirs[-_NONCE_BYTES:]
    server_nonce, client_nonce = (nonce, their_nonce) if server else (their_nonce, nonce)
    key = hmac.digest(token, server_nonce + client_nonce, "sha256") if token is not None else None
    down, up = b"\x01", b"\x02"
    sending, receiving = (down, up) if server else (up, down)
    if not server:
        writer.write(_proof(key, sending))
    proven = hmac.compare_digest(await reader.readexactly(_MAC_BYTES), _proof(key, receiving))
    if server:
        writer.write(_proof(key, sending) if proven else NO_MAC)
    if not proven:
        raise TokenMismatch("the other agent's token is another one")
    return Connection(reader, writer, key, sending, receiving)


def _proof(key: bytes | None, direction: bytes) -> bytes:
    return NO_MAC if key is None else hmac.digest(key, direction, "sha256")
