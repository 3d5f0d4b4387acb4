"""The command line of `paceline bench --rehearse`, and what `paceline plan` makes of rehearsals and runs. Nothing is started."""

import json

import pytest

from paceline.cli import main
from paceline.errors import UsageError
from paceline.parts.lab.cli.rehearse.options import wanted_of
from paceline.parts.lab.cli.rehearse.verb import _kept, parse
from paceline.parts.lab.rehearsal import read_probe, refuse_too_many
from paceline.parts.plan.planner.rehearsal import Rehearsal, RehearsedSize
from paceline.parts.plan.planner.workload import Measurement
from paceline.parts.plan.rehearsal_file import FILE, read_rehearsal, write_rehearsal


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


def wanted(*argv):
    return wanted_of(parse([*argv, "train.py", "--lr", "3"]))


def refusal(*argv):
    with pytest.raises(UsageError) as refused:
        wanted_of(parse(argv))
    return refused.value


def made(path, *sizes):
    tried = tuple(
        RehearsedSize(
            measurement=Measurement(hosts=1, devices=devices, step_seconds=seconds, source="run r-1"),
            run_id="r-1",
            step_count=30,
            mean_step_seconds=seconds,
        )
        for devices, seconds in sizes
    )
    write_rehearsal(path, Rehearsal(id="rh-1", program=("train.py",), sizes=tried))


def test_sizes_are_ranks_or_hosts_by_ranks_and_the_smallest_comes_first():
    assert wanted("--sizes", "4,1,2").sizes == ((1, 1), (1, 2), (1, 4))
    assert wanted("--sizes", "2x2,1x2").sizes == ((1, 2), (2, 2))
    assert wanted("--local-hosts", "1,2", "--nproc-per-node", "2").sizes == ((1, 2), (2, 2))
    assert wanted("--sizes", "1,2").predict == ((1, 4), (1, 8))


def test_each_size_is_a_run_of_the_script_with_its_own_arguments():
    asked = wanted("--run-options", "--hp 'a b=1'", "-m")
    assert asked.argv((2, 4)) == (
        *("--local-hosts", "2", "--nproc-per-node", "4", "--hp", "a b=1"),
        *("-m", "train.py", "--lr", "3"),
    )
    assert asked.argv((1, 2), ("-m", "probe")) == ("--nproc-per-node", "2", "-m", "probe")


def test_bad_words_are_refused_in_four_parts():
    for argv, code in (
        (["--sizes", "1,x", "train.py"], "U03"),
        (["--sizes", "0", "train.py"], "U03"),
        (["--sizes", "2x0", "train.py"], "U03"),
        (["--sizes", "1,1", "train.py"], "U03"),
        (["--steps", "-3", "train.py"], "U03"),
        (["--timeout", "0", "train.py"], "U03"),
        (["--run-options", "'", "train.py"], "U03"),
        (["--local-hosts", "2", "--sizes", "1", "train.py"], "U03"),
        (["--local-hosts", "train.py", "train.py"], "U03"),
        (["--run-options", "--run_dir=/tmp", "train.py"], "U03"),
        (["--sizes", "1"], "U02"),
        (["--szies", "1", "train.py"], "U01"),
    ):
        error = refusal(*argv)
        assert (error.code, bool(error.next)) == (code, True), argv


def test_a_refused_size_is_shown_as_it_was_written():
    assert refusal("--sizes", "1,2x0", "train.py").what == "--sizes 1,2x0 cannot be"
    assert refusal("--timeout", "soon", "train.py").next == "--timeout 10m"


def test_ranks_that_the_memory_of_the_machine_cannot_hold_are_refused_before_any_starts():
    refuse_too_many([(1, 1), (2, 8)], 4 * 1024**3)
    with pytest.raises(UsageError) as refused:
        refuse_too_many([(1, 1), (1, 1000)], 64 * 1024**3)
    assert refused.value.code == "U03" and "1000 ranks" in refused.value.what and "1x1000" in refused.value.next


