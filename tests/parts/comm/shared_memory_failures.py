"""Cases of shared memory in which something is wrong: refusals, ranks that differ, come late, leave or are killed."""

import os
import resource
import signal
import threading
import time
from datetime import timedelta

import torch
from shared_memory_cases import RANKS, SMALL_AREA, case, given, raises, reduced, same

from paceline.parts.comm.transports.peers import PeerLate, PeerLost
from paceline.parts.comm.transports.shared_memory.connect import SharedMemoryUnavailable


@case
def what_torch_does_not_offer_is_refused_before_anything_is_exchanged(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA)
    for op, dtype in (
        ("avg", torch.int32),
        ("band", torch.float32),
        ("min", torch.complex64),
        ("sum", torch.float8_e4m3fn),
        ("mean", torch.float32),
    ):
        with raises(ValueError, op):
            memory.all_reduce(torch.zeros(4).to(dtype), op)
    with raises(ValueError, "dense"):
        memory.all_reduce(torch.eye(2).to_sparse(), "sum")
    with raises(ValueError, "elements"):
        memory.all_gather(torch.zeros(size * 3 + 1), torch.zeros(3))
    with raises(ValueError, "dtypes"):
        memory.reduce_scatter(torch.zeros(3, dtype=torch.int32), torch.zeros(3 * size), "sum")
    with raises(ValueError, "rank"):
        memory.broadcast(torch.zeros(1), size)
    tensor = given(rank, 10)
    memory.all_reduce(tensor, "sum")
    same(tensor, reduced("sum", [given(peer, 10) for peer in range(size)]))


@case
def ranks_that_call_different_things_are_told(open_memory, rank, size):
    for theirs in (
        lambda memory: memory.all_reduce(torch.zeros(12), "sum"),
        lambda memory: memory.all_reduce(torch.zeros(5_000_000), "sum"),
        lambda memory: memory.all_reduce(torch.zeros(10, dtype=torch.float64), "sum"),
        lambda memory: memory.all_reduce(torch.zeros(10), "max"),
        lambda memory: memory.all_gather(torch.zeros(10 * size), torch.zeros(10)),
    ):
        memory = open_memory(area_bytes=SMALL_AREA)
        # Who sees it first leaves, and another rank may notice that before it compares.
        with raises((ValueError, PeerLost), "call different things", "all_reduce sum of 10 float32"):
            theirs(memory) if rank == 1 else memory.all_reduce(torch.zeros(10), "sum")
        with raises(RuntimeError, "is over", "call different things"):
            memory.all_reduce(torch.zeros(1), "sum")


@case
def a_rank_that_does_not_come_is_named_in_time(open_memory, rank, size):
    memory = open_memory(timeout_seconds=0.5)
    late = size - 1
    if rank == late:
        open_memory.store.wait([f"gave up {size} {peer}" for peer in range(late)], timedelta(seconds=30))
        # What the others had written before they gave up may still be there; what they did not write is missed.
        with raises(PeerLost, f"rank {late},", "0.5 s"):
            memory.all_reduce(torch.zeros(10), "sum")
            memory.all_reduce(torch.zeros(10), "sum")
        return
    started = time.monotonic()
    try:
        memory.all_reduce(torch.zeros(10), "sum")
    except (PeerLate, PeerLost) as error:
        assert error.rank == late and f"rank {late}," in str(error) and "0.5 s" in str(error), error
    assert 0.2 < time.monotonic() - started < 5
    open_memory.store.set(f"gave up {size} {rank}", "")


@case
def a_rank_that_closed_in_good_order_is_missed_by_nobody_until_it_is_needed(open_memory, rank, size):
    memory = open_memory(area_bytes=SMALL_AREA, numbers=[10 + peer for peer in range(size)])
    for _ in range(20):
        memory.broadcast(torch.zeros(5000), 0)
    if rank == 0:
        memory.close()
        with raises(RuntimeError, "closed"):
            memory.all_reduce(torch.zeros(1), "sum")
        return
    try:
        memory.all_reduce(torch.zeros(1), "sum")
    except PeerLost as error:
        assert error.rank == 10 and "rank 10," in str(error), error
    else:
        raise AssertionError("rank 0 had left")


@case
def close_ends_a_wait_in_another_thread(open_memory, rank, size):
    memory = open_memory()
    if rank:
        open_memory.store.wait([f"was closed {size}"], timedelta(seconds=30))
        return
    failures = []

    def wait():
        try:
            memory.all_reduce(torch.zeros(10), "sum")
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    memory.close()
    thread.join(10)
    assert not thread.is_alive() and "closed" in failures[0], failures
    open_memory.store.set(f"was closed {size}", "")


@case
def all_ranks_hear_that_there_is_no_room(open_memory, rank, size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with raises(SharedMemoryUnavailable, "no", "bytes of memory"):
            open_memory(area_bytes=4 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def die_in_the_middle(open_memory, rank, size):
    """The last case, for all ranks: rank 3 is killed between two chunks, while a child of its own lives on."""
    memory = open_memory(area_bytes=SMALL_AREA)
    memory.all_reduce(torch.zeros(1), "sum")
    if rank == RANKS - 1:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            signal.pause()
            os._exit(0)
        open_memory.store.set("child", str(child))
        post, posts = memory._doorbell.post, []

        def die_at_the_fifth(counter, value):
            posts.append(value)
            if len(posts) == 5:
                open_memory.store.set("died", str(time.monotonic()))
                os.kill(os.getpid(), signal.SIGKILL)
            post(counter, value)

        memory._doorbell.post = die_at_the_fifth
    try:
        memory.all_reduce(torch.zeros(1 << 20), "sum")
    except PeerLost as error:
        noticed = time.monotonic()
        assert error.rank == RANKS - 1 and f"rank {RANKS - 1}, on this host, ended" in str(error), error
        died = float(open_memory.store.get("died"))
        assert noticed - died < 5, noticed - died
    else:
        raise AssertionError("rank 3 was killed")
    finally:
        if rank == 0:
            os.kill(int(open_memory.store.get("child")), signal.SIGKILL)
