"""Ranks of real processes, as each launcher starts them; and why a process is of no job."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from patience import patient
from ports import free_port

from paceline.attach import jobs
from paceline.attach.jobs import find_jobs
from paceline.attach.no_job import NoJobReason, why_no_job
from paceline.attach.process_rows import read_at_most
from paceline.probes.other_processes import below, read_processes

# What a rank looks like from outside, without the second that `import torch` takes.
FAKE = """
import json, mmap, os, signal, sys
with open(os.path.dirname(os.path.abspath(__file__)) + "/libtorch_cpu.so", "rb") as file:
    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
os.environ.update(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
print("ready", os.getpid(), flush=True)
signal.pause()
"""
# A rank with a loader worker below it.
RANK = """
import os, signal, torch
from torch.utils.data import DataLoader

class Rows:
    def __len__(self): return 8
    def __getitem__(self, index): return torch.ones(1)

def train(rank, variables):
    if variables:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="STORE")
    rows = iter(DataLoader(Rows(), num_workers=1))
    next(rows)
    print("ready", os.getpid(), flush=True)
    signal.pause()
"""
BY_LAUNCHER = RANK + "\ntrain(0, False)\n"
BY_SPAWN = RANK + "\nif __name__ == '__main__':\n    torch.multiprocessing.spawn(train, args=(VARIABLES,), nprocs=2)\n"
ANOTHER_USER = 27001


class Started:
    """Processes of a test, and what they have written."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        # The search is over the whole host, where other tests run.
        self.port = free_port()
        (folder / "fake.py").write_text(FAKE)
        (folder / "libtorch_cpu.so").write_bytes(b"\x7fELF")

    def __call__(self, *command, ready=1, **fields):
        """Start a program and wait until `ready` processes of it are. Their pids."""
        environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **fields.pop("environment", {})}
        process = subprocess.Popen(
            list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True, cwd=self.folder, **fields
        )
        self.processes.append(process)
        pids = []
        for line in process.stdout if ready else ():
            if said := re.search(r"ready (\d+)", line):
                pids.append(int(said[1]))
            if len(pids) == ready:
                break
        assert len(pids) == ready, "it ended early"
        return process.pid, pids

    def by_hand(self, rank, size=2, **more):
        """The variables of a rank whose launcher says nothing else."""
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(self.port),
            **more,
        }

    def fake(self, environment, now=None, **fields):
        """A process with these variables, and the pid of what it says of itself."""
        python = fields.pop("python", sys.executable)
        return self(python, self.folder / "fake.py", json.dumps(now or {}), environment=environment, **fields)[0]

    def end(self):
        for pid in below([process.pid for process in self.processes], read_processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
            process.stdout.close()


@pytest.fixture
def started():
    with tempfile.TemporaryDirectory(prefix="paceline-attach-") as folder:
        os.chmod(folder, 0o755)
        found = Started(Path(folder))
        try:
            yield found
        finally:
            found.end()


def of(*pids, **fields):
    return find_jobs(pids, **fields).jobs


def ranks(job):
    return {rank: found.pid for rank, found in job.ranks.items()}


FORMS = {
    "torchrun": "RANK={rank} WORLD_SIZE=2 LOCAL_RANK={rank} LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none "
    "MASTER_ADDR=node-a MASTER_PORT={port}",
    "deepspeed": "RANK={rank} WORLD_SIZE=2 LOCAL_RANK={rank} LOCAL_SIZE=2 MASTER_ADDR=node-a MASTER_PORT={port}",
    "bare": "RANK={rank} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}",
    "Open MPI": "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE=2 "
    "OMPI_MCA_ess_base_jobid={port}",
    "MPICH": "PMI_RANK={rank} PMI_SIZE=2 MPI_LOCALRANKID={rank} MPI_LOCALNRANKS=2",
    "Slurm": "SLURM_JOB_ID={port} SLURM_STEP_ID=0 SLURM_PROCID={rank} SLURM_NTASKS=2 SLURM_LOCALID={rank} SLURM_NNODES=1",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("when", ["at its start", "now"])
def test_ranks_are_found_by_the_variables_of_each_launcher(started, form, when):
    pids = {}
    for rank in range(2):
        variables = dict(word.split("=") for word in FORMS[form].format(rank=rank, port=started.port).split())
        pids[rank] = started.fake(variables) if when == "at its start" else started.fake({}, variables)
    (job,) = of(pids[1])
    assert ranks(job) == pids and job.name == "fake.py"
    assert (job.world_size, job.expected_here, job.missing_here) == (2, 2, ())
    assert {found.user for found in job.ranks.values()} == {os.getuid()}
    assert all(found.source.endswith(when) and found.start_ticks > 0 for found in job.ranks.values())


def test_a_job_is_found_from_a_rank_from_above_and_from_below_and_no_other_is(started):
    inner = f"import subprocess, sys; subprocess.run([sys.executable, {str(started.folder / 'fake.py')!r}])"
    above, (rank,) = started(sys.executable, "-c", f"import os; os.environ.update({started.by_hand(0, 1)!r}); {inner}")
    other = started.fake(started.by_hand(0, 1, MASTER_PORT=str(free_port())))
    # The loader worker of a rank has its variables.
    worker, (lower,) = started(
        sys.executable, "-c", f"import time; {inner}", environment=started.by_hand(0, 1, MASTER_PORT=str(free_port()))
    )
    assert [ranks(job) for job in of(rank)] == [ranks(job) for job in of(above)] == [{0: rank}]
    assert [ranks(job) for job in of(other)] == [{0: other}]
    assert [set(ranks(job)) for job in of(lower)] == [{0}] and of(lower) == of(worker)
    mine = {tuple(ranks(job).values()) for job in of(os.getpid())}
    assert not mine, "this process is above them, and is left out"
    assert {(rank,), (other,)} <= {tuple(ranks(job).values()) for job in find_jobs().jobs}


def test_a_rank_that_has_ended_is_missing_and_a_zombie(started):
    pids = [started.fake(started.by_hand(rank)) for rank in range(2)]
    os.kill(pids[1], signal.SIGKILL)
    os.waitid(os.P_PID, pids[1], os.WEXITED | os.WNOWAIT)
    (job,) = of(pids[0])
    assert (ranks(job), job.missing_here) == ({0: pids[0]}, (1,))
    assert why_no_job(pids[1]).reason is NoJobReason.ZOMBIE


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start another user's processes")
def test_another_user_s_job_is_found_only_when_asked_for(started):
    plain = {"python": "/usr/bin/python3", "user": ANOTHER_USER, "group": ANOTHER_USER, "extra_groups": []}
    mine, theirs = started.fake(started.by_hand(0)), started.fake(started.by_hand(1), **plain)
    assert theirs not in {pid for job in find_jobs().jobs for pid in ranks(job).values()}
    jobs = [job for job in find_jobs(everybody=True).jobs if {mine, theirs} & set(ranks(job).values())]
    assert sorted(map(tuple, map(ranks, jobs))) == [(0,), (1,)], "they share a port, and are two jobs"
    (job,) = of(theirs)
    assert job.ranks[1].user == ANOTHER_USER


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_an_ordinary_user_may_not_read_is_counted_and_not_guessed(started):
    plain = {"python": "/usr/bin/python3", "user": ANOTHER_USER, "group": ANOTHER_USER, "extra_groups": []}
    mine, theirs = started.fake(started.by_hand(0)), started.fake({}, started.by_hand(1), **plain)
    ask = f"""
import os
from paceline.attach.jobs import find_jobs
from paceline.attach.no_job import why_no_job
os.setgroups([]); os.setgid({ANOTHER_USER}); os.setuid({ANOTHER_USER})
seen, reason = find_jobs([{mine}]), why_no_job({mine})
said = any(note.startswith("processes of uid 0 that could not be read: ") and "(Permission denied)" in note for note in seen.notes)
print(len(seen.jobs), said, reason.reason.name, reason.user)
print(len(find_jobs([{theirs}]).jobs), {theirs} in [one.pid for job in find_jobs().jobs for one in job.ranks.values()])
"""
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 True REFUSED 0", "1 True"]


def test_a_read_that_gives_up_leaves_one_process_out_and_says_so(started):
    pids = [started.fake(started.by_hand(rank)) for rank in range(2)]

    def read(path, most_bytes):
        if path == f"/proc/{pids[1]}/environ":
            raise TimeoutError
        return read_at_most(path, most_bytes)

    (job,) = of(pids[0], read=read)
    assert ranks(job) == {0: pids[0]}
    assert f"what is beside the ranks could not be read: {pids[1]}" in job.notes
    assert f"processes of uid {os.getuid()} that could not be read: 1 (does not answer)" in find_jobs(read=read).notes


@pytest.mark.parametrize("form", ["torchrun", "Slurm"])
def test_a_rank_whose_memory_does_not_answer_stays_a_rank(started, form):
    variables = dict(word.split("=") for word in FORMS[form].format(rank=0, port=started.port).split())
    pid = started.fake(variables)

    def read(path, most_bytes):
        if path == f"/proc/{pid}/maps":
            raise TimeoutError
        return read_at_most(path, most_bytes)

    (job,) = of(pid, read=read)
    assert ranks(job) == {0: pid} and job.notes == (f"what a rank has set itself could not be read: {pid}",)


@pytest.mark.parametrize(("file", "waited"), [("environ", True), ("maps", True), ("environ", False), ("maps", False)])
def test_a_rank_that_ends_while_it_is_read_is_none(started, file, waited):
    pids = [started.fake(started.by_hand(rank)) for rank in range(2)]

    def read(path, most_bytes):
        if path == f"/proc/{pids[1]}/{file}":
            os.kill(pids[1], signal.SIGKILL)
            os.waitid(os.P_PID, pids[1], os.WEXITED | (0 if waited else os.WNOWAIT))
        return read_at_most(path, most_bytes)

    (job,) = of(pids[0], read=read)
    assert (ranks(job), job.missing_here, job.notes) == ({0: pids[0]}, (1,), ())


def test_of_a_process_that_does_not_answer_nothing_more_is_asked(started):
    pid = started.fake(started.by_hand(0))
    paths = []

    def read(path, most_bytes):
        paths.append(path)
        if path == f"/proc/{pid}/cmdline":
            raise TimeoutError
        return read_at_most(path, most_bytes)

    assert of(pid, read=read) == ()
    assert not {f"/proc/{pid}/environ", f"/proc/{pid}/maps"} & set(paths)
    assert why_no_job(pid, read=read).reason is NoJobReason.REFUSED


def test_where_memory_may_not_be_read_the_number_of_the_start_counts(started):
    pid = started.fake(started.by_hand(0, 1), started.by_hand(0, 3))

    def refuse(_):
        raise PermissionError(1, "Operation not permitted")

    (job,) = of(pid, environment_of=refuse)
    assert job.world_size == 1 and job.notes == (f"what a rank has set itself could not be read: {pid}",)
    (job,) = of(pid)
    assert (job.world_size, job.notes) == (3, ())


def test_memory_is_looked_at_only_of_pythons_and_of_what_has_a_rank_s_variables(started):
    sleeper, _ = started("sleep", "1000", ready=0)
    with_number, _ = started("sleep", "1000", ready=0, environment=started.by_hand(0))
    rank = started.fake(started.by_hand(1))
    paths = []

    def read(path, most_bytes):
        paths.append(path)
        return read_at_most(path, most_bytes)

    (job,) = of(rank, read=read)
    assert ranks(job) == {1: rank}
    looked_at = [pid for pid in (sleeper, with_number, rank) if f"/proc/{pid}/maps" in paths]
    assert looked_at == [with_number, rank] and len(paths) == len(set(paths))


@pytest.mark.parametrize(
    "hostile",
    [
        {"RANK": "-1"},
        {"RANK": "99999999999"},
        {"RANK": "7"},
        {"RANK": "\x1b[2J"},
        {"RANK": "0\n1"},
        {"WORLD_SIZE": "0"},
    ],
    ids=["negative", "long", "above the size", "control", "newline", "of none"],
)
def test_hostile_variables_neither_end_the_search_nor_hide_another_rank(started, hostile):
    bad, good = started.fake(started.by_hand(0) | hostile), started.fake(started.by_hand(1))
    (job,) = of(good)
    assert ranks(job) == {1: good}
    assert of(bad) == ()


def test_what_stands_behind_a_megabyte_of_variables_is_read_from_memory(started):
    much = {f"A{number}": "x" * 100_000 for number in range(11)}
    pid = started.fake(much | started.by_hand(0, 1))
    (job,) = of(pid)
    assert ranks(job) == {0: pid} and job.ranks[0].source == "its environment now"
    assert set(job.ranks[0].environment) == set(started.by_hand(0))


def test_a_program_that_writes_over_its_variables_is_read_from_memory(started):
    pid = started.fake({"RANK": "x" * 100, "WORLD_SIZE": "\x1b[0m"}, started.by_hand(0, 1))
    (job,) = of(pid)
    assert ranks(job) == {0: pid} and job.ranks[0].source == "its environment now"


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="network namespaces need root")
def test_the_same_port_in_two_networks_is_of_two_jobs(started):
    outer = started.fake(started.by_hand(0))
    inner, _ = started("unshare", "--net", sys.executable, started.folder / "fake.py", environment=started.by_hand(1))
    assert [ranks(job) for job in of(outer, inner)] == [{0: outer}, {1: inner}]


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="pid namespaces need root")
def test_a_number_of_another_pid_namespace_is_told_apart_from_none(started):
    free = next(pid for pid in range(30000, 300, -1) if not os.path.exists(f"/proc/{pid}"))
    inside = f"""
import os, signal
open("/proc/sys/kernel/ns_last_pid", "w").write("{free - 1}")
if os.fork() == 0:
    print("ready", os.getpid(), flush=True)
    signal.pause()
os.wait()
"""
    started("unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", inside)
    answer = why_no_job(free)
    assert answer.reason is NoJobReason.INNER and len(answer.here) == 1
    assert why_no_job(answer.here[0]).reason is NoJobReason.NO_RANK


