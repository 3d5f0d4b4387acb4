"""Several hosts: names, missing hosts, tokens, elastic sizes. Hosts are agents on this machine's loopback addresses."""

import json
import os
import signal
import socket
import sys

import pytest
from ports import free_port
from refused_namespaces import REFUSE_UNSHARE

pytestmark = pytest.mark.process

IDIOM = """
import json, os
os.environ["MASTER_ADDR"] = json.loads(os.environ["SM_HOSTS"])[0]
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(os.environ["SM_CURRENT_HOST"], os.environ["MASTER_ADDR"], dist.get_rank(), int(total), flush=True)
dist.destroy_process_group()
"""
WAITS = (
    "import os, time\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\ntime.sleep(300)\n"
)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("user", ["as it is", "as a normal user"])
def test_the_commonest_sagemaker_idiom_finds_the_first_host(paceline, user):
    prefix = ()
    if user == "as a normal user":
        if os.geteuid() != 0:
            pytest.skip("this test already runs as a normal user")
        # User 1000 in a user namespace: no capability, no root, and still the owner of this checkout's files.
        prefix = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    script = paceline.script("idiom.py", IDIOM)
    finished = paceline.run("run", "--local-hosts", "2", script, prefix=prefix)
    assert finished.code == 0, finished.err
    assert sorted(finished.out.splitlines()) == ["algo-1 algo-1 0 2", "algo-2 algo-1 1 2"]


@pytest.mark.slow
def test_where_namespaces_are_refused_names_are_translated_and_the_launcher_says_so(paceline):
    script = paceline.script("idiom.py", IDIOM)
    refused = (sys.executable, "-c", REFUSE_UNSHARE)
    finished = paceline.run("run", "--local-hosts", "2", script, prefix=refused)
    assert finished.code == 0, finished.err
    assert "translated in the ranks" in finished.err
    assert {line.split()[0] for line in finished.out.splitlines()} == {"algo-1", "algo-2"}
    assert {line.split()[-1] for line in finished.out.splitlines()} == {"2"}


def hosts(paceline, count: int, *argv: str, skip: tuple[int, ...] = (), **environment: str):
    port = str(free_port())
    options = ["--nnodes", str(count), "--master-addr", "127.0.0.1", "--master-port", port]
    return [
        paceline.start("run", *options, "--node-rank", str(node_rank), *argv, **environment)
        for node_rank in range(count)
        if node_rank not in skip
    ]


def test_two_hosts_meet_by_node_rank(paceline):
    script = paceline.script(
        "place.py", "import os\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['GROUP_RANK'])\n"
    )
    first, second = hosts(paceline, 2, "--nproc-per-node", "2", script, PACELINE_TOKEN="a secret of this test")
    assert first.wait().code == 0 and second.wait().code == 0, first.err + second.err
    assert sorted(first.out.splitlines()) == ["0 4 0", "1 4 0"]
    assert sorted(second.out.splitlines()) == ["2 4 1", "3 4 1"]
    assert "U12" not in first.err


def test_a_missing_host_is_named_with_its_ranks_after_five_seconds(paceline):
    (first,) = hosts(paceline, 2, "--nproc-per-node", "2", paceline.script("waits.py", WAITS), skip=(1,))
    first.until(lambda: "waiting for hosts" in first.err, timeout=15)
    assert "node 1 (ranks 2-3): its agent never contacted 127.0.0.1" in first.err
    first.process.send_signal(signal.SIGINT)
    assert first.wait().code == 130


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.wide), (signal.SIGTERM, 204)]
)
def test_a_host_that_cannot_reach_the_first_says_what_it_sees_and_can_be_stopped(paceline, number, code):
    (second,) = hosts(paceline, 2, paceline.script("waits.py", WAITS), skip=(0,))
    second.until(lambda: "waiting for hosts" in second.err, timeout=15)
    assert "refused" in second.err
    second.process.send_signal(number)
    finished = second.wait()
    assert finished.code == code and "Traceback" not in finished.err
    assert paceline.left() == []


