"""Every collective, type and reduction that the bench times, checked among these ranks; then with data that are spoilt on purpose."""

import sys

import torch
import torch.distributed as dist

from paceline.parts.lab.worker.bench_calls import OPERATIONS, TYPES, BenchCall, BenchCase

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
COUNTS = (1, 5, 24, 3000)


def cases():
    for kind in TYPES:
        for collective in ("all_reduce", "reduce_scatter"):
            for operation in OPERATIONS:
                # gloo divides, which whole numbers do not take.
                if operation != "avg" or getattr(torch, TYPES[kind]).is_floating_point:
                    yield collective, kind, operation, -1
    for kind in ("float", "bfloat16", "int8"):
        for collective in ("all_gather", "all_to_all", "sendrecv"):
            yield collective, kind, "none", -1
        for root in range(ranks):
            yield "broadcast", kind, "none", root


def wrong(collective, kind, operation, root, elements, in_place, spoil=False):
    size = elements * getattr(torch, TYPES[kind]).itemsize * ranks
    case = BenchCase(
        collective=collective,
        size_bytes=size,
        type=kind,
        operation=operation,
        root=root,
        rank=rank,
        ranks=ranks,
        device=torch.device("cpu"),
    )
    if not case.count:
        return 0
    call = BenchCall(case, in_place=in_place)
    call.quiet()
    call.run()
    call.prepare(1)
    call.run()
    if spoil and rank == ranks - 1:
        call.receive[-1] += 1
    return call.wrong(1)


for case in cases():
    for elements in COUNTS:
        for in_place in (False, True):
            if in_place and case[0] in ("all_to_all", "sendrecv"):
                continue
            found = wrong(*case, elements, in_place)
            if found:
                print(f"wrong {rank} {case} {elements} {in_place} {found}", flush=True)
print(f"spoilt {rank} {wrong('all_reduce', 'float', 'sum', -1, 3000, True, spoil=True)}", flush=True)
dist.destroy_process_group()
sys.exit(0)
