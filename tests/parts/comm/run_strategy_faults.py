"""Pairs of ranks under a strategy, each pair in another trouble: run_strategy_faults.py OUT

The ranks are forks of this process, which has loaded torch; each leaves as Python leaves a script. OUT gets {"<trouble> <rank>":
what it saw}, and "exit codes" of all of them.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # DDP loads it when it is made, which takes a second in each fork otherwise.
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import paceline.parts.comm.ddp.attach
from paceline.parts.comm import observer

TIMEOUT_SECONDS = 4
LONG_SECONDS = 60


class Pair:
    """One rank of two, with a store to meet at."""

    def __init__(self, trouble, rank, directory):
        self.trouble, self.rank, self.directory = trouble, rank, directory
        self.store = dist.FileStore(str(directory / f"{trouble}.store"), 2)
        self.saw = {}

    def begin(self, name, *, hosts=2, seconds=LONG_SECONDS, **options):
        timeout = timedelta(seconds=seconds)
        store = dist.PrefixStore("group", self.store)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=2, timeout=timeout)
        torch.manual_seed(0)
        module = nn.Sequential(*[nn.Linear(40, 40) for _ in range(6)])
        if options.get("find_unused_parameters"):
            module.register_parameter("unused", nn.Parameter(torch.zeros(1)))
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=0.001, **options)
        host = f"host {self.rank * hosts // 2}"
        self.attached = paceline.parts.comm.ddp.attach.attach(self.ddp, name, host_key=host)
        return self

    def step(self):
        self.ddp(torch.ones(3, 40)).square().mean().backward()

    def fails(self):
        """The words of the next step's error, and when it came."""
        start = time.time()
        try:
            self.step()
        except RuntimeError as error:
            self.saw.setdefault("errors", []).append(str(error))
            self.saw.setdefault("at", []).append(time.time())
            self.saw.setdefault("took", []).append(time.time() - start)

    def write(self):
        (self.directory / f"{self.trouble} {self.rank}.json").write_text(json.dumps(self.saw))


class KilledAt(observer.Unobserved):
    """Ends this process at one exchange, in the middle of a step."""

    def __init__(self, pair, count):
        self.pair, self.left = pair, count

    def enqueued(self, group, seq, op, dtype, numel):
        self.left -= 1
        if self.left == 0:
            self.pair.saw["killed at"] = time.time()
            self.pair.write()
            os.kill(os.getpid(), signal.SIGKILL)


def killed(pair, name, hosts):
    """Rank 1 dies inside the third step."""
    pair.begin(name, hosts=hosts)
    pair.step()
    pair.step()
    if pair.rank == 1:
        observer.observe(KilledAt(pair, 4))
    pair.fails()
    pair.fails()


def killed_between_hosts(pair):
    killed(pair, "direct", 2)


def killed_on_one_host(pair):
    killed(pair, "hierarchical", 1)


def killed_in_a_ring(pair):
    killed(pair, "ring+int8", 2)


class Broken:
    """An averaging that fails at a call, on this rank only."""

    needs_shapes = keeps_state = False

    def __init__(self, own, count):
        self.own, self.left, self.strategy = own, count, own.strategy

    def average(self, flat_buffer, communicator):
        self.left -= 1
        if self.left == 0:
            raise ArithmeticError("no more memory for this one")
        self.own.average(flat_buffer, communicator)


def error_on_one_rank(pair):
    """Rank 0 fails and lives on; rank 1 must not wait for it."""
    pair.begin("direct")
    pair.step()
    if pair.rank == 0:
        pair.attached.exchange.averaging = Broken(pair.attached.exchange.averaging, 3)
    pair.fails()
    pair.fails()
    pair.store.set(f"over {pair.rank}", "")
    pair.store.wait(["over 0", "over 1"], timedelta(seconds=LONG_SECONDS))


