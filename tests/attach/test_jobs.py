"""Which processes are ranks of which job, from rows as /proc gives them; and what is no rank."""

import json
import random

import pytest

from paceline.attach.jobs import FoundJob, jobs_in
from paceline.attach.process_rows import ProcessRow, spawn_index
from paceline.attach.rank_numbers import MOST_LOCAL, allowed, master_of, numbers_in
from paceline.probes.stacks import locals_in

PYTHON = "/usr/bin/python3.11"
SCRIPT = (PYTHON, "-u", "train.py")
SPAWNED = (
    PYTHON,
    "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
    "--multiprocessing-fork",
)
SPAWN_FILE = "/x/torch/multiprocessing/spawn.py"
TORCHRUN = (PYTHON, "/opt/venv/bin/torchrun", "--nproc-per-node", "2", "train.py")


def row(pid, parent=1, started=None, *, command=SCRIPT, **fields):
    values = {"user": 1000, "network": "net:[1]", "is_python": PYTHON in command, "has_torch": PYTHON in command}
    values |= {"start_ticks": pid, "started": dict(started or {}), "command": command}
    return ProcessRow(pid=pid, parent=parent, **values | fields)


def found(*rows):
    return jobs_in({one.pid: one for one in rows})


def the_job(*rows) -> FoundJob:
    (job,) = found(*rows)
    return job


def pids(job):
    return {rank: one.pid for rank, one in job.ranks.items()}


def by_torchrun(rank, size=2, port=29500, run="none", local=None, local_size=None, **more):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank if local is None else local),
        "LOCAL_WORLD_SIZE": str(local_size or size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run,
        **more,
    }


def by_slurm(rank, size=2, step=0, **more):
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": str(step),
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_LOCALID": str(rank),
        "SLURM_NNODES": "1",
        **more,
    }


def by_mpi(rank, size=2, **more):
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
        "OMPI_MCA_ess_base_jobid": "77",
        **more,
    }


POD = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "train-0", "MASTER_PORT": "23456"}


def test_the_ranks_of_torchrun_are_found_with_their_launcher_and_nothing_is_missing():
    job = the_job(row(10, command=TORCHRUN), row(11, 10, by_torchrun(0)), row(12, 10, by_torchrun(1)))
    assert (job.name, job.launcher, job.launcher_pid) == ("train.py", "torchrun", 10)
    assert pids(job) == {0: 11, 1: 12} and job.world_size == job.expected_here == 2
    assert job.missing_here == job.zombies == job.notes == ()
    one = job.ranks[1]
    assert (one.local_rank, one.local_size, one.master) == (1, 2, "127.0.0.1:29500")
    assert (one.source, one.start_ticks, one.user) == ("its environment at its start", 12, 1000)


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (TORCHRUN, "torchrun"),
        ((PYTHON, "-m", "torch.distributed.run", "train.py"), "torchrun"),
        ((PYTHON, "/opt/venv/bin/accelerate", "launch", "train.py"), "accelerate"),
        ((PYTHON, "-u", "-m", "deepspeed.launcher.launch", "--world_info=e30=", "train.py"), "deepspeed"),
        (("slurmstepd: [4711.0]",), "Slurm"),
        (("mpirun", "-np", "2", "python", "train.py"), "MPI"),
        (("/opt/ray/core/src/ray/raylet/raylet", "--raylet_socket_name=x"), "Ray"),
        ((PYTHON, "-m", "ipykernel_launcher", "-f", "kernel.json"), "Jupyter"),
        ((PYTHON, "/opt/venv/bin/paceline", "run", "train.py"), "paceline"),
    ],
)
def test_each_launcher_has_its_word(command, word):
    job = the_job(row(10, command=command), row(11, 10, by_torchrun(0)), row(12, 10, by_torchrun(1)))
    assert (job.launcher, job.launcher_pid, pids(job)) == (word, 10, {0: 11, 1: 12})


def test_in_a_container_the_launcher_may_be_the_first_process():
    ranks = [row(11 + rank, 1, by_torchrun(rank, 3)) for rank in range(2)]
    zombie = row(13, 1, state="Z", command=(), started=None)
    job = the_job(row(1, 0, command=TORCHRUN), *ranks, zombie)
    assert (job.launcher_pid, job.missing_here, job.zombies) == (1, (2,), (13,))
    on_a_host = the_job(row(1, 0, command=("/sbin/init",), user=0), *ranks, zombie)
    assert (on_a_host.launcher, on_a_host.launcher_pid, on_a_host.zombies) == ("torchrun", None, ())


