"""What other hosts have seen comes back, and a host that does not answer holds up nobody."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest
from attached_evidence import NOW_NS, entries, evidence

from paceline.attach import look_there as module
from paceline.attach.look_here import LookedHere, LookRequest
from paceline.attach.look_there import argv_of, look_there


def prints(tmp_path, *answers):
    """A command that prints these answers, a line each."""
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
    file.write_bytes(b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers))
    return ("cat", str(file))


def looked(*hosts):
    return LookedHere(evidence=hosts)


def test_the_answers_of_all_hosts_come_back(tmp_path):
    one, two = evidence(), evidence("node-b", (2, 3), 4)
    found = look_there([("node-a", prints(tmp_path, looked(one))), ("node-b", prints(tmp_path, looked(two)))])
    assert found.evidence == (one, two) and found.notes == ()


def test_of_a_slurm_job_each_node_has_a_line(tmp_path):
    one, two = evidence(), evidence("node-b", (2, 3), 4)
    found = look_there([("slurm:4711", prints(tmp_path, looked(one), looked(two)))])
    assert found.evidence == (one, two)


def test_a_host_without_a_rank_of_the_job_is_said(tmp_path):
    assert look_there([("node-c", prints(tmp_path, looked()))]).notes == ("node-c: it has no rank of this job",)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/no/such/program",), "/no/such/program cannot be started: No such file or directory"),
        (("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255"), "Permission denied (publickey)."),
        (("sh", "-c", "exit 3"), "its command ended with 3"),
        (("echo", "hello"), "hello"),
        (("echo", '{"evidence": [{"host": 3}]}'), '{"evidence": [{"host": 3}]}'),
        (("sh", "-c", "yes x | head -c 1000000"), "x"),
    ],
)
def test_one_that_does_not_answer_is_not_judged_and_the_reason_is_its_last_line(tmp_path, command, why):
    one = evidence()
    found = look_there([("node-b", command), ("node-a", prints(tmp_path, looked(one)))])
    assert found.evidence == (one,)
    assert found.notes == (f"node-b: it was not looked at: {why}",)


def test_one_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.2)
    waits = (sys.executable, "-c", "import signal; signal.pause()")
    assert look_there([("node-b", waits)]).notes == ("node-b: it was not looked at: no answer within 0 s",)


@pytest.mark.parametrize("ahead_ns", [0, 100_000_000, 3_600_000_000_000, -5_000_000_000])
def test_stamps_are_on_this_hosts_clock(tmp_path, ahead_ns):
    sent_ns = time.time_ns()
    there = replace(evidence(calls={0: entries(3)}), clock_ns=sent_ns + ahead_ns)
    (found,) = look_there([("node-b", prints(tmp_path, looked(there)))]).evidence
    shift_ns = there.rounds[0].at_ns - found.rounds[0].at_ns
    if abs(ahead_ns) < 500_000_000:
        assert shift_ns == 0
    else:
        # But for the time that the answer took.
        assert abs(shift_ns - ahead_ns) < 10_000_000_000
    beat, before = found.rounds[0].heartbeats[0], there.rounds[0].heartbeats[0]
    assert before.moved_ns - beat.moved_ns == before.at_ns - beat.at_ns == shift_ns
    issued, before_ns = found.ranks[0].entries[0].created_ns, there.ranks[0].entries[0].created_ns
    assert before_ns - issued == shift_ns
    assert there.rounds[0].snapshots[0].at_ns - found.rounds[0].snapshots[0].at_ns == shift_ns
    assert there.rounds[0].at_ns == NOW_NS


def test_the_command_looks_for_the_job_wherever_python_is():
    argv = argv_of(LookRequest(like=("store nowhere:1",), host="node-b"))
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["evidence"] == []
