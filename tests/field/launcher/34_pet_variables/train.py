import sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
for i in range(40):
    time.sleep(0.5)
    if i > 6 and rank == 1:
        sys.exit(1)
print("rank", rank, "of", dist.get_world_size(), "is done", flush=True)
