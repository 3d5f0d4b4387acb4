"""The SSH engine without a host: what it would ask, what it makes of answers, and the far side in a directory of this machine."""

import io
import json
import os
import subprocess
import sys

import pytest
from submissions import a_submission

from paceline import __version__
from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.engines.base import load
from paceline.parts.engines.conformance import check_plan
from paceline.parts.engines.package import package
from paceline.parts.engines.remote_program import BOOT, ConnectionLost
from paceline.parts.engines.ssh import preflight, remote
from paceline.parts.engines.ssh.agents import Agents
from paceline.parts.engines.ssh.options import host_names, in_home, read_settings, ssh_argv, typed

JOB = a_submission(
    program=Program(kind=ProgramKind.SCRIPT, target="train.py", arguments=("--lr", "0.1")),
    hosts=2,
    ranks_per_host="8",
    environment={"API_KEY": "a-very-secret-value"},
)
OPTIONS = {"hosts": "node1,me@node2", "port": "2222", "options": "-o ProxyJump=gate"}
ALWAYS = (
    "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -o ControlPersist=no "
    "-o ClearAllForwardings=yes -o RemoteCommand=none -o LogLevel=INFO -T"
)
ANSWER = {
    "python": "3.11.2",
    "executable": "/env/bin/python",
    "paceline": __version__,
    "torch": "2.13.0",
    "host_name": "node1",
    "directory": "/home/me/.paceline/jobs/r-000001",
    "free_bytes": 1 << 40,
    "has_code": True,
    "port": 29500,
    "unresolved": None,
}
SETTINGS = read_settings({"hosts": "node1,node2"})


def test_the_plan_has_the_command_of_ssh_and_the_job_file_of_each_host():
    request = load("ssh", {}, OPTIONS).plan(JOB)
    first, second = request.document["hosts"]
    command = "cd ~/.paceline/jobs/r-000001/code && exec python3 -P -m paceline.launch.programs.engine_host"
    assert " ".join(first["argv"]) == f"ssh -p 2222 -o ProxyJump=gate {ALWAYS} node1 {command}"
    assert " ".join(second["argv"]) == f"ssh -p 2222 -o ProxyJump=gate {ALWAYS} me@node2 {command}"
    assert second["job"] == {
        "schema": "paceline.job/1",
        "job": {
            "name": "train",
            "program": {"kind": "script", "target": "train.py", "arguments": ["--lr", "0.1"]},
            "min_hosts": 2,
            "max_hosts": 2,
            "node_rank": 1,
            "is_first": False,
            "master_addr": "node1",
            "agents_port": 29500,
            "submission_id": "r-000001",
        },
        "ranks_per_host": "8",
        "run_id": "r-000001",
        "run_dir": "../runs",
    }
    assert "node_rank" not in first["job"]["job"]


def test_the_plan_keeps_the_contract():
    check_plan(load("ssh", {}, OPTIONS), JOB)


def test_another_number_of_hosts_than_the_job_has_is_refused():
    with pytest.raises(UsageError, match="the job has 2 hosts, and 1 are named") as refused:
        load("ssh", {}, {"hosts": "node1"}).plan(JOB)
    assert refused.value.code == "U05"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"host": "a"}, "U03", "has no option 'host'"),
        ({}, "U05", "given no hosts"),
        ({"hosts": "a,b,a"}, "U05", "a is named twice"),
        ({"hosts": "a", "spares": "a"}, "U05", "a is named twice"),
        ({"hosts": "-oProxyCommand=x"}, "U05", "is not the name of a host"),
        ({"hosts": "a b"}, "U05", "is not the name of a host"),
        ({"hosts": "$(id)@node1"}, "U05", "is not the name of a host"),
        ({"hosts": "`id`@node1"}, "U05", "is not the name of a host"),
        ({"hosts": "a;id@node1"}, "U05", "is not the name of a host"),
        ({"hosts": "%r@node1"}, "U05", "is not the name of a host"),
        ({"hosts": "a", "user": "$(id)"}, "U05", "is not the name of a user"),
        ({"hosts": "a", "user": "-oProxyCommand=x"}, "U05", "is not the name of a user"),
        ({"hosts": "a", "port": "ssh"}, "U05", "port=ssh is not a port"),
        ({"hosts": "a", "agents_port": "70000"}, "U05", "agents_port=70000 is not a port"),
        ({"hosts": "a", "options": "-o 'x"}, "U05", "cannot be read"),
    ],
)
def test_an_option_that_cannot_be_used_says_why(options, code, said):
    with pytest.raises(UsageError) as refused:
        load("ssh", {}, options)
    assert refused.value.code == code and said in refused.value.what and refused.value.next


@pytest.mark.parametrize(
    "host", ["node1", "me@node1", "LAB\\\\jo.doe-2@node1", "10.0.0.1", "fe80::1%eth0", "a-b.c_d", "[::1]"]
)
def test_a_host_is_written_as_for_ssh(host):
    assert host_names(f" {host} ,") == (host,)


