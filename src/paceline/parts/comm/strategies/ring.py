"""`ring`: the plain averaged all-reduce; every rank passes partial sums to the next rank.

In DDP without a wrapper it is the all-reduce of the process group's own backend, called as DDP calls it (see gradients.py). Its result
equals DDP's bit for bit. This file serves wrappers and parameters: gloo's ring of the lane, and a ring of messages if gloo cannot add.

`around` splits a large share into eight messages, and adds one while the next one travels. Its receives are posted early.
At 100 Mbit/s and 10 ms between 4 hosts, 8 MiB (the wire alone: 1007 ms): gloo 1205 ms, this file 1113 ms; 4 KiB: 130 and 65 ms.

Bytes sent per rank: 2 S (n - 1) / n for S bytes on the wire. Latencies: 2 (n - 1) hops; a hop of gloo takes two latencies, a hop of
`around` one. Memory: `around` keeps up to two posted messages of S / n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..transports.communicator import Communicator
from ..transports.preposted_receives import Tag
from .codec import Codec, ErrorFeedback
from .flat_buffer import FlatBuffer
from .shards import PIECES, Shard, cut, divide_first, equal_shares, largest_message


def average(
    flat_buffer: FlatBuffer,
    communicator: Communicator,
    codec: Codec,
    errors: ErrorFeedback,
    settings: Mapping[str, int],
) -> None:
    """Compute the average in place.

    Holds:   plain codec: allclose to the plain all-reduce, rtol 1e-6 (float32); bitwise with two ranks
    """
    if communicator.size == 1:
        return
    scale = divide_first(flat_buffer.flat, communicator.size, codec)
    if codec.is_exact:
        communicator.all_reduce(flat_buffer.flat)
        flat_buffer.flat.mul_(scale)
    else:
        around(
            flat_buffer.flat,
            communicator,
            range(communicator.size),
            codec=codec,
            errors=errors,
            key=(flat_buffer.key, "ring"),
            scale=scale,
        )


def around(
    flat: torch.Tensor,
    communicator: Communicator,
    members: Sequence[int],
    *,
    codec: Codec,
    errors: ErrorFeedback,
    key: object,
    scale: float,
) -> None:
    """Sum `flat` over the members, times `scale`, in place: reduce-scatter, then all-gather, one message to the right per hop.

    With a lossy codec, each partial sum is encoded once per hop, and each sum once by its last rank. Every rank decodes the same messages.
    """
    ring = _Ring(flat, communicator, list(members), codec, errors, key)
    if len(members) > 1:
        sums = ring.reduce_scatter()
        ring.all_gather(sums, scale)


class _Ring:
    def __init__(
        self,
        flat: torch.Tensor,
        communicator: Communicator,
        members: list[int],
        codec: Codec,
        errors: ErrorFeedback,
        key: object,
    ) -> None:
        self.receives = communicator.receives
        self.count, self.me = len(members), members.index(communicator.rank)
        self.right = members[(self.me + 1) % self.count]
        self.left = members[self.me - 1]
        self.codec, self.dtype = codec, flat.dtype
        self.shares = cut(flat, equal_shares(flat.numel(), self.count, codec.align), codec, errors, key)
        self.pieces = len(self.shares[0])
        self.kind, self.depth = (Tag.RING, 2) if self.pieces == 1 else (Tag.RING_PIECES, PIECES + 1)

    def reduce_scatter(self) -> list[torch.Tensor]:
        """The sums of share me + 1, by pieces: in float32 if the codec is lossy, else in the buffer itself."""
        receives, largest = self.receives, largest_message(self.shares)
        receives.expect(self.kind, self.left, largest, depth=self.depth)
        receives.announce(self.kind, self.right, largest, depth=self.depth)
        for piece in self.shares[self.me]:
            self._pass_on(piece, piece.values)
        sums: list[torch.Tensor] = []
        for hop in range(1, self.count):
            is_last = hop == self.count - 1
            for piece in self.shares[(self.me - hop) % self.count]:
                total = self._add(piece)
                if is_last:
                    sums.append(total)
                else:
                    self._pass_on(piece, total)
        return sums

    def all_gather(self, sums: list[torch.Tensor], scale: float) -> None:
        """Pass the finished shares on. `sums` are the sums of share me + 1."""
        receives = self.receives
        incoming = [piece for hop in range(self.count - 1) for piece in self.shares[(self.me - hop) % self.count]]
        asked = [
            receives.receive(Tag.AROUND, self.left, self._room(piece)) if piece.size_bytes else None
            for piece in incoming
        ]
        for piece, total in zip(self.shares[(self.me + 1) % self.count], sums, strict=True):
            if piece.size_bytes:
                if scale != 1.0:
                    total.mul_(scale)
                message = self.codec.write(total, piece.error)
                receives.reply(Tag.AROUND, self.right, message)
                self._settle(piece, message)
        # The share that arrives last is the right neighbour's own share, so it is not sent on.
        passed_on = len(incoming) - self.pieces
        for number, (piece, request) in enumerate(zip(incoming, asked, strict=True)):
            if request is not None:
                receives.arrive(request)
                if number < passed_on:
                    receives.reply(Tag.AROUND, self.right, request[2])
                self._settle(piece, request[2])
        receives.finish()

    def _pass_on(self, piece: Shard, values: torch.Tensor) -> None:
        # A piece may be empty if there are few elements; an empty piece is not sent.
        if piece.size_bytes:
            self.receives.send(self.kind, self.right, self.codec.write(values, piece.error))

    def _add(self, piece: Shard) -> torch.Tensor:
        if not piece.size_bytes:
            return piece.values
        message = self.receives.take(self.kind, self.left, piece.size_bytes)
        read = self.codec.read(message, piece.values.numel(), self.dtype)
        total = piece.values.add_(read) if self.codec.is_exact else read + piece.values
        self.receives.release(self.kind, self.left)
        return total

    def _room(self, piece: Shard) -> torch.Tensor:
        return piece.values if self.codec.is_exact else torch.empty(piece.size_bytes, dtype=torch.uint8)

    def _settle(self, piece: Shard, message: torch.Tensor) -> None:
        if not self.codec.is_exact:
            piece.values.copy_(self.codec.read(message.view(torch.uint8), piece.values.numel(), self.dtype))
