"""One rank that exchanges CUDA tensors, all ranks on device 0: run_cuda.py BACKEND STORE_PORT RANK SIZE HOST OUT"""

import json
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from conformance import everyone, given, reduced
from torch.nn.parallel import DistributedDataParallel as DDP

from paceline.parts.comm import backends


def cases(rank, size):
    """Those that gloo too offers for CUDA tensors."""

    def all_reduce(count):
        tensor = given(rank, count).cuda()
        dist.all_reduce(tensor)
        torch.testing.assert_close(tensor.cpu(), reduced("SUM", everyone(size, count)))

    def broadcast(count):
        tensor = given(rank, count).cuda()
        dist.broadcast(tensor, size - 1)
        torch.testing.assert_close(tensor.cpu(), given(size - 1, count))

    def all_gather(count):
        outputs = [torch.empty(count, device="cuda") for _ in range(size)]
        dist.all_gather(outputs, given(rank, count).cuda())
        torch.testing.assert_close(torch.stack(outputs).cpu(), everyone(size, count))

    def beside_the_cpu(count):
        there, here = given(rank, count).cuda(), given(rank, count)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in (there, here)]
        for work in works:
            work.wait()
        torch.testing.assert_close(there.cpu(), here)

    def ddp(count):
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(count // 100, 100).cuda())
        model(torch.ones(2, count // 100, device="cuda") * (rank + 1)).sum().backward()
        expected = torch.full((100, count // 100), 2 * (size + 1) / 2)
        torch.testing.assert_close(model.module.weight.grad.cpu(), expected)

    return [all_reduce, broadcast, all_gather, beside_the_cpu, ddp]


def main() -> None:
    backend, port, rank, size, host, out = sys.argv[1:]
    backends.register(lambda: host)
    torch.cuda.set_device(0)
    store = dist.TCPStore("127.0.0.1", int(port))
    limit = timedelta(seconds=60)
    dist.init_process_group(backend, store=store, rank=int(rank), world_size=int(size), timeout=limit)
    failed = {}
    for case in cases(int(rank), int(size)):
        for count in (1000, 1_000_000):
            try:
                case(count)
            except Exception:
                failed[f"{case.__name__} {count}"] = traceback.format_exc()
    group = dist.group.WORLD
    carried_by = group._devices.for_all(torch.zeros(1, device="cuda")).name()
    Path(out).write_text(json.dumps({"failed": failed, "carried_by": carried_by}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