def test_why_a_process_is_of_no_job_is_told(started):
    gone, _ = started(sys.executable, "-c", "", ready=0)
    started.processes[-1].wait()
    assert why_no_job(gone).reason is NoJobReason.GONE
    (started.folder / "torchrun").write_text(
        "import subprocess; print('ready 1', flush=True); subprocess.run(['sleep', '1000'])"
    )
    agent, _ = started(sys.executable, started.folder / "torchrun")
    deadline = time.monotonic() + patient(20)
    while why_no_job(agent).below == 0:
        assert time.monotonic() < deadline
    answer = why_no_job(agent)
    assert (answer.reason, answer.launcher, answer.below) == (NoJobReason.LAUNCHER, "torchrun", 1)
    assert 0 <= answer.age_seconds < 3600
    assert of(agent) == ()
    plain = started.fake({})
    assert (why_no_job(plain).reason, why_no_job(plain).user) == (NoJobReason.NO_RANK, os.getuid())


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("torchrun", "--nproc-per-node", "2"), "torchrun"),
        ((sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"), "torchrun"),
    ],
)
def test_the_ranks_of_real_torchrun_are_found_and_their_loader_workers_are_not(started, command, word):
    program = Path(sys.executable).with_name(command[0]) if command[0] == word else command[0]
    (started.folder / "train.py").write_text(BY_LAUNCHER)
    agent, pids = started(program, *command[1:], "train.py", ready=2)
    (job,) = of(agent)
    assert (job.name, job.launcher, job.launcher_pid) == ("train.py", word, agent)
    assert sorted(ranks(job)) == [0, 1] and sorted(ranks(job).values()) == sorted(pids)
    assert (job.world_size, job.expected_here, job.missing_here, job.notes) == (2, 2, (), ())
    # From a worker.
    (worker,) = below([pids[0]], read_processes()) - {pids[0], *helpers(pids[0])}
    assert of(worker) == (job,)


