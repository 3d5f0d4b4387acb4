"""Ranks find each other by TF_CONFIG, on ports that their agents agreed on. Plain sockets stand for TensorFlow's servers."""

import json
import os
import socket

import pytest
from ports import free_port

pytestmark = pytest.mark.process

# Every task listens on its port on all addresses, as TensorFlow does, and hears from each other task.
MEET = """
import json, os, socket, sys
config = json.loads(os.environ["TF_CONFIG"])
workers, index = config["cluster"]["worker"], config["task"]["index"]
assert config["task"]["type"] == "worker" and index == int(os.environ["RANK"]) and len(workers) == int(os.environ["WORLD_SIZE"])
server = socket.create_server(("", int(workers[index].rpartition(":")[2])), reuse_port=False)
server.settimeout(60)
for number, worker in enumerate(workers):
    if number != index:
        host, _, port = worker.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=60).sendall(b"%d" % index)
                break
            except ConnectionRefusedError:
                pass
heard = sorted(int(server.accept()[0].recv(10)) for _ in range(len(workers) - 1))
print(f"rank {index} heard {heard}", flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and index == 1 and "fail" in sys.argv:
    raise SystemExit(7)
"""


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "where",
    [
        ("--local-hosts", "3"),
        ("--local-hosts", "2", "--nproc-per-node", "2"),
        ("--nproc-per-node", "3"),
    ],
    ids=" ".join,
)
def test_every_rank_reaches_every_other(paceline, where):
    job = paceline.run("run", *where, "--tf-config", "multi_worker_mirrored", paceline.script("meet.py", MEET))
    assert job.code == 0, job.err
    ranks = job.out.count("heard")
    assert ranks in (3, 4)
    for rank in range(ranks):
        assert f"rank {rank} heard {[other for other in range(ranks) if other != rank]}" in job.out


@pytest.mark.slow
def test_a_restart_finds_the_ports_of_its_own_attempt(paceline):
    words = ("--local-hosts", "2", "--tf-config", "multi_worker_mirrored", "--max-restarts", "1")
    job = paceline.run("run", *words, paceline.script("meet.py", MEET), "fail")
    assert job.code == 0 and job.out.count("rank 0 heard [1]") == 2, job.err


def test_sagemakers_port_is_taken_where_it_is_free_and_another_one_where_it_is_not(paceline):
    script = paceline.script("say.py", "import os; print(os.environ['TF_CONFIG'], flush=True)")
    with socket.socket() as holder:
        try:
            holder.bind(("0.0.0.0", 8890))
        except OSError:
            pass  # somebody else holds it, which is the same
        job = paceline.run("run", "--tf-config", "multi_worker_mirrored", script)
    (worker,) = json.loads(job.out)["cluster"]["worker"]
    assert worker.rpartition(":")[2] != "8890"


TWO = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})
ONE = json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})


def test_a_tf_config_of_the_user_that_would_wait_for_ever_is_refused_before_anything_starts(paceline):
    script = paceline.script("say.py", "print('started')")
    job = paceline.run("run", "--tf-config", "multi_worker_mirrored", script, TF_CONFIG=TWO)
    assert job.code == 2 and "started" not in job.out
    assert "error[U57]" in job.err and "names 2 tasks, and this job has 1 ranks" in job.err
    assert "unset TF_CONFIG" in job.err


def test_two_local_hosts_cannot_be_the_same_task(paceline):
    words = ("run", "--local-hosts", "2", "--tf-config", "multi_worker_mirrored")
    job = paceline.run(*words, paceline.script("say.py", "print('started')"), TF_CONFIG=TWO)
    # Only the second host has the wrong task; the first one may have begun when that is known.
    assert job.code == 2 and job.out.count("started") <= 1
    assert "is worker 0 in its TF_CONFIG, and must be worker 1" in job.err


@pytest.mark.smoke
def test_a_tf_config_of_the_user_wins_and_the_terminal_says_so(paceline):
    script = paceline.script("say.py", "import os; print(os.environ['TF_CONFIG'], flush=True)")
    job = paceline.run("run", "--tf-config", "multi_worker_mirrored", script, TF_CONFIG=ONE)
    assert job.code == 0 and job.out.strip() == ONE
    assert "TF_CONFIG was set here and is taken as it is" in job.err


def test_a_port_of_the_users_tf_config_that_is_in_use_is_refused_and_names_its_holder(paceline):
    script = paceline.script("say.py", "print('started')")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        job = paceline.run(
            "run", "--tf-config", "multi_worker_mirrored", script, TF_CONFIG=ONE.replace("a:1", f"a:{port}")
        )
    assert job.code == 2 and "started" not in job.out
    assert f"error[U04]: port {port} on localhost is in use" in job.err and f"pid {os.getpid()}" in job.err


TASK = """
import json, os
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["type"], task["index"], "is rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
"""


ELASTIC = """
import json, os, time
print(len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]), "of", os.environ["WORLD_SIZE"], flush=True)
while os.environ["WORLD_SIZE"] == "2":
    time.sleep(1)
"""


@pytest.mark.slow
def test_a_job_that_goes_on_with_fewer_hosts_has_a_cluster_of_these(paceline):
    words = ("run", "--nnodes", "1:2", "--max-restarts", "1", "--master-addr", "127.0.0.1", "--master-port")
    words += (str(free_port()), "--tf-config", "multi_worker_mirrored", "--node-rank")
    script = paceline.script("elastic.py", ELASTIC)
    jobs = [paceline.start(*words, str(number), script) for number in range(2)]
    for job in jobs:
        job.until_printed("2 of 2")
    jobs[1].process.kill()
    finished = jobs[0].wait()
    assert finished.code == 0 and "1 of 1" in finished.out, finished.err


@pytest.mark.slow
def test_a_chief_and_an_evaluator_of_the_user_are_taken_in_the_order_of_the_ranks(paceline):
    """An evaluator is no task of the cluster that the others wait for, and has a rank of its own behind theirs."""
    cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
    words = ("run", "--nnodes", "3", "--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    words += ("--tf-config", "multi_worker_mirrored", "--node-rank")
    script = paceline.script("task.py", TASK)
    jobs = [
        paceline.start(*words, str(rank), script, TF_CONFIG=json.dumps({"cluster": cluster, "task": task}))
        for rank, task in enumerate({"type": kind, "index": 0} for kind in ("chief", "worker", "evaluator"))
    ]
    ended = [job.wait() for job in jobs]
    assert [one.code for one in ended] == [0, 0, 0], [one.err for one in ended]
    said = sorted(line for one in ended for line in one.out.splitlines() if "is rank" in line)
    assert said == ["chief 0 is rank 0 of 3", "evaluator 0 is rank 2 of 3", "worker 0 is rank 1 of 3"]
    assert "TF_CONFIG was set here and is taken as it is" in ended[0].err


def test_a_job_that_asked_for_none_is_only_told_of_a_tf_config_that_does_not_fit(paceline):
    job = paceline.run("run", paceline.script("say.py", "print('started')"), TF_CONFIG=TWO)
    assert job.code == 0 and "started" in job.out and "(U57)" in job.err
