"""Trains on in a thread after its main thread is done."""

import threading

import torch.distributed as dist
from way_out import go_on, stage, train


def trains() -> None:
    for _ in range(3):
        go_on(model, 4)
        stage("training in a thread")
    dist.destroy_process_group()


model = train()
threading.Thread(target=trains).start()