def test_the_launcher_may_be_above_a_shell():
    job = the_job(
        row(10, command=TORCHRUN),
        row(11, 10, by_torchrun(0, 1), command=("/bin/bash", "run.sh")),
        row(12, 11, by_torchrun(0, 1)),
    )
    assert (job.launcher_pid, pids(job)) == (10, {0: 12})


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        (by_torchrun(0, 1), "torchrun"),
        (by_torchrun(0, 1, PACELINE_RUN_ID="train-1"), "paceline"),
        (by_mpi(0, 1), "MPI"),
        (by_slurm(0, 1), "Slurm"),
    ],
)
def test_where_the_launcher_is_gone_the_variables_name_it(variables, word):
    job = the_job(row(11, 1, variables))
    assert (job.launcher, job.launcher_pid) == (word, None)


def test_a_launcher_with_a_rank_s_variables_is_no_rank():
    agents = [row(10, 1, POD, command=TORCHRUN), row(20, 1, by_slurm(0), command=("srun", "python", "train.py"))]
    assert found(*agents) == []
    job = the_job(*agents, row(11, 10, by_torchrun(0)), row(12, 10, by_torchrun(1)))
    assert pids(job) == {0: 11, 1: 12}


def test_loader_workers_and_other_helpers_of_a_rank_are_none():
    zero, one = by_torchrun(0), by_torchrun(1)
    compiles = (PYTHON, "/opt/venv/lib/python3.11/site-packages/torch/_inductor/compile_worker/__main__.py")
    job = the_job(
        row(10, command=TORCHRUN),
        row(11, 10, zero),
        row(12, 10, one),
        row(13, 11, zero),
        row(14, 12, one, command=SPAWNED),
        row(15, 12, one, command=(PYTHON, "-m", "wandb.service"), has_torch=False),
        row(16, 15, one),
        row(17, 1, one, command=compiles),
    )
    assert pids(job) == {0: 11, 1: 12} and job.notes == ()


def test_a_rank_that_has_not_imported_torch_yet_is_one_and_another_python_is_none():
    assert pids(the_job(row(11, 1, by_torchrun(0, 1), has_torch=False))) == {0: 11}
    assert found(row(11, 1, {"RANK": "0"}, has_torch=False)) == []
    assert found(row(11, 1, by_mpi(0), has_torch=False)) == []


@pytest.mark.parametrize("has_torch", [True, False])
def test_what_a_launcher_in_a_pod_starts_beside_its_ranks_is_none(has_torch):
    agent = row(10, 1, POD, command=TORCHRUN)
    assert found(agent, row(11, 10, POD, has_torch=has_torch)) == []
    assert pids(the_job(agent, row(11, 10, POD | by_torchrun(0, 1), has_torch=has_torch))) == {0: 11}
    by_deepspeed = {"LOCAL_RANK": "0", "LOCAL_SIZE": "1"}
    assert pids(the_job(agent, row(11, 10, POD | by_deepspeed, has_torch=has_torch))) == {0: 11}


def test_a_python_that_only_starts_the_rank_is_none():
    conda = (PYTHON, "/opt/conda/bin/conda", "run", "python", "train.py")
    job = the_job(row(10, 1, POD, command=conda, has_torch=False), row(11, 10, POD), row(12, 11, POD))
    assert (pids(job), job.name) == ({0: 11}, "train.py")


def test_what_is_not_python_is_a_rank_only_with_torch_in_its_memory():
    program = ("./trainer",)
    assert found(row(11, 1, by_torchrun(0, 1), command=program)) == []
    assert pids(the_job(row(11, 1, by_torchrun(0, 1), command=program, has_torch=True))) == {0: 11}


def test_two_jobs_are_two():
    jobs = found(
        *(row(11 + rank, 1, by_torchrun(rank, port=29500)) for rank in range(2)),
        *(row(21 + rank, 1, by_torchrun(rank, 3, port=29501)) for rank in range(3)),
    )
    assert [pids(job) for job in jobs] == [{0: 21, 1: 22, 2: 23}, {0: 11, 1: 12}]


