"""`paceline why PID`, `--all`, and `why` where nothing is recorded: what is refused, and what is shown of what was seen."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from attached_evidence import evidence as seen_of

from paceline.attach.evidence import HostEvidence, RankSeen, Round
from paceline.attach.look_here import JobHere, LookedHere
from paceline.attach.look_there import LookedThere
from paceline.attach.no_job import NoJob, NoJobReason
from paceline.attach.permission import Refusal
from paceline.cli import main, why_process
from paceline.cli.why_process import answer_only_job
from paceline.diagnosis.case import Heartbeat
from paceline.diagnosis.snapshots import HostSnapshot, RankSnapshot

TRAIN, EVAL = (
    JobHere(name=name, pid=pid, launcher=launcher, ranks=2, world_size=2, user=os.getuid())
    for name, pid, launcher in (("train.py", 4711, "torchrun"), ("eval.py", 4720, ""))
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)
    monkeypatch.setattr(why_process, "answer_only_job", answer_only_job)


@pytest.fixture
def seen(monkeypatch):
    """What the look gives; returns the requests that were made."""

    def make(looked, refusal=None):
        asked = []
        monkeypatch.setattr(why_process, "_look", lambda request, shown: asked.append(request) or looked)
        monkeypatch.setattr(why_process, "refusal_of", lambda pid, command: refusal)
        return asked

    return make


def evidence(job, *, sources=("recorder", "stacks", "proc"), moves=False):
    now_ns = time.time_ns()

    def round_at(number):
        beats = [
            Heartbeat(
                host="a",
                rank=rank,
                at_ns=now_ns,
                moved_ns=now_ns,
                pid=1000 + rank,
                state="R",
                phase="training",
                groups=(),
            )
            for rank in range(2)
        ]
        looks = [RankSnapshot(host="a", rank=rank, pid=1000 + rank, at_ns=now_ns, state="R") for rank in range(2)]
        return Round(
            at_ns=now_ns + number,
            heartbeats=tuple(beats),
            snapshots=tuple(looks),
            host=HostSnapshot(host="a", at_ns=now_ns),
        )

    return HostEvidence(
        host="a",
        job=job.name,
        launcher=job.launcher,
        launcher_pid=job.pid if job.launcher else None,
        world_size=2,
        rounds=(round_at(0), round_at(1)),
        ranks=tuple(RankSeen(rank=rank, pid=1000 + rank, sources=sources) for rank in range(2)),
        seconds=2.5,
    )


def refused(capsys, *argv):
    assert main(["why", *argv]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "fields", "what", "next_"),
    [
        (NoJobReason.GONE, {}, "there is no process 4711", "paceline why --all"),
        (NoJobReason.INNER, {"here": (881,)}, "in another container", "paceline why 881"),
        (NoJobReason.ZOMBIE, {"user": 0}, "process 4711 has ended", "paceline why --all"),
        (NoJobReason.REFUSED, {"user": 0}, "process 4711 may not be read", "sudo "),
        (
            NoJobReason.LAUNCHER,
            {"launcher": "torchrun", "below": 3, "age_seconds": 4.2},
            "torchrun (4711) has started no rank yet",
            "again",
        ),
        (NoJobReason.NO_RANK, {}, "process 4711 is no rank of a training job", "paceline why --all"),
    ],
)
def test_a_process_without_a_job_is_refused_with_the_reason(capsys, seen, monkeypatch, reason, fields, what, next_):
    monkeypatch.setattr(why_process.os, "geteuid", lambda: 1000)
    seen(LookedHere(none=(NoJob(pid=4711, reason=reason, **fields),)))
    said = refused(capsys, "4711")
    assert what in said and "error[U59]" in said
    assert f"next      {next_}" in said


def test_root_is_not_told_to_become_root(capsys, seen, monkeypatch):
    seen(LookedHere(none=(NoJob(pid=4711, reason=NoJobReason.REFUSED, user=0),)))
    monkeypatch.setattr(why_process.os, "geteuid", lambda: 0)
    said = refused(capsys, "4711")
    assert "sudo" not in said and "paceline why --all --everybody" in said


def test_several_jobs_below_one_process_are_listed(capsys, seen):
    seen(LookedHere(jobs=(TRAIN, EVAL)))
    said = refused(capsys, "4700")
    assert "4711 train.py (torchrun, 2 ranks), 4720 eval.py (started by hand, 2 ranks)" in said


def test_without_a_job_all_says_where_others_may_be(capsys, seen):
    seen(LookedHere(notes=("3 processes of uid 7 may not be read",)))
    said = refused(capsys, "--all")
    assert "3 processes of uid 7 may not be read" in said and "--everybody" in said


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (("4711", "4712"), "4711 is about jobs that run here, and 4712"),
        (("4711", "--dir", "x"), "4711 is about jobs that run here, and --dir"),
        (("4711", "--everybody"), "and --everybody is given beside it"),
        (("--all", "r-1"), "--all is about jobs that run here, and r-1"),
        (("--all", "4711"), "--all is about jobs that run here, and 4711"),
        (("--all", "--hosts", "node-b"), "and --hosts is given beside it"),
        (("r-1", "--record"), "--record is about a job that runs, and r-1 is a recorded one"),
        (("r-1", "--hosts", "node-b"), "--hosts is about a job that runs"),
    ],
)
def test_a_process_or_all_stands_alone(capsys, seen, argv, what):
    asked = seen(LookedHere())
    said = refused(capsys, *argv)
    assert what in said and "error[U03]" in said and not asked


def test_a_number_that_is_a_run_asks_which_of_both_is_meant(capsys, seen, recording):
    recording("4711").identity()
    asked = seen(LookedHere(jobs=(TRAIN,), evidence=(evidence(TRAIN),)))
    said = refused(capsys, "4711")
    assert "paceline why pid:4711" in said and not asked
    assert main(["why", "pid:4711"]) == 0
    assert asked[0].pids == (4711,)


def test_a_run_whose_id_begins_with_the_number_does_not_stand_in_the_way(seen, recording):
    recording("4711x").identity()
    asked = seen(LookedHere(jobs=(TRAIN,), evidence=(evidence(TRAIN),)))
    assert main(["why", "4711"]) == 0 and asked


def test_the_first_line_says_what_was_looked_at_and_how(capsys, seen):
    seen(LookedHere(jobs=(TRAIN,), evidence=(evidence(TRAIN),)))
    assert main(["why", "4711"]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "2 of 2 ranks of train.py on a, started by torchrun (4711): looked at for 2.5 s; recorder, stacks"


def test_what_the_permission_does_not_allow_comes_before_the_answer(capsys, seen):
    looked = LookedHere(jobs=(TRAIN,), evidence=(evidence(TRAIN, sources=("proc",)),))
    seen(looked, Refusal(saw="kernel.yama.ptrace_scope is 1", next="sudo paceline why 4711"))
    assert main(["why", "4711"]) == 0
    out = capsys.readouterr().out
    assert "the kernel alone" in out.splitlines()[0]
    assert (
        out.index("refused   kernel.yama.ptrace_scope is 1")
        < out.index("next      sudo paceline why 4711")
        < out.index("pid:4711")
    )


def test_for_a_program_one_job_is_an_object_and_several_are_a_list(capsys, seen):
    seen(LookedHere(jobs=(TRAIN,), evidence=(evidence(TRAIN),)))
    assert main(["why", "4711", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["schema"], one["run_id"], one["status"], one["secondary_status"]) == (
        "paceline.why/2",
        "pid:4711",
        None,
        None,
    )
    seen(LookedHere(jobs=(TRAIN, EVAL), evidence=(evidence(TRAIN), evidence(EVAL))))
    assert main(["why", "--all", "--json"]) == 0
    assert [each["run_id"] for each in json.loads(capsys.readouterr().out)] == ["pid:4711", "pid:4720"]


def test_where_nothing_is_recorded_the_one_job_here_is_explained(capsys, seen):
    asked = seen(LookedHere(jobs=(TRAIN,), evidence=(evidence(TRAIN),)))
    assert main(["why"]) == 0
    assert "train.py on a" in capsys.readouterr().out and asked[0].only_others


def test_where_nothing_is_recorded_and_nothing_runs_it_is_said_as_ever(capsys, seen):
    seen(LookedHere())
    assert "no run has been recorded" in refused(capsys)


def test_a_recorded_run_is_not_left_for_a_job_that_runs(capsys, seen, recording):
    recording("r-aaaaaa").identity()
    asked = seen(LookedHere(jobs=(TRAIN,)))
    main(["why"])
    assert not asked


def test_a_look_that_does_not_come_back_is_given_up(monkeypatch, capsys):
    # As a reader that a file system keeps: it answers nothing.
    monkeypatch.setattr(why_process, "LOOK_SECONDS", 0.2)
    ended = []
    real = subprocess.Popen

    def waits(words, **options):
        ended.append(real([sys.executable, "-c", "import signal; signal.pause()"], **options))
        return ended[-1]

    monkeypatch.setattr(subprocess, "Popen", waits)
    assert "could not be looked at in time" in refused(capsys, "4711")
    assert ended[0].wait() == -9


def of_two_hosts(**fields):
    """What this host and another one have seen of a job of four ranks whose rank 3 sleeps."""
    here = seen_of("node-a", (0, 1), 4, late=(), identity=("store node-a:29500",), **fields)
    return here, seen_of("node-b", (2, 3), 4, late=(3,))


def test_the_other_hosts_of_a_job_are_looked_at_too(capsys, seen, monkeypatch):
    here, there = of_two_hosts()
    seen(LookedHere(jobs=(TRAIN,), evidence=(here,)))
    asked = []
    monkeypatch.setattr(
        why_process, "look_there", lambda commands: asked.extend(commands) or LookedThere(evidence=(there,))
    )
    assert main(["why", "4711", "--hosts", "node-b, pod:train-1/main,slurm:77"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("4 of 4 ranks of train.py on 2 hosts, started by torchrun (900)")
    assert "N01" in out and "rank 3 on node-b" in out
    assert [name for name, _ in asked] == ["node-b", "pod:train-1/main", "slurm:77"]
    assert [command[0] for _, command in asked] == ["ssh", "kubectl", "srun"]
    assert all("store node-a:29500" in " ".join(command) for _, command in asked)


def test_a_host_that_does_not_answer_is_not_judged(capsys, seen, monkeypatch):
    here, _ = of_two_hosts()
    seen(LookedHere(jobs=(TRAIN,), evidence=(here,)))
    monkeypatch.setattr(
        why_process, "look_there", lambda commands: LookedThere(notes=("node-b: it was not looked at: refused",))
    )
    assert main(["why", "4711", "--hosts", "node-b", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "node-b: it was not looked at: refused" in answer["not_judged"]
    assert [one["code"] for one in answer["findings"]] == ["N15"]


def test_ranks_that_two_hosts_claim_are_looked_at_once(capsys, seen, monkeypatch):
    here, _ = of_two_hosts()
    seen(LookedHere(jobs=(TRAIN,), evidence=(here,)))
    monkeypatch.setattr(why_process, "look_there", lambda commands: LookedThere(evidence=(here,)))
    assert main(["why", "4711", "--hosts", "node-a", "--json"]) == 0
    assert "node-a: its ranks were looked at already" in json.loads(capsys.readouterr().out)["not_judged"]


@pytest.mark.parametrize("places", ["node b", "-oProxyCommand=x", "pod:../x", "slurm:all", "a;b"])
def test_what_is_no_place_is_refused_before_anything_is_asked(capsys, seen, monkeypatch, places):
    here, _ = of_two_hosts()
    seen(LookedHere(jobs=(TRAIN,), evidence=(here,)))
    monkeypatch.setattr(why_process, "look_there", lambda commands: pytest.fail("it was asked"))
    assert "error[U05]" in refused(capsys, "4711", f"--hosts={places}")


def test_a_job_that_nothing_tells_from_others_is_not_looked_for_elsewhere(capsys, seen):
    here, _ = of_two_hosts()
    seen(LookedHere(jobs=(TRAIN,), evidence=(replace(here, identity=()),)))
    assert "cannot be told" in refused(capsys, "4711", "--hosts", "node-b")


def test_a_job_whose_ranks_have_all_ended_meanwhile_is_said_to_have_none(capsys, seen):
    gone = seen_of("node-a", (), notes=("rank 0 (pid 7) ended while it was looked at",))
    seen(LookedHere(jobs=(TRAIN,), evidence=(gone,)))
    assert main(["why", "4711"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("0 of 2 ranks of train.py on node-a") and "ended while it was looked at" in out