def helpers(pid):
    """What multiprocessing starts beside the workers."""
    return {
        one
        for one in below([pid], read_processes())
        if b"resource_tracker" in read_at_most(f"/proc/{one}/cmdline", 4096)
    }


@pytest.mark.process
@pytest.mark.parametrize("variables", [True, False])
def test_the_ranks_of_mp_spawn_are_found_with_and_without_variables(started, variables):
    (started.folder / "spawn.py").write_text(
        BY_SPAWN.replace("VARIABLES", str(variables)).replace("STORE", str(started.port))
    )
    parent, pids = started(sys.executable, "spawn.py", ready=2)
    (job,) = of(parent)
    assert (job.name, job.launcher, job.launcher_pid) == ("spawn.py", "torch.multiprocessing.spawn", parent)
    assert sorted(ranks(job)) == [0, 1] and sorted(ranks(job).values()) == sorted(pids)
    assert (job.world_size, job.expected_here, job.missing_here) == (2, 2, ())
    assert {found.source for found in job.ranks.values()} == {
        "its environment now" if variables else "torch.multiprocessing.spawn"
    }


@pytest.mark.process
def test_spawned_children_are_not_asked_where_nobody_can_ask(started, monkeypatch):
    (started.folder / "spawn.py").write_text(BY_SPAWN.replace("VARIABLES", "False"))
    parent, _ = started(sys.executable, "spawn.py", ready=2)
    monkeypatch.setattr(jobs, "_SPAWN_SECONDS", 0.0)
    seen = find_jobs([parent])
    assert seen.jobs == () and any("only py-spy could tell" in note for note in seen.notes)


