"""Ranks of a restart that are forked: what they find is what new processes find, and how they end is how new processes end."""

import json
import shutil
import signal
import textwrap
from pathlib import Path

import pytest
from process_facts import FACTS

from paceline.facts import Status

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

# Trains until the fork server is ready, then rank 1 kills itself; the second attempt runs what is named.
TRAINS = """
import glob, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

def is_there(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"worker/fork_server.py" not in file.read():
                return False
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"PACELINE_MARK={os.environ['PACELINE_MARK']}".encode() in file.read()
    except OSError:
        return False

def is_ready(pid):
    # It waits for a request in recvmsg, which has these numbers on x86-64 and on aarch64.
    try:
        with open(f"/proc/{pid}/syscall") as file:
            return is_there(pid) and file.read().split()[0] in ("47", "212")
    except OSError:
        return False

step()
if attempt == 0:
    # It loads torch: beside other jobs that can take long.
    ready, until = torch.zeros(1), time.monotonic() + 120
    while not ready and time.monotonic() < until:
        time.sleep(0.05)
        found = any(is_ready(pid) for pid in os.listdir('/proc') if pid.isdigit())
        ready = torch.tensor([float(found)])
        dist.all_reduce(ready)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    step()
"""
SAYS_FACTS = f"""{FACTS}
draws = [random.random(), float(numpy.random.rand()), torch.initial_seed()]
print(json.dumps({{"attempt": attempt, "rank": rank, "facts": facts, "draws": draws}}), flush=True)
"""
OF_THE_ATTEMPT = {
    "TORCHELASTIC_RESTART_COUNT", "PACELINE_ATTEMPT", "MASTER_PORT", "PACELINE_STORE_PORT", "PACELINE_RING_DIR",
    "PACELINE_SOCKET_DIR", "PACELINE_ERROR_DIR", "SM_MASTER_PORT", "SM_TRAINING_ENV", "TORCHELASTIC_ERROR_FILE",
    "PACELINE_RANK_ADDRESSES", "KERAS_DISTRIBUTION_JOB_ADDRESSES",
}  # fmt: skip


def restarted(paceline, text, *argv, code=0, options=(), name="train.py", **environment):
    script = paceline.script(name, text)
    finished = paceline.run(
        *("run", "--nproc-per-node", "2", "--max-restarts", "1", "--set", "fork_server=auto", *options),
        *(script, *argv) if "-m" not in options else (Path(name).stem, *argv),
        timeout=200,
        **environment,
    )
    assert finished.code == code, finished.err
    return finished


def facts_of(out):
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {(line["attempt"], line["rank"]): line for line in lines}


@pytest.mark.parametrize("options", [(), pytest.param(("-m",), marks=pytest.mark.wide)])
def test_a_forked_rank_finds_what_a_new_process_finds(paceline, options):
    text = TRAINS.replace("\nif attempt == 0:", f"{SAYS_FACTS}\nif attempt == 0:")
    finished = restarted(paceline, text, "--lr", "a b", options=options, MINE="x")
    assert "new processes" not in finished.err
    found = facts_of(finished.out)
    for rank in range(2):
        new, forked = (found[attempt, rank]["facts"] for attempt in range(2))
        for facts in (new, forked):
            facts["environ"] = {name: value for name, value in facts["environ"].items() if name not in OF_THE_ATTEMPT}
        assert forked == new
    draws = [tuple(line["draws"]) for line in found.values()]
    assert len({value for pair in draws for value in pair}) == 12, "generators that are seeded by chance differ"
    assert paceline.left() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(7)", 7),
        pytest.param("raise ValueError('mine')", 1, marks=pytest.mark.wide),
        pytest.param("os.kill(os.getpid(), signal.SIGTERM)", 143, marks=pytest.mark.wide),
    ],
)
def test_a_forked_rank_ends_as_a_new_process_does(paceline, end, code):
    finished = restarted(paceline, f"{TRAINS}\nif attempt == 1 and rank == 0:\n    {end}\n", code=code)
    assert "fork_server.py" not in finished.err
    failed = [record.exit for record in paceline.evidence().ranks if record.attempt == 1 and record.rank == 0]
    assert [exit.code for exit in failed] == [-signal.SIGTERM if code == 143 else code]
    if "ValueError" in end:
        assert f'File "{paceline.directory}/train.py", line ' in finished.err and "ValueError: mine" in finished.err
        assert failed[0].error.type == "ValueError" and failed[0].error.file == f"{paceline.directory}/train.py"