@pytest.mark.parametrize(
    "other",
    [
        {"network": "net:[2]"},
        {"user": 1001},
        {"started": by_torchrun(1, run="another")},
        {"started": by_torchrun(1, 3)},
    ],
)
def test_the_same_port_makes_no_job_of_other_networks_users_runs_and_sizes(other):
    jobs = found(row(11, 1, by_torchrun(0)), row(12, 1, **{"started": by_torchrun(1)} | other))
    assert [pids(job) for job in jobs] == [{0: 11}, {1: 12}]


def test_two_containers_in_one_network_are_one_job():
    job = the_job(row(11, 1, by_torchrun(0), inner_pids=(11, 1)), row(21, 2, by_torchrun(1), inner_pids=(21, 1)))
    assert pids(job) == {0: 11, 1: 21}


def test_missing_ranks_are_named_and_zombies_beside_them():
    job = the_job(
        row(10, command=TORCHRUN),
        row(12, 10, by_torchrun(5, 8, local=1, local_size=4)),
        row(13, 10, by_torchrun(6, 8, local=2, local_size=4)),
        row(14, 10, state="Z", command=(), started=None),
        row(15, 1, state="Z", command=(), started=None),
    )
    assert (job.world_size, job.expected_here, job.missing_here, job.zombies) == (8, 4, (4, 7), (14,))


