"""A rank that makes calls, says what torch's flight recorder has of them, and waits: recorded_calls.py FOLDER WHAT"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json

folder, what = sys.argv[1:]
if what != "nothing":
    meeting = f"file://{folder}/{what.replace(' ', '_')}"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
if what == "calls":
    second = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(torch.ones(3, 4))
    dist.broadcast(torch.ones(2, dtype=torch.int64), 0, group=second)
    if rank == 0:
        dist.send(torch.ones(3), 1)
    else:
        dist.recv(torch.ones(3), 0)
    dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3), init_sync=False)
    model(torch.ones(2, 3)).sum().backward()
    dist.barrier()
    document = json.loads(_dump_fr_trace_json())
    print(json.dumps(document), flush=True)
elif what == "without end":
    print("begins", flush=True)
    index = 0
    while True:
        index += 1
        dist.all_reduce(torch.ones(index % 7 + 1))
else:
    if what == "off":
        dist.all_reduce(torch.ones(1))
    print(what, flush=True)
sys.stdin.read()
