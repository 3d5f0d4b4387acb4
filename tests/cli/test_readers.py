"""ps, logs, top, stop and help read a recording that is complete, partial, or still growing."""

import json
import os
import shutil

import pytest

from paceline.cli import all_verbs, main
from paceline.recording.runs import register


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


@pytest.fixture
def done(recording):
    """Two ranks on two hosts of one shared directory, finished."""
    made = recording("r-aaaaaa")
    made.identity()
    for rank, host in enumerate(("algo-1", "algo-2")):
        made.event("rank_started", host=host, rank=rank, attempt=0, pid=1000 + rank)
        made.segment(host, rank)
        made.log(host, rank, b"hello from %d\nloss 0.%d\n" % (rank, rank))
        made.log(host, rank, b"warn\n", stream="err")
        made.event("rank_exited", host=host, rank=rank, attempt=0, code=0)
    made.finish()
    return made


def answer(capsys, *argv):
    assert main(list(argv)) == 0
    return json.loads(capsys.readouterr().out)


# ------------------------------------------------------------------------------------------------------------------- ps


def test_ps_lists_the_runs_of_this_directory_and_those_started_elsewhere(
    done, recording, tmp_path, capsys, monkeypatch
):
    register("r-aaaaaa", done.path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    listed = answer(capsys, "ps", "--json")
    assert listed["schema"] == "paceline.ps/2"
    assert [(run["run_id"], run["status"], run["step"]) for run in listed["runs"]] == [("r-aaaaaa", "Completed", 10)]


def test_ps_shows_a_run_whose_agent_died_as_failed(recording, capsys):
    made = recording("r-dead00")
    made.identity(agent_pid=os.getpid(), agent_start_ticks=1)
    made.event("status", status="InProgress", secondary_status="Training")
    main(["ps"])
    line = capsys.readouterr().out.splitlines()[1]
    assert "Failed" in line and "agent gone" in line


def test_ps_keeps_to_the_newest_unless_all_are_wanted(recording, capsys):
    for number in range(23):
        made = recording(f"r-{number:06}")
        made.identity(started_ns=number + 1, agent_pid=4_194_305)
    assert len(answer(capsys, "ps", "--json")["runs"]) == 20
    assert len(answer(capsys, "ps", "--all", "--json")["runs"]) == 23


def test_an_old_run_that_lasts_is_never_left_out(recording, capsys):
    recording("r-oldest").identity(started_ns=1)
    for number in range(22):
        recording(f"r-{number:06}").identity(started_ns=number + 2, agent_pid=4_194_305)
    runs = answer(capsys, "ps", "--json")["runs"]
    assert runs[-1]["run_id"] == "r-oldest"
    assert runs[-1]["status"] == "InProgress"


# ----------------------------------------------------------------------------------------------------------------- logs


def test_logs_are_printed_rank_after_rank_with_their_host(done, capsysbinary):
    assert main(["logs"]) == 0
    assert capsysbinary.readouterr().out == (
        b"algo-1:0 | hello from 0\nalgo-1:0 | loss 0.0\nalgo-1:0 | warn\n"
        b"algo-2:1 | hello from 1\nalgo-2:1 | loss 0.1\nalgo-2:1 | warn\n"
    )


def test_one_host_needs_no_name(done, capsysbinary):
    main(["logs", "r-aaaaaa", "--rank", "1", "--stdout", "--grep", "l+o"])
    assert capsysbinary.readouterr().out == b"1 | hello from 1\n1 | loss 0.1\n"


def test_bytes_that_are_no_text_are_shown_as_such_and_passed_on_when_asked(done, capsysbinary):
    done.log("algo-1", 0, b"\xff\x00\n")
    main(["logs", "--host", "algo-1", "--stdout"])
    assert capsysbinary.readouterr().out == rb"0 | \xff\x00" + b"\n"
    main(["logs", "--host", "algo-1", "--stdout", "--raw"])
    assert capsysbinary.readouterr().out == b"0 | \xff\x00\n"


def test_of_a_progress_bar_the_last_is_shown_and_all_of_it_is_passed_on_when_asked(done, capsysbinary):
    done.log("algo-1", 0, b"start\r\n  0%\r 50%\r100% done\nend\r\n")
    main(["logs", "--host", "algo-1", "--stdout"])
    assert capsysbinary.readouterr().out == b"0 | start\n0 | 100% done\n0 | end\n"
    main(["logs", "--host", "algo-1", "--stdout", "--raw"])
    assert capsysbinary.readouterr().out == b"0 | start\r\n0 |   0%\r 50%\r100% done\n0 | end\r\n"


def test_attempts_are_told_apart(done, capfdbinary):
    done.log("algo-1", 0, b"again\n", attempt=1)
    main(["logs", "--rank", "0", "--stdout"])
    captured = capfdbinary.readouterr()
    assert captured.out.endswith(b"again\n")
    assert captured.err == b"-- attempt 1 --\n"
    main(["logs", "--attempt", "1"])
    assert capfdbinary.readouterr().out == b"0 | again\n"


def test_since_without_an_index_is_said_to_be_not_judged(done, capsys):
    assert main(["logs", "--rank", "0", "--stdout", "--since", "5m"]) == 0
    captured = capsys.readouterr()
    assert "hello from 0" in captured.out
    assert captured.err.startswith("not judged: when the lines of rank_0.out on algo-1 came")


def test_since_leaves_out_what_came_before(done, capsys):
    path = done.directory.log_file("algo-1", 0, 0, "out")
    path.with_name("rank_0.out.idx").write_text("1000000000 0\n1795000000000000000 13\n")
    main(["logs", "--rank", "0", "--stdout", "--since", "2026-01-01"])
    assert capsys.readouterr().out == "0 | loss 0.0\n"


def test_logs_for_a_program_name_their_rank_and_stream(done, capsys):
    main(["logs", "--rank", "1", "--stderr", "--json"])
    line = json.loads(capsys.readouterr().out)
    assert line == {
        "schema": "paceline.logs/2",
        "run_id": "r-aaaaaa",
        "host": "algo-2",
        "attempt": 0,
        "rank": 1,
        "stream": "stderr",
        "t_ns": None,
        "text": "warn",
    }


def test_logs_of_a_run_whose_ranks_never_started_say_why_it_ended(recording, capsys):
    made = recording("r-bbbbbb")
    made.identity()
    made.finish(code=201, status="Failed", reason="node 1 never came")
    assert main(["logs"]) == 3
    said = capsys.readouterr().err
    assert "Failed (201): node 1 never came" in said and "next      paceline why r-bbbbbb" in said


def test_logs_for_a_program_say_when_each_line_came(done, capsys):
    path = done.directory.log_file("algo-1", 0, 0, "out")
    path.write_bytes(b"one\ntwo\nthree\n")
    path.with_name("rank_0.out.idx").write_text("1000000000 0\n3000000000 8\n")
    main(["logs", "--rank", "0", "--stdout", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["text"], line["t_ns"]) for line in lines] == [
        ("one", 1000000000),
        ("two", 1000000000),
        ("three", 3000000000),
    ]


def test_what_a_host_streamed_stands_in_for_its_logs(recording, capsys):
    made = recording("r-bbbbbb")
    made.identity()
    made.log("algo-1", 0, b"mine\n")
    made.streamed("algo-1", "algo-2", "logs", {"t_ns": 5, "attempt": 0, "rank": 1, "stream": "out", "text": "theirs\n"})
    made.finish()
    main(["logs"])
    captured = capsys.readouterr()
    assert captured.out == "algo-1:0 | mine\nalgo-2:1 | theirs\n"
    assert "algo-2: complete logs stay on that host" in captured.err


def test_another_hosts_directory_is_read_beside_the_first(done, recording, capsys):
    other = recording("r-other")
    other.log("algo-3", 2, b"third\n")
    main(["logs", "r-aaaaaa", "--dir", str(other.path), "--rank", "2"])
    assert capsys.readouterr().out == "2 | third\n"


@pytest.mark.parametrize("verb", ["logs", "top"])
def test_another_hosts_directory_that_is_no_recording_is_refused(done, verb, tmp_path, capsys):
    assert main([verb, "--dir", str(tmp_path)]) == 2
    assert "error[U09]" in capsys.readouterr().err


def test_following_a_run_that_is_over_ends(done, capsys):
    assert main(["logs", "--follow", "--rank", "0", "--stdout"]) == 0
    assert capsys.readouterr().out == "0 | hello from 0\n0 | loss 0.0\n"


def test_a_log_that_is_not_there_is_not_an_empty_answer(done, capsys):
    assert main(["logs", "--rank", "7"]) == 3
    assert "rank 0 on algo-1, rank 1 on algo-2" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--rank", "x"], ["--grep", "("], ["--since", "soon"]])
def test_a_choice_that_cannot_be_read_is_refused(done, argv, capsys):
    assert main(["logs", *argv]) == 2
    assert capsys.readouterr().err.startswith("error[U03]")


# ------------------------------------------------------------------------------------------------------------------ top


def test_top_shows_one_picture_of_a_run(done, capsys):
    assert main(["top", "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "r-aaaaaa  train  Completed  on 2 hosts"
    assert any(line.split()[:4] == ["1", "algo-2", "10", "100"] for line in lines)


def test_top_of_a_run_that_is_over_prints_one_line_into_a_file(done, capsys):
    assert main(["top"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.startswith("# time") and line.split()[1:3] == ["10", "100"]


def test_top_for_a_program(done, capsys):
    picture = answer(capsys, "top", "--json")
    assert (picture["schema"], picture["step"], picture["ranks_wanted"]) == ("paceline.top/2", 10, 2)
    assert "telemetry of algo-1: none in this recording" in picture["not_judged"]


@pytest.mark.parametrize("interval", ["0", "nan", "inf"])
def test_an_interval_that_nobody_can_wait_for_is_refused(done, interval, capsys):
    assert main(["top", "--interval", interval]) == 2
    assert "error[U03]" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- stop and help


def test_a_run_that_is_over_needs_no_stop(done, capsys):
    told = answer(capsys, "stop", "--json")
    assert told == {
        "schema": "paceline.stop/2",
        "run_id": "r-aaaaaa",
        "accepted": False,
        "now": False,
        "ended": True,
        "status": "Completed",
        "exit_code": 0,
    }


def test_stop_without_an_id_never_leaves_the_directory(recording, tmp_path, capsys, monkeypatch):
    made = recording("r-aaaaaa")
    made.identity(agent_pid=os.getpid(), agent_start_ticks=1)
    register("r-aaaaaa", made.path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["stop"]) == 2
    # What ends a run is never guessed.
    assert "next      paceline ps\n" in capsys.readouterr().err
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / ".paceline"))
    assert main(["stop"]) == 2
    assert "next      paceline ps\n" in capsys.readouterr().err
    (elsewhere / ".paceline" / "runs").mkdir(parents=True)
    (elsewhere / ".paceline" / "runs" / "r-aaaaaa").symlink_to(made.path)
    monkeypatch.delenv("PACELINE_HOME")
    assert main(["stop"]) == 2
    assert "next      paceline ps\n" in capsys.readouterr().err


def test_stop_finds_the_newest_run_of_a_directory_that_is_named(recording, tmp_path, capsys, monkeypatch):
    recording("r-aaaaaa").identity(agent_pid=os.getpid(), agent_start_ticks=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["stop", "--run-dir", str(tmp_path / ".paceline" / "runs")]) == 200
    assert "r-aaaaaa" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["why"], ["logs"], ["top", "--once"]])
def test_a_reader_says_of_which_other_directory_a_run_is(done, tmp_path, capsys, monkeypatch, verb):
    register("r-aaaaaa", done.path)
    main([*verb, "r-aaaaaa"])
    assert "is a run of" not in capsys.readouterr().err
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    main([*verb, "r-aaaaaa"])
    assert f"r-aaaaaa is a run of {tmp_path}\n" in capsys.readouterr().err


@pytest.fixture
def rehearsed(recording, tmp_path):
    """A run of `paceline bench --rehearse`, newer than any other, as it lies in the directory and in this user's index."""
    made = recording("r-eeeeee", below="rehearsals/rh-3f91ab/2x1")
    made.identity(started_ns=1 << 62)
    made.event("run_finished", status="Completed", secondary_status="Completed", exit_code=0, reason="")
    register("r-eeeeee", made.path)
    return made


@pytest.mark.parametrize("verb", ["why", "logs", "top", "stack", "stop"])
def test_a_run_that_a_measurement_made_for_itself_is_never_the_newest(rehearsed, capsys, verb):
    assert main([verb, "--json"]) == 2
    refused = json.loads(capsys.readouterr().out)
    assert (refused["code"], refused["next"]) == ("U09", "paceline run train.py")


@pytest.mark.parametrize("verb", ["why", "top", "stop"])
def test_beside_it_the_newest_run_is_the_users_own(done, rehearsed, capsys, verb):
    assert answer(capsys, verb, "--json")["run_id"] == "r-aaaaaa"
    assert answer(capsys, verb, "r-eeeeee", "--json")["run_id"] == "r-eeeeee"


def test_ps_shows_it_where_every_run_is_wanted(done, rehearsed, capsys):
    assert [run["run_id"] for run in answer(capsys, "ps", "--json")["runs"]] == ["r-aaaaaa"]
    assert [run["run_id"] for run in answer(capsys, "ps", "--json", "--all")["runs"]] == ["r-eeeeee", "r-aaaaaa"]


@pytest.mark.parametrize("verb", ["logs", "top", "why"])
def test_a_reader_finds_the_newest_run_below_the_directory_that_is_named(done, tmp_path, capsys, monkeypatch, verb):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("PACELINE_HOME", raising=False)
    assert main([verb, "--json", "--run-dir", str(tmp_path / ".paceline" / "runs")]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out.splitlines()[0])["run_id"] == "r-aaaaaa" and found.err == ""


def test_why_takes_further_directories_as_the_other_readers_do(done, tmp_path, capsys):
    shutil.move(done.path / "hosts", tmp_path / "other" / "hosts")
    assert any("steps of rank" in text for text in answer(capsys, "why", "--json")["not_judged"])
    together = answer(capsys, "why", "--json", "--dir", str(tmp_path / "other"))
    assert not any("steps of rank" in text for text in together["not_judged"])


@pytest.mark.parametrize("verb", ["ps", "why", "logs", "top", "stop", "stack"])
def test_a_directory_that_is_gone_is_said_in_four_parts(tmp_path, capsys, monkeypatch, verb):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        assert main([verb]) == 2
    finally:
        os.chdir(tmp_path)
    assert "error[U22]" in capsys.readouterr().err


def test_a_run_whose_agent_is_gone_cannot_be_stopped(recording, capsys):
    made = recording("r-dead00")
    made.identity(agent_pid=os.getpid(), agent_start_ticks=1)
    assert main(["stop", "r-dead"]) == 200
    assert "error[U19]" in capsys.readouterr().err


def test_help_prints_a_page_and_lists_codes_and_verbs(capsys):
    assert main(["help", "u04"]) == 0
    assert capsys.readouterr().out.startswith("U04  A port or an address is in use")
    assert main(["help", "codes"]) == 0
    assert "\nU04   A port or an address is in use" in capsys.readouterr().out
    names = answer(capsys, "help", "--json")
    assert "U09" in names["codes"] and list(names["verbs"]) == list(all_verbs())
    assert answer(capsys, "help", "U09", "--json")["title"] == "There is no such run"