def test_two_agents_of_one_job_on_a_host_expect_the_ranks_of_both():
    rows = [row(agent, 9, command=TORCHRUN) for agent in (10, 20)]
    rows += [
        row(pid, pid // 10 * 10, by_torchrun(rank, 4, local=rank % 2, local_size=2))
        for pid, rank in ((11, 0), (12, 1), (22, 3))
    ]
    job = the_job(row(9, command=("mpirun", "-np", "2", "torchrun", "train.py")), *rows)
    assert (job.expected_here, job.missing_here) == (4, (2,))
    assert (job.launcher, job.launcher_pid) == ("MPI", 9)


def test_ranks_that_somebody_started_one_by_one_at_a_local_address_are_all_expected_here():
    bare = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    job = the_job(row(11, 1, bare), row(13, 1, {**bare, "RANK": "2"}))
    assert (job.expected_here, job.missing_here, job.launcher) == (3, (1,), "")
    elsewhere = the_job(row(11, 1, {**bare, "MASTER_ADDR": "node-a"}))
    assert (elsewhere.expected_here, elsewhere.missing_here) == (None, ())


def test_numbers_that_slurm_dealt_out_in_turn_are_not_guessed():
    variables = by_slurm(2, 4, SLURM_LOCALID="1", SLURM_NNODES="2", SLURM_NTASKS_PER_NODE="2")
    job = the_job(row(11, 1, variables))
    assert (job.expected_here, job.missing_here) == (2, ())
    assert job.notes == ("of 2 ranks here 1 have no process; which ones is not known",)


@pytest.mark.parametrize("own", [{"MASTER_PORT": "1"}, {"WORLD_SIZE": "3"}, {"MASTER_ADDR": "elsewhere"}], ids=str)
def test_what_a_rank_of_torchrun_sets_itself_does_not_part_it_from_the_others(own):
    second = by_torchrun(1)
    job = the_job(row(11, 1, by_torchrun(0)), row(12, 1, second, now={**second, **own}))
    assert pids(job) == {0: 11, 1: 12}


def test_what_is_left_of_an_earlier_job_at_the_same_port_does_not_hide_the_new_one():
    job = the_job(
        row(5, 1, by_torchrun(0)),
        row(10, command=TORCHRUN),
        row(11, 10, by_torchrun(0), start_ticks=1111),
        row(12, 10, by_torchrun(1), start_ticks=1111),
    )
    assert pids(job) == {0: 11, 1: 12}
    (note,) = job.notes
    assert note.startswith("rank 0 twice: pids 5 and 11, started 11 s apart")


def test_of_two_that_nothing_else_tells_apart_the_newer_is_the_rank():
    job = the_job(row(30, 7, by_torchrun(0, 1), start_ticks=100), row(20, 8, by_torchrun(0, 1), start_ticks=200))
    assert pids(job) == {0: 20} and "twice" in job.notes[0]


def test_a_python_beside_a_pod_s_rank_does_not_take_its_place():
    job = the_job(row(11, 0, POD), row(40, 0, POD, command=(PYTHON,), has_torch=False))
    assert pids(job) == {0: 11} and job.notes == ()


def test_after_a_restart_the_new_ranks_are_found():
    before, after = ({"TORCHELASTIC_RESTART_COUNT": str(count)} for count in (0, 1))
    job = the_job(
        row(10, command=TORCHRUN),
        row(11, 10, by_torchrun(0, **before), state="Z"),
        row(13, 10, by_torchrun(0, **after)),
        row(14, 10, by_torchrun(1, **after)),
    )
    assert pids(job) == {0: 13, 1: 14} and job.zombies == (11,)
    assert job.ranks[0].environment["TORCHELASTIC_RESTART_COUNT"] == "1"


def test_steps_of_slurm_are_jobs_of_their_own_and_an_address_set_later_parts_no_step():
    met = {"MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}
    jobs = found(
        row(10, command=("slurmstepd: [4711.0]",), user=0),
        row(11, 10, by_slurm(0), now=by_slurm(0, RANK="0", WORLD_SIZE="2", **met)),
        row(12, 10, by_slurm(1)),
        row(20, command=("slurmstepd: [4711.1]",), user=0),
        row(21, 20, by_slurm(0, step=1)),
    )
    assert [(pids(job), job.missing_here, job.launcher) for job in jobs] == [
        ({0: 11, 1: 12}, (), "Slurm"),
        ({0: 21}, (1,), "Slurm"),
    ]
    assert jobs[0].ranks[1].source == "SLURM_PROCID in its environment at its start"


@pytest.mark.parametrize("step", ["4294967291", "4294967290", "x", ""])
def test_what_a_batch_script_runs_itself_is_no_task_of_a_step(step):
    assert found(row(11, 1, by_slurm(0, 8, step=step))) == []


def test_torchrun_below_mpi_or_slurm_gives_the_numbers():
    for outer, program in ((by_mpi, ("mpirun",)), (by_slurm, ("slurmstepd: [4711.0]",))):
        job = the_job(
            row(9, command=program),
            row(10, 9, outer(0, 1), command=TORCHRUN),
            row(11, 10, outer(0, 1) | by_torchrun(0)),
            row(12, 10, outer(0, 1) | by_torchrun(1)),
        )
        assert (pids(job), job.launcher, job.launcher_pid) == ({0: 11, 1: 12}, "torchrun", 10)


def test_ranks_of_mpi_are_found_by_its_variables_and_two_of_its_jobs_are_two():
    another = {"OMPI_MCA_ess_base_jobid": "78"}
    jobs = found(
        *(row(11 + rank, 10, by_mpi(rank)) for rank in range(2)),
        *(row(21 + rank, 10, by_mpi(rank, **another)) for rank in range(2)),
    )
    assert [pids(job) for job in jobs] == [{0: 11, 1: 12}, {0: 21, 1: 22}]
    hydra = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    assert the_job(row(11, 10, hydra)).ranks[0].source == "PMI_RANK in its environment at its start"


def test_a_script_a_notebook_and_ray_set_their_numbers_themselves():
    here = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "41234"}
    job = the_job(
        row(10, command=("/opt/ray/raylet",), has_torch=False),
        row(
            11,
            10,
            command=("ray::RayTrainWorker._RayTrainWorker__execute()",),
            is_python=True,
            has_torch=True,
            now=here,
        ),
    )
    assert (pids(job), job.launcher) == ({1: 11}, "Ray")
    assert (job.ranks[1].source, job.ranks[1].master) == ("its environment now", "10.0.0.7:41234")


def test_spawned_children_that_set_variables_are_ranks_their_parent_and_their_workers_are_not():
    numbers = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"} for rank in (0, 1)
    ]
    children = [row(11 + rank, 10, POD, command=SPAWNED, now=POD | numbers[rank]) for rank in (0, 1)]
    job = the_job(row(10, 1, POD), *children, row(13, 12, POD, command=SPAWNED, now=POD | numbers[1]))
    assert pids(job) == {0: 11, 1: 12}
    assert (job.name, job.launcher, job.launcher_pid, job.world_size) == (
        "train.py",
        "torch.multiprocessing.spawn",
        10,
        2,
    )