@pytest.mark.slow
def test_workers_children_and_exit_handlers_of_a_forked_rank_work(paceline):
    script = f"""{TRAINS}
if attempt == 1:
    import atexit, multiprocessing, torch.multiprocessing
    from torch.utils.data import DataLoader
    atexit.register(lambda: print("exit handler", rank, flush=True))
    loader = DataLoader(torch.arange(8.0), num_workers=2, multiprocessing_context="fork")
    print("loaded", sum(batch.sum().item() for batch in loader), flush=True)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print("pool", pool.map(abs, [-3]), flush=True)
"""
    finished = restarted(paceline, script)
    assert sorted(finished.out.splitlines()) == [
        "exit handler 0",
        "exit handler 1",
        "loaded 28.0",
        "loaded 28.0",
        "pool [3]",
        "pool [3]",
    ]


@pytest.mark.wide
def test_a_script_that_changes_its_environment_first_is_restarted_with_new_processes(paceline):
    text = TRAINS.replace("import glob, os", "import os\nos.environ['MINE'] = 'x'\nimport glob, os", 1)
    # The agent looks at the ranks after their first step, and records what it decides.
    decided = "any('fork_server' in open(file).read() for file in glob.glob('.paceline/runs/*/events.jsonl'))"
    finished = restarted(
        paceline, text.replace("any(is_ready(pid) for pid in os.listdir('/proc') if pid.isdigit())", decided)
    )
    assert "are new processes, not forks: the script changes its environment before it imports torch" in finished.err
    assert paceline.evidence().run.status is Status.COMPLETED


@pytest.mark.slow
def test_a_file_with_the_name_of_a_module_that_torch_imports_is_imported_as_without_forks(paceline):
    shutil.copy(textwrap.__file__, paceline.directory / "textwrap.py")
    finished = restarted(paceline, TRAINS)
    assert "/textwrap.py stands in front of a module that torch imports" in finished.err
    assert paceline.evidence().run.status is Status.COMPLETED


@pytest.mark.wide
def test_a_fork_server_that_was_killed_costs_the_restart_nothing_but_time(paceline):
    script = TRAINS.replace(
        "    dist.barrier()\n",
        "    dist.barrier()\n    if rank == 0:\n"
        "        [os.kill(int(pid), signal.SIGKILL) for pid in os.listdir('/proc') if pid.isdigit() and is_ready(pid)]\n"
        "    dist.barrier()\n",
    )
    finished = restarted(paceline, script)
    told = [line for line in finished.err.splitlines() if "new processes, not forks" in line]
    assert len(told) == 1 and "the fork server ended with -9" in told[0], finished.err
    assert paceline.left() == []


@pytest.mark.wide
def test_a_fork_server_that_is_still_loading_at_a_restart_serves_the_next_one(paceline):
    script = (
        TRAINS.replace("if attempt == 0:", "if attempt < 2:")
        .replace("found = any(is_ready(", "found = any(looked(")
        .replace(
            "step()\nif",
            """
def forked():
    with open("/proc/self/cmdline", "rb") as file:
        return b"worker/fork_server.py" in file.read()

def looked(pid):
    # It is held in its import at the first restart, and let go after that.
    if not is_there(pid):
        return False
    os.kill(int(pid), signal.SIGCONT if attempt else signal.SIGSTOP)
    return not attempt or is_ready(pid)

print(json.dumps({"attempt": attempt, "rank": rank, "forked": forked()}), flush=True)
step()
if""",
        )
    )
    finished = restarted(paceline, f"import json\n{script}", options=("--max-restarts", "2"))
    assert {key: line["forked"] for key, line in facts_of(finished.out).items()} == {
        (attempt, rank): attempt == 2 for attempt in range(3) for rank in range(2)
    }
    assert "new processes, not forks: it has not imported torch yet" in finished.err
    assert paceline.left() == []


@pytest.mark.wide
def test_without_the_option_there_is_no_fork_server(paceline):
    script = paceline.script("train.py", TRAINS.replace("while not ready and", "while False and"))
    finished = paceline.run("run", "--nproc-per-node", "2", "--max-restarts", "1", script)
    assert finished.code == 0, finished.err
    assert "fork" not in finished.err
