"""One process that starts its ranks itself."""

import os
import sys

import torch.multiprocessing as mp


def rank(number: int, directory: str) -> None:
    os.environ.update(RANK=str(number), WORLD_SIZE="2")
    sys.argv[1:] = [directory]
    import atexit

    from way_out import stage, train

    train()
    atexit.register(stage, "handler")
    stage("end")


if __name__ == "__main__":
    mp.spawn(rank, (sys.argv[1],), nprocs=2)
