"""A script may close descriptors that it did not open, as daemons do, and open files of its own: their numbers are nobody else's then."""

import sys

import pytest

# Closes all above stderr, takes their numbers with files, pipes or sockets of its own, and trains on: what is its own stays as it left it.
DAEMON = """
import os, socket, sys, tempfile
import torch
import torch.distributed as dist

def train(backend, steps):
    # Threads of gloo would end the process when their descriptors are closed, so it begins without.
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    else:
        place = "file://" + os.path.join(sys.argv[1], "store")
        dist.init_process_group(backend, init_method=place, rank=0, world_size=1)
    model = torch.nn.Linear(4, 4)
    if backend != "fake":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(torch.ones(1))
    dist.barrier()
    dist.destroy_process_group()

def opened():
    if sys.argv[2] == "files":
        return os.open(os.path.join(sys.argv[1], "own"), os.O_RDWR | os.O_CREAT, 0o600)
    if sys.argv[2] == "pipes":
        return os.pipe()[1]
    return socket.socketpair()[0].detach()

train("fake", 3)
os.closerange(3, 4096)
own = [opened() for _ in range(60)]
kept = {number: os.fstat(number) for number in range(3, 40)}
train("gloo", 5)
if os.fork() == 0:
    import gc
    gc.collect()
    # What the interpreter does at its end, where no thread of torch's may be waited for.
    sys.stdout.flush()
    left = [number for number in kept if not os.path.exists(f"/proc/self/fd/{number}")]
    os._exit(len(left))
code = os.waitstatus_to_exitcode(os.wait()[1])
same = [os.fstat(number)[:3] == was[:3] and os.fstat(number).st_size == 0 for number, was in kept.items()]
import fcntl, struct, termios
if sys.argv[2] == "pipes":
    same += [fcntl.ioctl(number, termios.FIONREAD, bytes(4)) == bytes(4) for number in own]
print("closed in the child:", code, "the same:", all(same), flush=True)
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", ["files", "pipes", "sockets"])
def test_what_a_daemon_opens_under_a_number_of_ours_stays_as_it_left_it(workplace, written, tmp_path, kind, kept):
    workplace.keeps_state = kept
    (left,) = workplace.run(sys.executable, written(DAEMON), str(tmp_path), kind)
    assert (left.code, left.out) == (0, "closed in the child: 0 the same: True\n"), left.err
    # It was watched to its end.
    ((header, _),) = workplace.rings
    assert header.step_count == 8
