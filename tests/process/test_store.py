"""The store outlives every rank: who has done its work may go, whatever the others still do with the store. torchrun's is the agent's."""

import pytest
from ports import free_port

pytestmark = pytest.mark.process

# Rank 0 is gone, with its process, before the others go on.
JOB = """
import datetime, os, signal, sys, time
import torch.distributed as dist

how, attempt = sys.argv[1], os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
store.set(f"of {rank}", f"attempt {attempt}")
store.wait([f"of {other}" for other in range(3)])
if rank == 0:
    open("new", "w").write(str(os.getpid()))
    os.rename("new", f"pid{attempt}")
    match how:
        case "exit":
            sys.exit(0)
        case "os._exit":
            os._exit(0)
        case "exec":
            os.execvp("true", ["true"])
    sys.exit(0)
while not os.path.exists(f"pid{attempt}"):
    time.sleep(0.01)
pid = int(open(f"pid{attempt}").read())

def is_here():
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

while is_here():
    time.sleep(0.01)
if attempt < os.environ["TORCHELASTIC_MAX_RESTARTS"] and rank == 1:
    sys.exit(3)
assert store.get("of 0") == f"attempt {attempt}".encode()
group = dist.new_group([1, 2], use_local_synchronization=True)
dist.barrier(group)
store.set(f"again {rank}", "x")
store.wait(["again 1", "again 2"])
dist.destroy_process_group()
print("rank", rank, "is done", flush=True)
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("how", ["exit", "os._exit", "exec"])
def test_a_job_ends_well_whose_rank_0_ends_first(paceline, how):
    finished = paceline.run("run", "--nproc-per-node", "3", paceline.script("job.py", JOB), how)
    assert (finished.code, sorted(finished.out.splitlines())) == (0, ["rank 1 is done", "rank 2 is done"]), finished.err


@pytest.mark.slow_but_first
@pytest.mark.parametrize("port", [False, True], ids=["free port", "one port"])
def test_each_attempt_has_a_store_of_its_own(paceline, port):
    options = ["--set", f"store_port={free_port()}"] if port else []
    script = paceline.script("job.py", JOB)
    finished = paceline.run("run", "--nproc-per-node", "3", "--max-restarts", "1", *options, script, "exit")
    assert (finished.code, sorted(finished.out.splitlines())) == (0, ["rank 1 is done", "rank 2 is done"]), finished.err


def test_two_hosts_have_one_store(paceline):
    script = paceline.script("job.py", JOB.replace("range(3)", "range(4)").replace("[1, 2]", "[1, 2, 3]"))
    finished = paceline.run("run", "--local-hosts", "2", "--nproc-per-node", "2", script, "os._exit")
    assert finished.code == 0, finished.err
    assert sorted(finished.out.splitlines()) == [f"rank {rank} is done" for rank in (1, 2, 3)]


# Each serves the store of an address of its own, as examples do that begin with `os.environ["MASTER_PORT"] = "12355"`.
OWN = """
import os, sys
import torch.distributed as dist
rank, port = int(os.environ["RANK"]), sys.argv[2]
match sys.argv[1]:
    case "environment":
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", port
        dist.init_process_group("gloo")
    case "url":
        dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    case "store":
        store = dist.TCPStore("localhost", int(port), 2, rank == 0)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    case "master":
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        agents = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == str(True)
        store = dist.TCPStore(*address, 2, not agents and rank == 0)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
dist.barrier()
print("rank", rank, "is done", flush=True)
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize("way", ["environment", "url", "store", "master"])
def test_a_script_may_meet_where_it_likes(paceline, way):
    finished = paceline.run("run", "--nproc-per-node", "2", paceline.script("own.py", OWN), way, str(free_port()))
    assert (finished.code, sorted(finished.out.splitlines())) == (0, ["rank 0 is done", "rank 1 is done"]), finished.err