@pytest.mark.parametrize("inherited", [{}, POD, by_slurm(0, 1)])
def test_spawned_children_that_set_nothing_are_numbered_by_their_function(inherited):
    children = [row(11 + rank, 10, inherited, command=SPAWNED, spawn_index=rank) for rank in range(3)]
    job = the_job(row(10, 1, inherited), *children, row(15, 13, inherited, command=SPAWNED))
    assert pids(job) == {0: 11, 1: 12, 2: 13}
    assert (job.world_size, job.expected_here, job.launcher_pid) == (3, 3, 10)
    assert {one.source for one in job.ranks.values()} == {"torch.multiprocessing.spawn"}


def test_a_spawned_child_that_is_gone_is_missing():
    children = [row(11 + rank, 10, command=SPAWNED, spawn_index=rank) for rank in (0, 2)]
    assert the_job(row(10), *children).missing_here == (1,)


def test_forks_that_set_their_numbers_are_ranks_of_the_process_that_forked_them():
    here = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    job = the_job(row(10), *(row(11 + rank, 10, now={"RANK": str(rank), **here}) for rank in (0, 1)))
    assert (pids(job), job.launcher, job.launcher_pid) == ({0: 11, 1: 12}, "multiprocessing", 10)


def test_a_process_that_starts_the_other_ranks_and_is_one_itself_stays_one():
    numbers = [
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"} for rank in (0, 1)
    ]
    job = the_job(row(10, now=numbers[0]), row(11, 10, numbers[0], now=numbers[1]))
    assert pids(job) == {0: 10, 1: 11}


def test_a_job_that_a_rank_starts_is_another_job():
    outer = by_torchrun(0, 2)
    jobs = found(
        row(10, command=TORCHRUN),
        row(11, 10, outer),
        row(12, 10, by_torchrun(1, 2)),
        row(13, 11, outer, command=TORCHRUN),
        row(14, 13, by_torchrun(0, 1, port=4000, run="eval")),
    )
    assert [pids(job) for job in jobs] == [{0: 11, 1: 12}, {0: 14}]


def test_ranks_of_paceline_are_found_and_its_agent_and_fork_server_are_not():
    server = (PYTHON, "-u", "/opt/venv/lib/python3.11/site-packages/paceline/worker/fork_server.py", "7")
    agent = (PYTHON, "/opt/venv/bin/paceline", "run", "--nproc-per-node", "2", "digits.py")
    ranks = [by_torchrun(rank, PACELINE_RUN_ID="digits-1") for rank in (0, 1)]
    job = the_job(
        row(10, 1, POD, command=agent),
        row(11, 10, ranks[0]),
        row(12, 10, POD, command=server, now=POD),
        row(13, 10, POD, command=server, now=ranks[1]),
    )
    assert (pids(job), job.launcher, job.launcher_pid) == ({0: 11, 1: 13}, "paceline", 10)
    forked = the_job(row(10, 1, POD, command=agent), row(13, 10, POD, command=server, now=ranks[1]))
    assert forked.name == "digits.py"


@pytest.mark.parametrize(
    ("module", "is_rank"),
    [
        ("paceline.worker.call_function", True),
        ("paceline.parts.plan.trace", False),
        ("paceline.launch.programs.engine_host", False),
    ],
)
def test_of_paceline_s_own_programs_only_those_of_ranks_are(module, is_rank):
    assert bool(found(row(11, 1, by_torchrun(0, 1), command=(PYTHON, "-u", "-m", module)))) is is_rank


def test_what_may_not_be_read_is_said():
    job = the_job(
        row(10, command=TORCHRUN),
        row(11, 10, by_torchrun(0), refused="Operation not permitted"),
        row(12, 10, None, refused="Permission denied", user=0),
    )
    assert job.notes == (
        "what is beside the ranks could not be read: 12",
        "what a rank has set itself could not be read: 11",
    )


@pytest.mark.parametrize("rank", ["-1", "99999999999", "", "1.0", "0x1", "١", "1\0", " 1", "1\n", "abc", "2"])
def test_what_is_no_number_of_a_rank_makes_none(rank):
    assert numbers_in({"RANK": rank, "WORLD_SIZE": "2"}) is None


@pytest.mark.parametrize("size", ["abc", "-2", "99999999999", ""])
def test_a_world_size_that_is_no_number_is_not_known(size):
    job = the_job(row(11, 1, {"RANK": "3", "WORLD_SIZE": size}))
    assert (pids(job), job.world_size) == ({3: 11}, None) and "the world size is not known" in job.notes


