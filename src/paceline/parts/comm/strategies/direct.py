"""`direct`: equal-byte shards of a fused buffer, one hop to the shard's owner and one back.

The idea is Herring's (Thangakrishnan et al. 2020, SC20): the buffer is cut into one equal part per host, whatever tensors begin or end in
a part. All other hosts send part i to host i at the same time. Host i adds the parts in the order of ranks and sends the sum back. With
several ranks on a host, they first make their sum in the host's memory. A ring needs 2 (h - 1) latencies, this strategy two, and as many
bytes. Receives are posted early, because gloo would otherwise take two latencies per hop (see preposted_receives.py).

Large parts are split into eight messages: while one message travels, another is added. Each rank requests two messages of each other rank
at a time. gloo sends only what was requested, so at most that much traffic meets at one receiver. If the link is saturated, a ring has
less contention and is a little faster (docs/exchange.md has the figures).

Buckets: with many hosts the parts of a 25 MiB bucket are small, and an exchange is again mostly latency. The solution is Fairring's:
buckets are fused up to 25 MiB per 8 hosts (its README: 25 MiB at 8, 50 at 16, 100 at 32 machines). Up to 8 hosts, no bucket is
fused, because a bucket that waits for the next one starts later.

The floor is the size below which a bucket uses `ring`: Fairring was slower than NCCL below about 6 MiB. Against gloo no such size was found
(4 ranks, 4 KiB: 27 against 130 ms at 10 ms, 0.9 against 1.3 ms on loopback; 2 ranks: equally fast), so the floor is 0 by default.

Bytes sent per rank of l ranks on each of h hosts: 2 S / l (h - 1) / h. Memory: posted receives of S / l (h - 1) / h for the largest
exchange of each lane, and the host's shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..transports.communicator import Communicator
from ..transports.preposted_receives import Asked, Tag
from . import ring
from .codec import Codec, ErrorFeedback
from .flat_buffer import FlatBuffer
from .hierarchical import through_hosts
from .shards import Shard, cut, divide_first, equal_shares, largest_message

MIB = 1024 * 1024
FUSE_FROM_HOSTS = 8
FLOOR_BYTES = 0
# The number of pieces of a share that a rank requests of each other rank at a time, for parts and for sums.
AHEAD = 2


def fuse_bytes(hosts: int, settings: Mapping[str, int]) -> int:
    """Up to this many bytes, the buckets of a step are exchanged as one; 0: each bucket by itself.

    Holds:   fuse_bytes(4, {}) == 0; fuse_bytes(16, {}) == 50 MiB; fuse_bytes(4, {"fuse_mib": 10}) == 10 MiB
    """
    asked = settings.get("fuse_mib", -1)
    if asked >= 0:
        return asked * MIB
    return 0 if hosts <= FUSE_FROM_HOSTS else 25 * MIB * hosts // FUSE_FROM_HOSTS


def average(
    flat_buffer: FlatBuffer,
    communicator: Communicator,
    codec: Codec,
    errors: ErrorFeedback,
    settings: Mapping[str, int],
) -> None:
    """Compute the average in place.

    Holds:   plain codec, one rank a host: bitwise the sum in the order of ranks times 1 / n, so bitwise the plain all-reduce with two
             ranks; otherwise allclose to it, rtol 1e-6 (float32)
    """
    if communicator.size == 1:
        return
    floor = settings.get("floor_kib", -1)
    if flat_buffer.flat.nbytes < (FLOOR_BYTES if floor < 0 else floor * 1024):
        ring.average(flat_buffer, communicator, codec, errors, {})
        return
    scale = divide_first(flat_buffer.flat, communicator.size, codec)

    def between(part: torch.Tensor, members: Sequence[int]) -> None:
        bounds = equal_shares(part.numel(), len(members), codec.align)
        two_hops(
            part,
            communicator,
            members,
            bounds,
            codec=codec,
            errors=errors,
            key=(flat_buffer.key, "direct"),
            scale=scale,
        )

    through_hosts(flat_buffer.flat, communicator, between, scale)


def two_hops(
    flat: torch.Tensor,
    communicator: Communicator,
    members: Sequence[int],
    bounds: Sequence[int],
    *,
    codec: Codec,
    errors: ErrorFeedback,
    key: object,
    scale: float,
) -> None:
    """Sum `flat` over the members, times `scale`, in place. The i-th member owns flat[bounds[i]:bounds[i + 1]]; parts may be empty.

    With a lossy codec, each rank encodes its part for each owner once, and the owner encodes the sum once. Every rank, the owner too,
    uses the decoded sum.
    """
    if len(members) > 1:
        _TwoHops(flat, communicator, list(members), bounds, codec, errors, key).run(scale)


class _TwoHops:
    def __init__(
        self,
        flat: torch.Tensor,
        communicator: Communicator,
        members: list[int],
        bounds: Sequence[int],
        codec: Codec,
        errors: ErrorFeedback,
        key: object,
    ) -> None:
        self.receives = communicator.receives
        self.members, self.me = members, members.index(communicator.rank)
        self.codec, self.dtype = codec, flat.dtype
        self.shares = cut(flat, bounds, codec, errors, key)
        self.pieces = len(self.shares[0])
        self.kind, self.depth = (Tag.PUSH, 1) if self.pieces == 1 else (Tag.PUSH_PIECES, AHEAD)
        # Each rank starts with another peer, so that the first messages do not all go to one owner.
        self.others = [(self.me + step) % len(members) for step in range(1, len(members))]

    def run(self, scale: float) -> None:
        receives, own = self.receives, self.shares[self.me]
        asked = [self._ask_for_answers(number) for number in range(min(AHEAD, self.pieces))]
        self._open_boxes()
        for number in range(self.pieces):
            for index in self.others:
                if (piece := self.shares[index][number]).size_bytes:
                    receives.send(self.kind, self.members[index], self.codec.write(piece.values, piece.error))
        for number, piece in enumerate(own):
            if piece.size_bytes:
                self._answer(piece, self._sum(piece, scale))
            if number:
                self._take_answers(asked[number - 1])
                if len(asked) < self.pieces:
                    asked.append(self._ask_for_answers(len(asked)))
        self._take_answers(asked[-1])
        receives.finish()

    def _ask_for_answers(self, number: int) -> list[tuple[Shard, Asked]]:
        # An owner answers only after it has received this rank's part, so the answer may overwrite that part.
        answers = []
        for index in self.others:
            if (piece := self.shares[index][number]).size_bytes:
                room = piece.values if self.codec.is_exact else torch.empty(piece.size_bytes, dtype=torch.uint8)
                answers.append((piece, self.receives.receive(Tag.REPLY, self.members[index], room)))
        return answers

    def _open_boxes(self) -> None:
        incoming = largest_message([self.shares[self.me]])
        for index in self.others:
            if incoming:
                self.receives.expect(self.kind, self.members[index], incoming, depth=self.depth)
            if outgoing := largest_message([self.shares[index]]):
                self.receives.announce(self.kind, self.members[index], outgoing, depth=self.depth)

    def _take_answers(self, asked: list[tuple[Shard, Asked]]) -> None:
        for piece, request in asked:
            self.receives.arrive(request)
            self._settle(piece, request[2])

    def _sum(self, piece: Shard, scale: float) -> torch.Tensor:
        """The sum of all members' parts for this rank, in the order of members: in place if the dtype holds partial sums, or in float32."""
        in_place = self.codec.is_exact and self.dtype.itemsize >= 4
        last = len(self.members) - 1
        total = self._part_of(0, piece)
        if not in_place:
            total = total.to(torch.float32, copy=True)
        for index in range(1, last + 1):
            into = piece.values if in_place and index == last else total
            total = torch.add(total, self._part_of(index, piece), out=into)
        if scale != 1.0:
            total.mul_(scale)
        for index in self.others:
            self.receives.release(self.kind, self.members[index])
        return total

    def _part_of(self, index: int, piece: Shard) -> torch.Tensor:
        if index == self.me:
            return piece.values
        message = self.receives.take(self.kind, self.members[index], piece.size_bytes)
        return self.codec.read(message, piece.values.numel(), self.dtype)

    def _answer(self, piece: Shard, total: torch.Tensor) -> None:
        if self.codec.is_exact:
            if total is not piece.values:
                piece.values.copy_(total)
            message = piece.values
        else:
            message = self.codec.write(total, piece.error)
            self._settle(piece, message)
        for index in self.others:
            self.receives.reply(Tag.REPLY, self.members[index], message)

    def _settle(self, piece: Shard, message: torch.Tensor) -> None:
        if not self.codec.is_exact:
            piece.values.copy_(self.codec.read(message.view(torch.uint8), piece.values.numel(), self.dtype))
