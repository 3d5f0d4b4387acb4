"""`paceline why` reads a recording, whole or damaged, here or from copied directories; `--log` reads what other launchers left."""

import gzip
import io
import json
import os
import shutil
import sys
from types import SimpleNamespace

import pytest

from paceline.cli import main
from paceline.cli.why_log import END_BYTES, read_part

OOM = "slurmstepd: error: Detected 1 oom-kill event(s) in step 4711.0.\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


@pytest.fixture
def done(recording):
    made = recording("r-aaaaaa")
    made.identity()
    for rank in (0, 1):
        made.event("rank_started", host="algo-1", rank=rank, attempt=0, pid=1000 + rank)
        made.segment("algo-1", rank, steps=10)
        made.event("rank_exited", host="algo-1", rank=rank, attempt=0, code=0, time_ns=9)
    made.telemetry("algo-1", {"t_ns": 1})
    made.finish()
    return made


@pytest.fixture
def raised(recording):
    """Rank 1 raised, rank 0 lost its connection because of it."""
    made = recording("r-bbbbbb")
    made.identity()
    for rank in (0, 1):
        made.event("rank_started", host="algo-1", rank=rank, attempt=0, pid=1000 + rank)
        made.segment("algo-1", rank, steps=10)
    error = {"type": "ValueError", "message": "bad batch", "file": "train.py", "line": 3, "time_ns": 5, "source": "f()"}
    made.event("rank_exited", host="algo-1", rank=1, attempt=0, code=1, time_ns=6, error=error)
    reset = {"type": "RuntimeError", "message": "Connection closed by peer", "time_ns": 7}
    made.event("rank_exited", host="algo-1", rank=0, attempt=0, code=1, time_ns=8, error=reset)
    made.telemetry("algo-1", {"t_ns": 1})
    made.finish(code=1, status="Failed", reason="rank 1 raised ValueError: bad batch")
    return made


