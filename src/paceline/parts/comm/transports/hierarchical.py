"""Exchanges over several hosts with equally many ranks: inside the host, between hosts, inside the host."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions, AllToAllOptions, BroadcastOptions, Work

from ..topology import Topology
from .base import ELEMENTWISE, Transport
from .gloo import hang_up, split_average

# Of one rank's shard between hosts. Two are under way at once: while one is on the wire the next is added up in shared memory.
# 4 MiB take 0.3 s at 100 Mbit/s, so a delay of 10 ms stays below a tenth of it.
PIECE_BYTES = 4 << 20
CHECK_SECONDS = 0.5


class TwoLevels:
    """Hosts with equally many ranks: reduce inside the host, exchange the shards between hosts, distribute inside the host.

    Each byte crosses a host's link 2 (hosts - 1) / hosts times, instead of up to 2 (ranks - 1) / ranks times with one ring over all ranks;
    every rank of a host sends its own share.
    """

    def __init__(
        self,
        topology: Topology,
        host: Transport,
        across: Any,
        check: Callable[[], None],
    ) -> None:
        self.topology = topology
        self._host = host
        self._across = across
        self._check = check
        self._host_size = len(topology.mine)
        self._host_count = len(topology.hosts)

    def all_reduce(self, tensor: torch.Tensor, op: str) -> None:
        """In place. The remainder of a division by the ranks of a host is sent with every shard."""
        flat = tensor.view(-1)
        inner, outer, count = split_average(op, self.topology.size)
        step = max(1, PIECE_BYTES // flat.element_size()) * self._host_size
        shards: list[tuple[torch.Tensor, torch.Tensor, Work]] = []
        for start in range(0, flat.numel(), step):
            piece = flat[start : start + step]
            shard = self._reduced_shard(piece, inner)
            options = self._limited(AllreduceOptions())
            options.reduceOp = outer
            shards.append((piece, shard, self._across.allreduce([shard], options)))
            if len(shards) == 2:
                self._spread(*shards.pop(0), count)
        for waiting in shards:
            self._spread(*waiting, count)

    def _reduced_shard(self, piece: torch.Tensor, op: str) -> torch.Tensor:
        width, rest = divmod(piece.numel(), self._host_size)
        shard: torch.Tensor = torch.empty(width + rest, dtype=piece.dtype)
        if width:
            self._host.reduce_scatter(shard[:width], piece[: width * self._host_size], op)
        if rest:
            tail = shard[width:]
            tail.copy_(piece[width * self._host_size :])
            self._host.all_reduce(tail, op)
        return shard

    def _spread(self, piece: torch.Tensor, shard: torch.Tensor, work: Work, count: int) -> None:
        self._finish(work)
        if count > 1:
            shard.div_(count)
        width = piece.numel() // self._host_size
        if width:
            self._host.all_gather(piece[: width * self._host_size], shard[:width])
        piece[width * self._host_size :].copy_(shard[width:])

    def reduce_scatter(self, output: torch.Tensor, input: torch.Tensor, op: str) -> None:
        """Reduce the parts of each host's ranks inside the host, then between the ranks with the same local rank."""
        inner, _, count = split_average(op, self.topology.size)
        blocks = self._by_host(input.view(self.topology.size, -1))
        mine = torch.empty(self._host_count, output.numel(), dtype=input.dtype)
        for block, part in zip(blocks, mine, strict=True):
            self._host.reduce_scatter(part, block, inner)
        # gloo's own reduce_scatter is an all_reduce of the whole; each part goes straight to its owner instead.
        parts = torch.empty_like(mine)
        self._finish(
            self._across.alltoall_base(parts.view(-1), mine.view(-1), [], [], self._limited(AllToAllOptions()))
        )
        output.copy_(parts[0].view_as(output))
        for part in parts[1:]:
            ELEMENTWISE[inner](output, part.view_as(output), out=output)
        if count > 1:
            output.div_(count)

    def all_gather(self, output: torch.Tensor, input: torch.Tensor) -> None:
        """Gather between the ranks with the same local rank first, so that each byte crosses a host's link once."""
        mine = torch.empty(self._host_count, input.numel(), dtype=input.dtype)
        self._finish(self._across._allgather_base(mine.view(-1), input.view(-1), self._limited(AllgatherOptions())))
        rows = output.view(self.topology.size, -1)
        if self.topology.is_blocked:
            for block, part in zip(self._by_host(rows), mine, strict=True):
                self._host.all_gather(block, part)
            return
        block = torch.empty(self._host_size * input.numel(), dtype=input.dtype)
        for ranks, part in zip(self.topology.hosts, mine, strict=True):
            self._host.all_gather(block, part)
            for rank, row in zip(ranks, block.view(self._host_size, -1), strict=True):
                rows[rank].copy_(row)

    @property
    def timeout_seconds(self) -> float:
        """Limit of a wait for another rank, on this host or another."""
        return self._host.timeout_seconds

    @timeout_seconds.setter
    def timeout_seconds(self, seconds: float) -> None:
        self._host.timeout_seconds = seconds

    def _limited(self, options: Any) -> Any:
        options.timeout = timedelta(seconds=self.timeout_seconds)
        return options

    def _by_host(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Rows by rank -> one flat block for each host; views if the ranks of a host are adjacent."""
        if self.topology.is_blocked:
            return [rows[ranks[0] : ranks[-1] + 1].reshape(-1) for ranks in self.topology.hosts]
        return [rows[list(ranks)].reshape(-1) for ranks in self.topology.hosts]

    def broadcast(self, tensor: torch.Tensor, root: int) -> None:
        """In the root's host, then shards between hosts, then put together in each host."""
        flat = tensor.view(-1)
        host = next(index for index, ranks in enumerate(self.topology.hosts) if root in ranks)
        if self.topology.host == host:
            self._host.broadcast(flat, self.topology.mine.index(root))
        width, rest = divmod(flat.numel(), self._host_size)
        start = self.topology.local_rank * width
        shard = torch.cat([flat[start : start + width], flat[flat.numel() - rest :]])
        options = self._limited(BroadcastOptions())
        options.rootRank = host
        options.rootTensor = 0
        self._finish(self._across.broadcast([shard], options))
        if self.topology.host != host:
            if width:
                self._host.all_gather(flat[: width * self._host_size], shard[:width])
            flat[flat.numel() - rest :].copy_(shard[width:])

    def _finish(self, work: Work) -> None:
        """Wait, and check regularly for a reported failure: this host would not see a failure on another host otherwise."""
        over = threading.Event()
        work.get_future().add_done_callback(lambda _: over.set())
        while not over.wait(CHECK_SECONDS):
            self._check()
        work.wait()

    def extra_bytes(self) -> int:
        """Shared memory, and two shards of the current piece."""
        return self._host.extra_bytes() + 2 * PIECE_BYTES

    def close(self) -> None:
        """Leave the shared memory, and close the connections to other hosts."""
        self._host.close()
        hang_up(self._across)
