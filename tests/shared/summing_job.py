"""A script that sums the numbers of its steps and dies where it is told to, and runs of it with `--resume auto`."""

import json
import signal

# Sums the numbers of its steps, and dies where `dies` says: attempt, rank, step, and a signal, "worker", "hang" or "memory".
RANK = """
import json, multiprocessing, os, signal, sys, time
import torch
import torch.distributed as dist

plan = json.loads(sys.argv[1])
rank = int(os.environ["RANK"])

def attempt():
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return plan.get("items", 8)

    def __getitem__(self, place):
        return place + 1 + (100 if "changes" in plan and attempt() else 0)

def fork_server_is_ready():
    def waits(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"worker/fork_server.py" not in file.read():
                    return False
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"PACELINE_MARK={os.environ['PACELINE_MARK']}".encode() not in file.read():
                    return False
            with open(f"/proc/{pid}/syscall") as file:
                return file.read().split()[0] in ("47", "212")
        except OSError:
            return False
    return any(waits(pid) for pid in os.listdir("/proc") if pid.isdigit())

def wait_for_the_fork_server():
    ready = torch.zeros(1)
    while not ready:
        time.sleep(0.05)
        ready = torch.tensor([float(fork_server_is_ready())])
        dist.all_reduce(ready, dist.ReduceOp.MIN)

def one(batch):
    global total
    number = int(batch) % 100
    print(json.dumps({"attempt": attempt(), "rank": rank, "step": number, "total": total}), flush=True)
    if "waits" in plan and attempt() == 0 and number == 3:
        wait_for_the_fork_server()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    total += number
    for of_attempt, of_rank, of_step, how in plan["dies"]:
        if [attempt(), rank, number] == [of_attempt, of_rank, of_step]:
            if how == "worker":
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
                time.sleep(60)
            if how == "hang":
                time.sleep(3600)
            while how == "memory":
                held.append(torch.ones(4 << 20))
            os.kill(os.getpid(), how)
    dist.barrier()

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total, held = 0, []
print(json.dumps({
    "attempt": attempt(), "rank": rank, "seed": os.environ.get("PYTHONHASHSEED"), "hash": hash("a"),
    "forked": b"fork_server" in open("/proc/self/cmdline", "rb").read(),
}), flush=True)
workers = plan.get("workers", 0)
# Other workers than forks cannot be resumed, and from Python 3.14 on they are no forks.
loader = torch.utils.data.DataLoader(Numbers(), num_workers=workers, multiprocessing_context="fork" if workers else None)
for batch in loader:
    one(batch)
print(json.dumps({"rank": rank, "done": total}), flush=True)
dist.destroy_process_group()
"""
KILL = int(signal.SIGKILL)


def ran(paceline, *options, code=0, dies=(), text=RANK, server="off", prefix=(), **plan):
    """The finished job, and what its ranks printed. A fork server imports torch, which takes a test longer than it gains."""
    script = paceline.script("train.py", text)
    argv = (
        "run",
        "--resume",
        "auto",
        "--set",
        f"fork_server={server}",
        *options,
        script,
        json.dumps({"dies": dies, **plan}),
    )
    finished = paceline.run(*argv, timeout=120, prefix=prefix)
    assert finished.code == code, finished.err
    assert paceline.left() == []
    return finished, [json.loads(line) for line in finished.out.splitlines() if line.startswith("{")]


def begun(lines, attempt):
    """Rank -> the last step before the first one that it made in this attempt, and the sum that it had by then."""
    found = {}
    for line in lines:
        if line.get("attempt") == attempt and "step" in line:
            found.setdefault(line["rank"], (line["step"] - 1, line["total"]))
    return found


def done(lines):
    return [line["done"] for line in lines if "done" in line]


def attempts(lines):
    return {line["attempt"] for line in lines if "attempt" in line}


def events(paceline, name):
    return [event for event in paceline.evidence().events if event["event"] == name]