def error_before_the_last_bucket(pair):
    """As above, and rank 0 knows of it while its backward pass still has buckets to hand over."""
    lanes = pair.begin("direct").attached.exchange.lanes

    def wait_for_the_error(_gradient):
        while lanes.failed is None:
            time.sleep(0.001)

    pair.step()
    if pair.rank == 0:
        pair.attached.exchange.averaging = Broken(pair.attached.exchange.averaging, 2)
        pair.ddp.module[0].weight.register_hook(wait_for_the_error)
    pair.fails()
    pair.fails()
    pair.store.set(f"over {pair.rank}", "")
    pair.store.wait(["over 0", "over 1"], timedelta(seconds=LONG_SECONDS))


def rank_that_does_not_come(pair):
    """Rank 1 never reaches the step; the group's timeout holds."""
    pair.begin("direct", seconds=TIMEOUT_SECONDS)
    # DDP itself exchanges something before its second step.
    pair.step()
    pair.step()
    if pair.rank == 0:
        pair.fails()
        pair.store.set("over", "")
    else:
        pair.store.wait(["over"], timedelta(seconds=LONG_SECONDS))


def rank_that_opens_no_lane(pair):
    """Rank 1 says where it is and never connects; rank 0 waits for it once, and not with each bucket."""
    # Else DDP has a single bucket in its first step.
    lanes = pair.begin("direct", seconds=TIMEOUT_SECONDS, find_unused_parameters=True).attached.exchange.lanes
    if pair.rank == 0:
        pair.fails()
        pair.store.set("over", "")
    else:
        lanes.find_topology()
        pair.store.wait(["over"], timedelta(seconds=LONG_SECONDS))


def left_without_a_word(pair):
    """No destroy_process_group: the script just ends, rank 1 a little later."""
    pair.begin("direct+int8", hosts=1 + pair.rank % 1)
    for _ in range(3):
        pair.step()
    if pair.rank == 1:
        pair.store.wait(["rank 0 leaves"], timedelta(seconds=LONG_SECONDS))
    pair.store.set("rank 0 leaves", "")


def left_by_an_exception(pair):
    """A script's own error, with exchanges under way in lanes of the other rank."""
    pair.begin("hierarchical")
    pair.step()
    pair.write()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (the process is about to end)
    raise SystemExit(3)


def destroyed_and_begun_again(pair):
    """Two process groups one after the other in one process, over one store."""
    for number in range(2):
        pair.store = dist.PrefixStore(str(number), pair.store)
        pair.begin("direct")
        pair.step()
        pair.saw[f"sent {number}"] = pair.attached.sent_bytes
        dist.destroy_process_group()
    threads = [Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task")]
    pair.saw["threads left"] = [thread for thread in threads if "paceline" in thread]
    try:
        pair.step()
    except RuntimeError as error:
        pair.saw["after"] = str(error)


TROUBLES = (
    killed_between_hosts,
    killed_on_one_host,
    killed_in_a_ring,
    error_on_one_rank,
    error_before_the_last_bucket,
    rank_that_does_not_come,
    rank_that_opens_no_lane,
    left_without_a_word,
    left_by_an_exception,
    destroyed_and_begun_again,
)


def live(trouble, rank, directory):
    pair = Pair(trouble.__name__, rank, directory)
    torch.set_num_threads(1)
    trouble(pair)
    pair.write()


def main():
    directory = Path(sys.argv[1])
    children = {}
    for trouble in TROUBLES:
        for rank in range(2):
            child = os.fork()
            if child == 0:
                # Falls off the end of the program from here, through everything that Python does at its end.
                return live(trouble, rank, directory)
            children[child] = f"{trouble.__name__} {rank}"
    codes = {}
    while children:
        child, status = os.wait()
        codes[children.pop(child)] = os.waitstatus_to_exitcode(status)
    (directory / "exit codes.json").write_text(json.dumps(codes))
    return None


if __name__ == "__main__":
    main()
