"""Bad input is refused in four parts, with exit 2, before anything is started or written."""

import os
import socket

import pytest

pytestmark = pytest.mark.process


@pytest.fixture
def script(paceline):
    return paceline.script("train.py", "print('started')\n")


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--nproc-per-nodes", "2", "SCRIPT"], "U01", "--nproc-per-node"),
        (["no_such.py"], "U02", "no_such.py"),
        (["--nproc-per-node", "many", "SCRIPT"], "U03", "many"),
        (["--nnodes", "2", "--node-rank", "5", "SCRIPT"], "U05", "--node-rank 5"),
        (["--local-hosts", "2", "--nnodes", "3", "SCRIPT"], "U05", "--nnodes 3"),
        (["--channel", "train=/no/such/dir", "SCRIPT"], "U06", "/no/such/dir"),
        (["--hp", "lr", "SCRIPT"], "U07", "lr"),
        (["--logs-specs", "mine", "SCRIPT"], "U32", "torchrun"),
        (["--rdzv-backend", "etcd", "--rdzv-endpoint", "h:1", "SCRIPT"], "U32", "torchrun"),
        (["--nproc-per-node", "gpu", "SCRIPT"], "U11", "GPU"),
        (["--set", "token_file=/no/such/file", "SCRIPT"], "U12", "/no/such/file"),
    ],
)
def test_the_error_has_four_parts_and_nothing_was_started(paceline, script, argv, code, says):
    finished = paceline.run("run", *[script if word == "SCRIPT" else word for word in argv])
    lines = finished.err.splitlines()
    assert finished.code == 2 and finished.out == ""
    assert lines[0].startswith(f"error[{code}]: ") and says in finished.err
    parts = [line.split()[0] for line in lines[1:] if not line.startswith(" " * 4)]
    assert parts in (["saw", "next", "more"], ["next", "more"])
    assert not (paceline.directory / ".paceline").exists()


def test_a_store_port_in_use_names_its_holder(paceline, script):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        finished = paceline.run("run", "--master-port", str(holder.getsockname()[1]), script)
    assert finished.code == 2 and "error[U04]" in finished.err and f"pid {os.getpid()}" in finished.err


def test_an_unreadable_channel_is_refused(paceline, script):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    locked = paceline.directory / "locked"
    locked.mkdir(mode=0o000)
    finished = paceline.run("run", "--channel", f"train={locked}", script)
    assert finished.code == 2 and "error[U06]" in finished.err


def test_a_job_that_its_own_host_refuses_prints_the_error_and_sums_nothing_up(paceline, script):
    no_directory = paceline.directory / "file"
    no_directory.touch()
    finished = paceline.run("run", "--set", f"base_dir={no_directory / 'below'}", script)
    assert finished.code == 2 and "error[U22]" in finished.err
    assert f"next      paceline run --set base_dir=DIRECTORY {script}" in finished.err
    assert not any(word in finished.err for word in ("failed", "because", "not judged", "paceline logs"))


def test_with_json_the_error_is_one_object_on_stdout(paceline, script):
    import json

    finished = paceline.run("run", "--json", "--hp", "lr", script)
    assert finished.code == 2 and json.loads(finished.out)["schema"] == "paceline.error/1"


def test_a_channel_that_does_not_divide_is_warned_about_before_the_ranks_start(paceline, script):
    data = paceline.directory / "data"
    data.mkdir()
    for number in range(3):
        (data / f"part{number}").write_text("x")
    finished = paceline.run("run", "--local-hosts", "2", "--channel", f"train={data}:ShardedByS3Key", script)
    assert finished.code == 0, finished.err
    assert finished.err.count("warning[U15]") == 1 and "algo-1: 2 files" in finished.err


def test_requirements_that_fail_to_install_end_the_run_before_a_rank_starts(paceline, script):
    (paceline.directory / "requirements.txt").write_text("./no-such-package\n")
    finished = paceline.run("run", "--set", "install_requirements=true", script)
    assert finished.code == 2 and "error[E01]" in finished.err and "started" not in finished.out


def test_a_place_that_cannot_be_written_is_refused_before_a_rank_starts(paceline, script):
    (paceline.directory / "taken").write_text("a file, not a directory")
    finished = paceline.run("run", "--run-dir", "taken", script)
    assert finished.code == 2 and "error[U22]" in finished.err and "started" not in finished.out


def test_a_timingrary_directory_that_is_not_there_is_refused(paceline, script):
    finished = paceline.run("run", script, XDG_RUNTIME_DIR="/no/such", TMPDIR="/no/such")
    assert finished.code in (0, 2) and "Traceback" not in finished.err