@pytest.mark.slow
def test_a_name_that_does_not_resolve_is_said_as_such(paceline):
    options = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "no-such-host.invalid"]
    job = paceline.start("run", *options, paceline.script("waits.py", WAITS))
    job.until(lambda: "waiting for hosts" in job.err, timeout=20)
    assert "name does not resolve" in job.err


@pytest.mark.slow
def test_a_first_host_that_never_comes_is_201(paceline):
    port = str(free_port())
    options = ["--nnodes", "2", "--node-rank", "1", "--master-port", port, "--rdzv-conf", "join_timeout=2"]
    finished = paceline.run("run", *options, paceline.script("waits.py", WAITS))
    assert finished.code == 201 and "U21" in finished.err and "refused" in finished.err


def test_hosts_that_disagree_about_the_job_are_refused_by_name(paceline):
    port = str(free_port())
    script = paceline.script("waits.py", WAITS)
    first = paceline.start("run", "--nnodes", "2", "--master-port", port, script)
    first.until(lambda: "run r-" in first.err)
    refused = paceline.run("run", "--nnodes", "3", "--node-rank", "1", "--master-port", port, script)
    assert refused.code == 2 and "U05" in refused.err and "--nnodes 3" in refused.err


@pytest.mark.slow
def test_two_hosts_with_the_same_node_rank_are_refused(paceline):
    port = str(free_port())
    script = paceline.script("waits.py", WAITS)
    options = ["--nnodes", "3", "--master-port", port]
    first = paceline.start("run", *options, script)
    first.until(lambda: "run r-" in first.err)
    second = paceline.start("run", *options, "--node-rank", "1", script)
    second.until(lambda: "joined" in second.err)
    third = paceline.run("run", *options, "--node-rank", "1", script)
    assert third.code == 2 and "node rank 1 is taken" in third.err


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("1" * 16, "2" * 16),
        pytest.param("1" * 16, "", marks=pytest.mark.wide),
        pytest.param("", "2" * 16, marks=pytest.mark.wide),
    ],
)
def test_a_token_that_does_not_match_is_refused(paceline, ours, theirs):
    port = str(free_port())
    script = paceline.script("waits.py", WAITS)
    first = paceline.start("run", "--nnodes", "2", "--master-port", port, script, PACELINE_TOKEN=ours)
    first.until(lambda: "run r-" in first.err)
    second = paceline.run(
        "run", "--nnodes", "2", "--node-rank", "1", "--master-port", port, script, PACELINE_TOKEN=theirs
    )
    assert second.code == 2 and "U12" in second.err
    source = "PACELINE_TOKEN" if ours else str(paceline.directory / "config/paceline/token")
    first.until(lambda: f"; here it is {source}" in first.err)
    assert "scp 127.0.0.1:.config/paceline/token" in second.err and "token_file=~/paceline-token" in second.err


@pytest.mark.slow
def test_without_a_word_about_it_hosts_of_one_user_prove_themselves_and_the_token_is_nowhere(paceline):
    port = str(free_port())
    argv = ("run", "--nnodes", "2", "--master-port", port, paceline.script("idiom.py", IDIOM))
    first = paceline.start(*argv)
    first.until(lambda: "the other hosts need this user's token" in first.err)
    file = paceline.directory / "config" / "paceline" / "token"
    assert f"scp NAME-OF-THE-FIRST-HOST:{file} " in first.err
    second = paceline.run(*argv[:3], "--node-rank", "1", *argv[3:])
    assert (first.wait(90).code, second.code) == (0, 0), second.err
    assert file.stat().st_mode & 0o777 == 0o600
    secret = file.read_text().strip()
    recorded = "".join(path.read_text(errors="replace") for path in paceline.directory.rglob("*.json*"))
    assert len(secret) == 64 and secret not in first.err + first.out + second.err + recorded
    assert "without a token" not in first.err + second.err


@pytest.mark.slow
def test_who_wants_an_open_port_says_so_and_is_warned(paceline):
    port = str(free_port())
    argv = ("run", "--nnodes", "2", "--set", "no_token=true", "--master-port", port, paceline.script("idiom.py", IDIOM))
    first = paceline.start(*argv)
    second = paceline.run(*argv[:3], "--node-rank", "1", *argv[3:])
    finished = first.wait(90)
    assert (finished.code, second.code) == (0, 0), second.err
    assert "can run code in the ranks" in finished.err
    assert not (paceline.directory / "config").exists()


