"""`direct`: equal-byte shards of a fused buffer, one hop to the shard's owner and one back.

Herring's idea (Thangakrishnan et al. 2020, SC20): the buffer is cut into as many equal parts as there are hosts, whatever tensors
begin or end there; part i goes to host i from all others at once, is added there in the order of ranks, and goes back. With
several ranks on a host their sum is made in the host's memory first. A ring needs 2 (h - 1) latencies, this two, and as many
bytes. Receives stand before they are needed, because gloo would take two latencies for each hop otherwise (see preposted_receives.py).

Large parts go in eight messages: while one is on its way another is added, and each rank asks for two of each other at a time. gloo
sends nothing that was not asked for, so no more than that meets in front of one receiver. Where bytes fill the link a ring has still
less in each other's way, and is a little faster (docs/exchange.md has the figures).

Buckets: with many hosts the parts of a 25 MiB bucket get small, and an exchange is mostly latency again. Fairring's fix is taken over:
buckets are fused up to 25 MiB for each 8 hosts (its 25 MiB at 8, 50 at 16, 100 at 32 machines, by its README). Up to 8 hosts none
are fused, since a bucket that waits for the next one starts later.

The floor, below which a bucket goes by `ring`: Fairring lost to NCCL below about 6 MiB. Against gloo no such size was found (4
ranks, 4 KiB: 27 against 130 ms at 10 ms, 0.9 against 1.3 ms on loopback; 2 ranks: as fast), so the floor is 0 unless it is set.

Bytes sent per rank of l ranks on each of h hosts: 2 S / l (h - 1) / h. Memory: standing receives of S / l (h - 1) / h for the largest
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
# Of a share in pieces, how many a rank asks of each other at a time, parts and answers alike.
AHEAD = 2


def fuse_bytes(hosts: int, settings: Mapping[str, int]) -> int:
    """Up to how many bytes the buckets of a step are exchanged as one; 0: each by itself.

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
    """The average in place.

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

    With a lossy codec each rank writes its part for each owner once, the owner the sum once; every rank, the owner too, takes what was
    written.
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
        # Each rank begins with another peer, so that no owner gets all first messages at once.
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
        # An owner answers only once it has this rank's part, so the answer may overwrite the part in its place.
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
        """Of all members' parts for me, in the order of members: in place where the dtype can hold partial sums, else in float32."""
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