def test_words_of_the_user_come_before_ours_because_ssh_takes_the_first():
    argv = ssh_argv(read_settings({"hosts": "a", "options": "-o ConnectTimeout=60"}), "a")
    assert argv.index("ConnectTimeout=60") < argv.index("ConnectTimeout=10")


def test_what_to_type_has_the_users_words_and_none_of_ours():
    assert typed(read_settings(OPTIONS), "node1") == "ssh -p 2222 -o ProxyJump=gate node1 true"


@pytest.mark.parametrize(
    ("path", "written"),
    [("~/a b", "~/'a b'"), ("~me/x", "~me/x"), ("/a b", "'/a b'"), ("~", "'~'"), ("~a b/x", "'~a b/x'")],
)
def test_a_home_directory_is_left_to_the_remote_shell(path, written):
    assert in_home(path) == written


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("ssh: Could not resolve hostname node1: Name or service not known", "this name cannot be resolved"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "another host key"),
        ("No ED25519 host key is known for node1\nHost key verification failed.", "host key is not known"),
        ("me@node1: Permission denied (publickey,password).", "without asking for a password"),
        ("ssh: connect to host node1 port 22: Connection refused", "nothing listens"),
        ("ssh: connect to host node1 port 22: Connection timed out", "does not answer"),
        ("ssh: connect to host node1 port 22: No route to host", "no way to it"),
        ("kex_exchange_identification: Connection closed by remote host", "ssh could not connect"),
    ],
)
def test_why_a_host_cannot_be_reached_is_told_apart(argv, said):
    error = preflight.unreachable(SETTINGS, "node1", ConnectionLost(argv, "", 255))
    assert (error.code, error.saw, error.next) == ("E10", argv, "ssh node1 true")
    assert "node1" in error.what and said in error.what


@pytest.mark.parametrize(
    ("remote", "code", "said"),
    [
        ("paceline> too old: 3.9", 1, "has Python 3.9; 3.11 or later is needed"),
        ("sh: 1: exec: python3: not found", 127, "has no Python that could be started"),
    ],
)
def test_a_python_that_will_not_do_is_not_taken_for_a_host_out_of_reach(remote, code, said):
    error = preflight.unreachable(SETTINGS, "node1", ConnectionLost("", remote, code))
    assert error.code == "E11" and said in error.what


def test_hosts_that_agree_have_no_findings():
    assert preflight.findings(SETTINGS, {"node1": ANSWER, "node2": ANSWER}, 1000, "node1") == {"node1": [], "node2": []}


def test_versions_are_compared_with_this_machine_and_with_the_first_host():
    other = {**ANSWER, "paceline": "0.0.1", "torch": "2.12.0"}
    ours, torchs = preflight.findings(SETTINGS, {"node1": ANSWER, "node2": other}, 0, "node1")["node2"]
    assert ours.what == f"node2 has paceline 0.0.1, this machine has {__version__}"
    assert ours.next == "ssh node2 /env/bin/python -m pip install /path/to/clone"
    assert torchs.what == "node2 has torch 2.12.0, node1 has 2.13.0"
    assert {ours.code, torchs.code} == {"E11"}


def test_a_host_without_paceline_without_room_and_without_the_first_ones_name_has_three_findings():
    other = {**ANSWER, "paceline": None, "free_bytes": 1 << 20, "unresolved": "Name or service not known"}
    found = preflight.findings(SETTINGS, {"node1": ANSWER, "node2": other}, 5 << 20, "node1")["node2"]
    assert [error.code for error in found] == ["E11", "U22", "E10"]
    assert "1 MiB free" in found[1].saw and "69 MiB are needed" in found[1].saw


def test_all_findings_of_all_hosts_are_in_one_error():
    problems = [
        UsageError("E10", "a is off", saw="no\nanswer", next="ssh a true"),
        UsageError("E11", "b is old", saw="1", next="x"),
    ]
    error = preflight.all_at_once(problems)
    assert error.what.startswith("2 things") and error.next == "ssh a true"
    assert error.saw == "E10  a is off (no; answer)\nE11  b is old (1)"
    assert preflight.all_at_once(problems[:1]) is problems[0]


def ask(*questions, content=b""):
    """What the far side answers, run here."""
    asked = b"".join(json.dumps(question).encode() + b"\n" for question in questions) + content
    answers = io.BytesIO()
    assert remote.main(io.BytesIO(asked), answers) == 0
    return [json.loads(line.removeprefix(remote.MARK)) for line in answers.getvalue().splitlines()]


@pytest.fixture
def code(tmp_path):
    directory = tmp_path / "project"
    (directory / "sub").mkdir(parents=True)
    (directory / "train.py").write_text("print(1)\n")
    (directory / "sub" / "model.py").write_text("x = 1\n")
    (directory / "run.sh").write_text("exit 0\n")
    (directory / "run.sh").chmod(0o755)
    return package(directory, tmp_path / "code.tar.gz")