def test_a_port_in_use_names_its_holder(paceline):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        finished = paceline.run("run", "--nnodes", "2", "--master-port", port, paceline.script("waits.py", WAITS))
    assert finished.code == 2 and "U04" in finished.err and f"pid {os.getpid()}" in finished.err
    assert not (paceline.directory / ".paceline").exists()


@pytest.mark.fault
def test_an_elastic_job_goes_on_smaller_and_takes_the_host_back_at_the_next_restart(paceline):
    endpoint = f"127.0.0.1:{free_port()}"
    options = ["--nnodes", "1:2", "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    script = paceline.script(
        "elastic.py",
        "import os, sys, time\n"
        "attempt, rank, size = (os.environ[n] for n in ('TORCHELASTIC_RESTART_COUNT', 'RANK', 'WORLD_SIZE'))\n"
        "print('attempt', attempt, 'rank', rank, 'of', size, flush=True)\n"
        "while not os.path.exists('fail') and not os.path.exists('done'): time.sleep(0.05)\n"
        "if os.path.exists('done'): sys.exit(0)\n"
        "if os.environ['RANK'] == '0': os.rename('fail', 'failed'); sys.exit(1)\n"
        "time.sleep(300)\n",
    )
    first = paceline.start("run", *options, script)
    first.until(lambda: "run r-" in first.err)
    second = paceline.start("run", *options, script)
    first.until_printed("attempt 0 rank 0 of 2")
    second.until_printed("attempt 0 rank 1 of 2")
    second.process.send_signal(signal.SIGKILL)
    first.until_printed("attempt 1 rank 0 of 1", timeout=5)
    back = paceline.start("run", *options, script)
    back.until(lambda: "joined run" in back.err)
    (paceline.directory / "fail").touch()
    back.until_printed("attempt 2 rank 1 of 2")
    (paceline.directory / "done").touch()
    assert first.wait().code == 0 and back.wait().code == 0, first.err


@pytest.mark.slow
def test_one_host_order_by_number_with_twelve_hosts(paceline):
    script = paceline.script(
        "order.py", "import os\nprint(os.environ['RANK'], os.environ['SM_CURRENT_HOST'], os.environ['SM_HOSTS'])\n"
    )
    finished = paceline.run("run", "--local-hosts", "12", script)
    assert finished.code == 0, finished.err
    names = [f"algo-{number}" for number in range(1, 13)]
    lines = sorted((line.split(" ", 2) for line in finished.out.splitlines()), key=lambda line: int(line[0]))
    assert [line[1] for line in lines] == names
    assert all(json.loads(line[2]) == names for line in lines)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 204)])
def test_a_signal_to_the_launcher_of_local_hosts_reaches_every_rank_once(paceline, number, code):
    script = paceline.script(
        "counts.py",
        "import os, signal, sys, time\n"
        "def leave(number, frame):\n"
        "    print('rank', os.environ['RANK'], 'got', signal.Signals(number).name, flush=True)\n"
        "    time.sleep(0.5)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGINT, leave)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('ready', flush=True)\n"
        "time.sleep(300)\n",
    )
    job = paceline.start("run", "--local-hosts", "2", "--nproc-per-node", "2", script)
    job.until_printed("ready", 4)
    job.process.send_signal(number)
    finished = job.wait(30)
    assert finished.code == code, finished.err
    assert sorted(line for line in finished.out.splitlines() if "got" in line) == [
        f"rank {rank} got {number.name}" for rank in range(4)
    ]


@pytest.mark.slow
def test_hosts_on_one_machine_do_not_wait_for_a_first_host_that_was_refused(paceline):
    (paceline.directory / "taken").write_text("a file, not a directory")
    script = paceline.script("waits.py", WAITS)
    finished = paceline.run("run", "--local-hosts", "2", "--run-dir", "taken", script, timeout=30)
    assert finished.code == 2 and "error[U22]" in finished.err
    assert paceline.left() == []