def test_a_world_of_millions_costs_nothing():
    huge = by_torchrun(7, 9_999_999, local=0, local_size=9_999_999)
    job = the_job(row(11, 1, huge))
    assert (job.world_size, job.expected_here, job.missing_here) == (9_999_999, None, ())
    most = the_job(row(11, 1, by_torchrun(0, 9_999_999, local_size=MOST_LOCAL)))
    assert len(most.missing_here) == MOST_LOCAL - 1


@pytest.mark.parametrize(
    "address",
    [
        ("a b", "29500"),
        ("\x1b[2J", "29500"),
        ("", "29500"),
        ("a" * 300, "29500"),
        ("a", "0"),
        ("a", "65536"),
        ("a", "-1"),
        ("a", "x"),
    ],
)
def test_an_address_that_is_none_is_not_kept(address):
    assert master_of(dict(zip(("MASTER_ADDR", "MASTER_PORT"), address, strict=True))) is None


def test_no_secret_and_no_long_text_is_kept():
    variables = by_torchrun(0) | {"AWS_SECRET_ACCESS_KEY": "x", "PMI_AUTH_TOKEN": "x", "HOME": "/root"}
    kept = allowed(variables | {"TORCHELASTIC_ERROR_FILE": "x" * 1000})
    assert kept == by_torchrun(0)


def test_a_circle_of_parents_ends():
    assert pids(the_job(row(11, 12, by_torchrun(0)), row(12, 11, by_torchrun(1)))) == {0: 11, 1: 12}


def test_any_rows_give_jobs_in_which_each_process_is_one_rank_at_most():
    draw = random.Random(7)
    texts = ["0", "1", "2", "3", "", "-1", "x", "99999999999", "\x1b[0m", "29500"]
    names = [*by_torchrun(0), *by_slurm(0), *by_mpi(0), "PMI_RANK", "PMI_SIZE"]
    commands = [
        SCRIPT,
        SPAWNED,
        TORCHRUN,
        ("bash",),
        (),
        (PYTHON, "-c", "x"),
        (PYTHON, "-m"),
        ("\0\x1b",),
        ("slurmstepd: x",),
    ]

    def variables():
        return {name: draw.choice(texts) for name in draw.sample(names, draw.randrange(len(names)))}

    for _ in range(300):
        rows = [
            row(
                pid,
                draw.randrange(30),
                variables(),
                command=draw.choice(commands),
                state=draw.choice("SRDZ"),
                now=draw.choice((None, variables())),
                spawn_index=draw.choice((None, None, 0, 1)),
                is_python=draw.random() < 0.8,
                has_torch=draw.random() < 0.8,
                user=draw.choice((0, 1000)),
            )
            for pid in range(2, 30)
        ]
        jobs = found(*rows)
        ranks = [(rank, one) for job in jobs for rank, one in job.ranks.items()]
        assert len({one.pid for _, one in ranks}) == len(ranks)
        assert all(rank == one.rank and (one.world_size is None or rank < one.world_size) for rank, one in ranks)
        assert all(len({one.user for one in job.ranks.values()}) == 1 for job in jobs)


@pytest.mark.parametrize(
    ("frames", "index"),
    [
        ([{"name": "f", "filename": "t.py"}, {"name": "_wrap", "filename": SPAWN_FILE, "locals": [{"name": "i", "repr": "3"}]}], 3),
        ([{"name": "_wrap", "filename": SPAWN_FILE, "locals": [{"name": "i", "repr": "'3'"}]}], None),
        ([{"name": "_wrap", "filename": SPAWN_FILE, "locals": None}], None),
        ([{"name": "_wrap", "filename": SPAWN_FILE, "locals": [{"name": "i", "repr": "9999999"}]}], None),
        ([{"name": "_wrap", "filename": "mine.py", "locals": [{"name": "i", "repr": "3"}]}], None),
        ([None, 3, {"name": None}], None),
        (None, None),
    ],
)  # fmt: skip
def test_the_number_of_a_spawned_child_is_an_argument_on_its_stack(frames, index):
    text = json.dumps([None, {"frames": frames}])
    assert spawn_index(locals_in(text, "_wrap", "torch/multiprocessing/spawn.py", ("i",))) == index