def test_a_probe_of_several_hosts_of_several_ranks_is_that_among_the_hosts():
    part = {"ranks": 2, "points": [[4096, 0.001]]}
    plain = {"hosts": 2, "ranks": 4, "backend": "gloo", "points": [[4096, 0.002]], "within": part, "among": part}
    assert (read_probe(plain).ranks, read_probe(plain).points) == (2, ((4096.0, 0.001),))
    del plain["among"]
    assert (read_probe(plain).ranks, read_probe(plain).points) == (4, ((4096.0, 0.002),))


def test_what_was_measured_is_written_where_it_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    measured = RehearsedSize(
        measurement=Measurement(hosts=1, devices=1, step_seconds=0.1),
        run_id="r-1",
        step_count=30,
        mean_step_seconds=0.1,
    )
    rehearsal = Rehearsal(id="rh-1", program=("train.py",), sizes=(measured,))
    refused, good = tmp_path / "file" / FILE, tmp_path / FILE
    assert "cannot be written" in _kept(rehearsal, (refused, good))
    assert read_rehearsal(str(good)) == rehearsal
    assert str(good) in _kept(rehearsal, (good,))
    assert _kept(Rehearsal(id="rh-1", program=("train.py",), sizes=()), (good,)) == ""


def test_the_latest_rehearsal_a_file_a_directory_or_an_id(tmp_path):
    root = tmp_path / ".paceline" / "rehearsals"
    made(root / "rh-1" / FILE, (1, 0.1))
    for name in ("latest", "rh-1", str(root / "rh-1"), str(root / "rh-1" / FILE)):
        assert read_rehearsal(name).measurements[0].step_seconds == 0.1
    (tmp_path / "bad.json").write_text("{")
    made(tmp_path / "empty.json")
    for name in ("nowhere.json", "bad.json", "empty.json"):
        with pytest.raises(UsageError) as refused:
            read_rehearsal(name)
        assert refused.value.code == "U27"


def answer(capsys, *argv, code=0):
    assert main(["plan", "--json", *map(str, argv)]) == code
    return json.loads(capsys.readouterr().out)


def test_runs_of_several_sizes_make_tier_2(capsys, recording):
    one, two = recording("r-000001"), recording("r-000002")
    for run, ranks in ((one, 1), (two, 2)):
        run.identity()
        for rank in range(ranks):
            run.segment("algo-1", rank, steps=30, step_ms=100 + ranks, world_size=ranks)
    plan = answer(capsys, "--from-run", one.path, "--from-run", two.path, "--devices-per-host", "1,2,4")
    assert [row["tier"] for row in plan["rows"]] == [2, 2, 2]
    assert plan["rows"][1]["step_seconds"] == pytest.approx(0.102)
    twice = answer(capsys, "--from-run", one.path, "--from-run", one.path, code=2)
    assert twice["code"] == "U03" and "r-000001" in twice["saw"]


def test_a_plan_is_held_against_a_run_of_its_shape(capsys, recording, tmp_path):
    run = recording("r-000003")
    run.identity()
    for rank in range(2):
        run.segment("algo-1", rank, steps=30, step_ms=130, data_ms=25)
    made(tmp_path / "r.json", (1, 0.098), (2, 0.100))
    plan = answer(capsys, "--against", run.path, "--rehearsal", "r.json")
    assert [(row["hosts"], row["devices"]) for row in plan["rows"]] == [(1, 2)]
    against = plan["against"]
    assert against["step_seconds"] == pytest.approx({"predicted": 0.1, "measured": 0.13})
    assert against["reasons"][0]["kind"] == "loading"
    assert sum(one["seconds"] for one in against["reasons"]) == pytest.approx(0.03)


def test_a_run_that_cannot_be_compared_is_refused(capsys, recording, tmp_path):
    run = recording("r-000004")
    run.identity()
    run.segment("algo-1", 0, steps=6, world_size=1)
    made(tmp_path / "r.json", (1, 0.1))
    refused = answer(capsys, "--against", run.path, "--rehearsal", "r.json", code=3)
    assert refused["code"] == "X06" and "6 steps" in refused["saw"]
    longer = recording("r-000005")
    longer.identity()
    longer.segment("algo-1", 0, steps=30, world_size=1)
    other = answer(capsys, "--against", longer.path, "--rehearsal", "r.json", "--devices-per-host", "4", code=2)
    assert other["code"] == "X06" and "--devices-per-host 1" in other["next"]