def answer(capsys, *argv, code=0):
    assert main(["why", *map(str, argv), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *argv, code=2):
    assert main(["why", *map(str, argv)]) == code
    return capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- recordings


def test_a_healthy_run_has_nothing_found(done, capsys):
    assert main(["why"]) == 0
    assert "nothing found; 2 ranks, 10 steps on 1 host" in capsys.readouterr().out
    said = answer(capsys, "r-aaaaaa")
    assert (said["schema"], said["run_id"], said["status"], said["findings"]) == (
        "paceline.why/2",
        "r-aaaaaa",
        "Completed",
        [],
    )


def test_a_failed_run_gives_findings_with_every_key(raised, capsys):
    said = answer(capsys)
    keys = ("code", "title", "level", "ranks", "hosts", "confidence", "since_step", "detected_after_seconds")
    assert said["status"] == "Failed"
    assert all(set(found) == {*keys, "saw", "ruled_out", "next"} for found in said["findings"])


def test_a_copied_directory_is_read_where_it_lies(done, tmp_path, capsys):
    copy = shutil.copytree(done.path, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(done.path)
    assert answer(capsys, copy)["run_id"] == "r-aaaaaa"


def test_several_directories_of_one_run_are_read_together(done, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.move(done.path / "hosts", other / "hosts")
    assert any("steps of rank" in text for text in answer(capsys, done.path)["not_judged"])
    for further in ([other], ["--dir", other]):
        assert not any("steps of rank" in text for text in answer(capsys, done.path, *further)["not_judged"])


def test_directories_of_two_runs_are_not_judged_as_one(done, raised, capsys):
    said = refused(capsys, done.path, raised.path)
    assert "error[U09]" in said and "r-bbbbbb, beside r-aaaaaa" in said


def test_another_hosts_directory_alone_does_not_say_that_the_run_runs(done, tmp_path, capsys):
    shutil.move(done.path / "hosts", tmp_path / "other" / "hosts")
    assert answer(capsys, tmp_path / "other")["status"] is None


def test_a_segment_that_is_cut_off_is_named_and_the_rest_judged(done, capsys):
    segment = done.directory.segment_file("algo-1", 0, 1)
    segment.write_bytes(segment.read_bytes()[:100])
    said = answer(capsys)
    assert any("rank_1.seg" in text or "rank 1" in text for text in said["not_judged"])


def test_events_that_are_damaged_are_counted_and_the_rest_judged(done, capsys):
    with done.directory.events_file.open("ab") as file:
        file.write(b'{"event": "look", "look": {"rank": "x"}}\n{"event": "cau')
    said = answer(capsys)
    assert any("cut off" in text for text in said["not_judged"])
    assert any("look event" in text for text in said["not_judged"])


def test_an_unknown_run_is_refused_with_the_nearest_id(done, capsys):
    assert "the nearest one is r-aaaaaa" in refused(capsys, "r-aaaaab")


def test_a_directory_that_is_no_recording_is_refused(tmp_path, capsys):
    (tmp_path / "nothing").mkdir()
    assert "error[U09]" in refused(capsys, "./nothing")


def test_a_recording_without_an_event_or_a_rank_is_not_enough(tmp_path, capsys):
    (tmp_path / "empty" / "hosts").mkdir(parents=True)
    assert "error[U20]" in refused(capsys, "./empty", code=3)


def test_fail_on_takes_codes_levels_and_any(tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text("RuntimeError: received 0 items of ancdata")
    for word, code in (("any", 1), ("crash", 1), ("stall", 0), ("ANY", 1)):
        assert main(["why", "--log", str(log), "--fail-on", word]) == code
    assert "the nearest one is crash" in refused(capsys, "--log", log, "--fail-on", "crush")


def test_fail_on_any_is_quiet_about_a_healthy_run(done):
    assert main(["why", "--fail-on", "any"]) == 0


# ------------------------------------------------------------------------------------------------------------------- logs


def test_a_log_is_judged_without_a_recording(tmp_path, capsys):
    (tmp_path / "slurm.out").write_text(OOM)
    said = answer(capsys, "--log", "slurm.out")
    assert (said["run_id"], said["status"], said["findings"][0]["code"]) == (None, None, "C02")
    main(["why", "--log", "slurm.out"])
    assert "read 1 log, 1 line" in capsys.readouterr().out


def test_candidates_that_share_their_lines_are_told_once(tmp_path, capsys):
    (tmp_path / "a.log").write_text("Timed out waiting 1800000ms for recv operation to complete")
    main(["why", "--log", "a.log"])
    shown = capsys.readouterr().out
    assert "text does not decide here" in shown
    assert shown.count("1800000ms") == 1


def test_a_log_and_a_run_together_are_refused(done, capsys):
    assert "error[U03]" in refused(capsys, "r-aaaaaa", "--log", "x")


def test_gzip_is_unpacked(tmp_path, capsys):
    (tmp_path / "a.gz").write_bytes(gzip.compress(OOM.encode()))
    assert answer(capsys, "--log", "a.gz")["findings"][0]["code"] == "C02"


def test_gzip_that_is_cut_off_is_judged_by_its_beginning(tmp_path, capsys):
    rest = "".join(f"step {step} loss {step * 7919 % 1000}\n" for step in range(20_000))
    packed = gzip.compress((OOM + rest).encode())
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    said = answer(capsys, "--log", "a.gz")
    assert said["findings"][0]["code"] == "C02"
    assert "truncated" in said["not_judged"][0]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x7fELF\0\0\0", "U27"),
        (bytes(range(1, 32)) * 9, "U27"),
        (b"\x80\x02.", "U27"),
        (b"\x1f\x8bno gzip at all", "U27"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, capsys, data, code):
    (tmp_path / "b").write_bytes(data)
    assert f"error[{code}]" in refused(capsys, "--log", "b")


def test_a_file_that_is_not_there_is_refused(capsys):
    assert "error[U27]" in refused(capsys, "--log", "nowhere.log")


def test_an_empty_log_is_read(tmp_path, capsys):
    (tmp_path / "a").write_bytes(b"")
    assert answer(capsys, "--log", "a")["findings"] == []


def test_of_a_huge_log_both_ends_are_read_and_the_loss_is_said(tmp_path):
    path = tmp_path / "huge"
    line = b"x" * 99 + b"\n"
    path.write_bytes(b"first\n" + line * (3 * END_BYTES // 100) + b"last\n")
    part = read_part(str(path))
    assert part.text.startswith("first\n") and part.text.endswith("x\nlast\n")
    assert "8 MB in its middle were not read" in part.note
    assert {len(text) for text in part.text.split("\n")} == {5, 99, 4, 0}


def test_standard_input_is_read_like_a_file(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(OOM.encode())))
    assert answer(capsys, "--log", "-")["findings"][0]["code"] == "C02"


def test_a_pipe_of_the_shell_is_read_like_a_file(capsys):
    reader, writer = os.pipe()
    os.write(writer, OOM.encode())
    os.close(writer)
    assert answer(capsys, "--log", f"/dev/fd/{reader}")["findings"][0]["code"] == "C02"
    os.close(reader)


def test_a_progress_bar_is_lines(tmp_path, capsys):
    (tmp_path / "a").write_bytes(b"10%\r20%\rRuntimeError: received 0 items of ancdata\r\n")
    assert answer(capsys, "--log", "a")["findings"][0]["saw"][0].startswith("a:3:")


def test_an_empty_log_is_said_to_be_empty(tmp_path, capsys):
    (tmp_path / "a.log").write_text("\n")
    assert f"{tmp_path}/a.log: it is empty" in answer(capsys, "--log", tmp_path / "a.log")["not_judged"]