@pytest.mark.process
def test_the_ranks_of_accelerate_are_found(started):
    accelerate = Path(sys.executable).with_name("accelerate")
    if not accelerate.is_file():
        pytest.skip("accelerate is not installed: make frameworks")
    (started.folder / "train.py").write_text(BY_LAUNCHER)
    options = (
        "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"
    )
    agent, pids = started(accelerate, "launch", *options.split(), "train.py", ready=2)
    (job,) = of(agent)
    assert (job.launcher, job.launcher_pid) == ("accelerate", agent) and sorted(ranks(job).values()) == sorted(pids)


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
def test_the_ranks_of_real_mpirun_are_found(started):
    options = ["--allow-run-as-root", "--oversubscribe", "-np", "2"]
    agent, pids = started("mpirun", *options, sys.executable, started.folder / "fake.py", ready=2)
    (job,) = of(agent)
    assert (job.name, job.launcher, job.launcher_pid) == ("fake.py", "MPI", agent)
    assert sorted(ranks(job)) == [0, 1] and sorted(ranks(job).values()) == sorted(pids)
    assert (job.world_size, job.expected_here, job.missing_here) == (2, 2, ())


@pytest.mark.process
@pytest.mark.parametrize(
    "around", [{}, {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "train-0", "MASTER_PORT": "23456"}]
)
def test_the_ranks_of_paceline_run_are_found_and_nothing_else_of_it_is(started, repository, around):
    environment = {"PYTHONPATH": str(repository / "src"), "XDG_STATE_HOME": str(started.folder), **around}
    options = ("--nproc-per-node", "2", "fake.py")
    agent, pids = started(sys.executable, "-m", "paceline", "run", *options, ready=2, environment=environment)
    (job,) = of(agent)
    assert (job.name, job.launcher, job.launcher_pid) == ("fake.py", "paceline", agent)
    assert sorted(ranks(job)) == [0, 1] and sorted(ranks(job).values()) == sorted(pids)
    assert (job.world_size, job.expected_here, job.missing_here, job.doubles) == (2, 2, (), ())
