"""What the strategies' cases share: groups of 2 and 4 ranks on 1, 2 and 4 hosts, cases by name, bytes that really left this process.

Every case is a function of a `Place`. Its name in a result is `case[name of the strategy, place]`.
"""

import os
import socket
import struct
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from paceline.parts.comm.transports.communicator import open_channel
from paceline.parts.comm.transports.lanes import close_lanes

SIZE = 4
TIMEOUT = timedelta(seconds=30)
# Ranks of a group, hosts that they are on.
PLACES = {"2 on 1": (2, 1), "2 on 2": (2, 2), "4 on 1": (4, 1), "4 on 2": (4, 2), "4 on 4": (4, 4), "4 on 3": (4, 3)}

EXACT = ("ring", "hierarchical", "direct", "parameter_server")
LOSSY = ("direct+bf16", "ring+bf16", "hierarchical+bf16", "direct+int8", "ring+int8", "parameter_server+int8")
LOW_RANK = ("powersgd:rank=2", "direct+powersgd:rank=2")

# Of struct tcp_info: tcpi_bytes_sent, and behind it tcpi_bytes_retrans.
TCP_INFO_BYTES_SENT = 200


@dataclass
class Place:
    """A process group, and the host that each rank of it says it is on. Ranks 2 and 3 form pairs of their own beside 0 and 1."""

    name: str
    group: dist.ProcessGroup
    host_key: str
    hosts: int
    opened: list = field(default_factory=list)
    count: int = 0

    @property
    def rank(self):
        return self.group.rank()

    @property
    def size(self):
        return self.group.size()

    def communicator(self):
        """One more communicator of this group, closed after the case."""
        self.count += 1
        self.opened.append(open_channel(self.group, f"case{self.count}", host_key=self.host_key))
        return self.opened[-1]

    def gathered(self, tensor):
        """The tensor of each rank."""
        every = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(every, tensor, group=self.group)
        return every

    def plain(self, tensor):
        """The average that DDP would take: each multiplied with 1 / n, then gloo's sum."""
        average = tensor.clone().mul_(1.0 / self.size)
        dist.all_reduce(average, group=self.group)
        return average

    def close(self):
        """What a case opened. After a case, when no rank needs this one's answers any more."""
        for communicator in self.opened:
            communicator.close()
        self.opened.clear()
        close_lanes(self.group)


def places(rank):
    """All of them; every rank makes the same groups in the same order."""
    pairs = [dist.new_group([0, 1], timeout=TIMEOUT), dist.new_group([2, 3], timeout=TIMEOUT)]
    made = {}
    for name, (size, hosts) in PLACES.items():
        if size == 2:
            group = pairs[rank // 2] if hosts == 1 else dist.new_group([0, 1], timeout=TIMEOUT)
            other = None if hosts == 1 else dist.new_group([2, 3], timeout=TIMEOUT)
            group = group if rank < 2 or hosts == 1 else other
        else:
            group = dist.new_group(list(range(4)), timeout=TIMEOUT)
        # Three hosts of four ranks: 0 1 | 2 | 3, so that hosts are not all alike.
        host = max(0, group.rank() - 1) if hosts == 3 else group.rank() * hosts // size
        made[name] = Place(name, group, f"host {host}", hosts)
    return made


def drawn(rank, numel, dtype=torch.float32, seed=0):
    """A rank's gradients: the same for the same arguments, another for each rank."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(numel, generator=generator, dtype=torch.float64).to(dtype)


def bytes_sent():
    """{connection: bytes} of this process's TCP connections since they were opened, without headers, by the kernel's own count."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                information = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent, again = struct.unpack_from("QQ", information, TCP_INFO_BYTES_SENT)
                found[copy.getsockname(), copy.getpeername()] = sent - again
        except OSError:
            # Closed meanwhile, not TCP, or not connected.
            continue
    return found


def close(one, other, *, rtol=1e-5, atol=1e-6):
    torch.testing.assert_close(one, other, rtol=rtol, atol=atol)