def test_the_digest_of_an_archive_is_that_of_its_package(code, tmp_path):
    assert remote.content_digest(tmp_path / "code.tar.gz") == code.digest


def test_code_is_received_checked_and_laid_and_is_there_for_the_next_job(code, tmp_path):
    content = (tmp_path / "code.tar.gz").read_bytes()
    where = {"workdir": str(tmp_path / "jobs"), "run_id": "r-1", "digest": code.digest}
    (before,) = ask({"do": "look", **where})
    assert before["has_code"] is False and before["paceline"] == __version__
    sent = {"do": "receive", "size": len(content), **where}
    assert ask(sent, content=content) == [{"received_bytes": len(content)}]
    assert ask({"do": "stay"}, {"do": "lay", **where}) == [{"digest": code.digest}]
    laid = tmp_path / "jobs" / "r-1" / "code"
    assert (laid / "sub" / "model.py").read_text() == "x = 1\n" and os.access(laid / "run.sh", os.X_OK)
    second = {**where, "run_id": "r-2"}
    assert ask({"do": "look", **second})[0]["has_code"] is True
    assert ask({"do": "lay", **second}) == [{"digest": code.digest}]


def test_two_hosts_that_share_a_directory_lay_the_same_code(code, tmp_path):
    content = (tmp_path / "code.tar.gz").read_bytes()
    where = {"workdir": str(tmp_path / "jobs"), "run_id": "r-1", "digest": code.digest}
    ask({"do": "look", **where})
    ask({"do": "receive", "size": len(content), **where}, content=content)
    assert ask({"do": "lay", **where}, {"do": "lay", **where}) == [{"digest": code.digest}] * 2


def test_an_archive_that_is_not_what_it_is_called_is_said_and_removed(code, tmp_path):
    content = (tmp_path / "code.tar.gz").read_bytes()
    where = {"workdir": str(tmp_path / "jobs"), "run_id": "r-1", "digest": "0" * 64}
    ask({"do": "look", **where})
    ask({"do": "receive", "size": len(content), **where}, content=content)
    assert ask({"do": "lay", **where}) == [{"digest": code.digest}]
    assert ask({"do": "look", **where})[0]["has_code"] is False


def test_what_the_disk_refuses_is_an_answer_and_the_next_question_is_still_understood(tmp_path):
    (tmp_path / "jobs").write_text("a file")
    where = {"workdir": str(tmp_path / "jobs"), "run_id": "r-1", "digest": "0" * 64}
    behind = b"1234" + b'{"do": "look", "workdir": "/proc/x"}\n'
    answers = ask({"do": "look", **where}, {"do": "receive", "size": 4, **where}, content=behind)
    assert len(answers) == 3 and all("error" in answer for answer in answers)
    assert preflight.refused_there("node1", answers[0]).code == "U22"


def test_jobs_that_nothing_wrote_to_for_a_week_are_removed_and_a_running_one_is_not(tmp_path):
    for name in ("old", "running", "new"):
        (tmp_path / name / "code").mkdir(parents=True)
    live = tmp_path / "running" / "runs" / "running" / "hosts" / "a" / "telemetry.jsonl"
    live.parent.mkdir(parents=True)
    live.write_text("")
    (tmp_path / ".archives").mkdir()
    (tmp_path / ".archives" / "x.tar.gz").write_text("")
    long_ago = live.stat().st_mtime - remote.KEPT_SECONDS - 60
    for path in ("old/code", "old", "running/code", "running", ".archives/x.tar.gz", ".archives"):
        os.utime(tmp_path / path, (long_ago, long_ago))
    remote.sweep(tmp_path, live.stat().st_mtime)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".archives", "new", "running"]
    assert list((tmp_path / ".archives").iterdir()) == []


def test_the_port_that_is_wanted_is_taken_where_it_is_free():
    import socket

    with socket.socket() as listening:
        listening.bind(("", 0))
        listening.listen()
        taken = listening.getsockname()[1]
        assert remote.free_port(taken) != taken
    assert remote.free_port(taken) == taken


def test_a_name_that_cannot_be_found_says_why():
    assert remote.why_unresolved(None) is None and remote.why_unresolved("127.0.0.1") is None
    assert remote.why_unresolved("no-such-host.invalid")


@pytest.mark.process
def test_a_python_that_is_too_old_says_so_before_it_reads_the_program():
    old = BOOT.replace("sys.version_info <", "(3, 9, 1) <")
    done = subprocess.run([sys.executable, "-c", old, "10"], input=b"x", capture_output=True, check=False)
    assert done.returncode == 1 and b"paceline> too old: " in done.stderr


def test_a_stop_before_any_agent_is_there_is_kept_in_mind():
    agents = Agents(print)
    agents.stop("SIGTERM")
    assert agents.asked == ["SIGTERM"] and agents.lost == {}
