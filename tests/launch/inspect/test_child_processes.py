"""Which processes below a rank are its loader workers."""

import multiprocessing
import os

import pytest
import torch
from torch.utils.data import DataLoader

from paceline.launch.inspect.child_processes import chosen_children
from paceline.probes.other_processes import read_processes


class Waits(torch.utils.data.Dataset):
    """Its first item says that it is being read, and comes when it is let go."""

    def __init__(self, begun, may_go):
        self.begun, self.may_go = begun, may_go

    def __len__(self):
        return 1

    def __getitem__(self, index):
        self.begun.set()
        self.may_go.wait()
        return index


@pytest.mark.process
@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_the_workers_of_a_loader_are_below_its_rank_however_they_were_started(start_method):
    context = multiprocessing.get_context(start_method)
    begun, may_go = context.Event(), context.Event()
    iterator = iter(DataLoader(Waits(begun, may_go), num_workers=1, multiprocessing_context=context))
    try:
        assert begun.wait(100)
        processes = read_processes()
        (worker,) = (
            child.pid for child in chosen_children(os.getpid(), processes, processes, 1.0) if child.role == "loader"
        )
        assert worker == iterator._workers[0].pid
        assert (processes[worker].parent == os.getpid()) == (start_method == "fork")
    finally:
        may_go.set()
        list(iterator)
