"""A recording is data: it has nobody's processes ended, and nobody's credentials sent, unless its owner asks."""

import json
import os
import subprocess
from dataclasses import replace

import msgspec
import pytest
from submissions import a_submission

from paceline.cli import main
from paceline.errors import UsageError
from paceline.parts.engines import endpoints, jobs
from paceline.parts.engines.detached import cancel_kept
from paceline.process_identity import start_ticks
from paceline.recording.control import ask
from paceline.recording.evidence import read_run
from paceline.recording.layout import RunDirectory

SOMEBODY_ELSE = 2002
JOB = a_submission()

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def innocent():
    """A process of the caller that has nothing to do with any job."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def submission(run_dir, engine, handle, job=JOB):
    run_dir.mkdir(exist_ok=True)
    document = {
        "schema": jobs.SCHEMA,
        "engine": engine,
        "handle": handle,
        "job": msgspec.to_builtins(job),
        "submitted_ns": 1,
    }
    (run_dir / "submission.json").write_text(json.dumps(document))
    return run_dir


def handle_of(process):
    return {"pid": process.pid, "start_ticks": start_ticks(process.pid), "machine": os.uname().nodename}


def give_away(*paths):
    for path in paths:
        os.chown(path, SOMEBODY_ELSE, SOMEBODY_ELSE)


@needs_root
@pytest.mark.parametrize("given_away", ["directory", "file", "both"])
def test_a_recording_of_another_user_ends_nothing(tmp_path, innocent, given_away, capsys):
    run_dir = submission(tmp_path / "r-000001", "local", handle_of(innocent))
    give_away(
        *([run_dir] if given_away != "file" else []),
        *([run_dir / "submission.json"] if given_away != "directory" else []),
    )
    for argv in (["stop", str(run_dir)], ["stop", str(run_dir), "--now"]):
        assert main(argv) == 2
    assert "U25" in capsys.readouterr().err
    assert innocent.poll() is None


@needs_root
def test_a_link_of_another_user_to_an_own_recording_ends_nothing(tmp_path, innocent, capsys):
    submission(tmp_path / "own", "local", handle_of(innocent))
    link = tmp_path / "r-000001"
    link.symlink_to(tmp_path / "own")
    os.lchown(link, SOMEBODY_ELSE, SOMEBODY_ELSE)
    assert main(["stop", str(link), "--now"]) == 2
    assert "U25" in capsys.readouterr().err
    assert innocent.poll() is None


@needs_root
@pytest.mark.parametrize("verb", [["why"], ["logs"], ["top", "--once"]])
def test_a_recording_of_another_user_is_read(recording, verb, capsys):
    own = recording()
    own.identity()
    own.event("rank_started", host="algo-1", rank=0, pid=1)
    own.log("algo-1", 0, b"a line\n")
    own.finish()
    give_away(own.path, *own.path.rglob("*"))
    assert main([*verb, str(own.path)]) == 0
    assert "U25" not in capsys.readouterr().err


@needs_root
def test_no_agent_is_asked_that_another_users_recording_names(recording, tmp_path):
    made = recording()
    path = made.directory.path
    run, _, _ = read_run((RunDirectory(path),))
    give_away(path)
    with pytest.raises(UsageError) as refused:
        ask(replace(run, control_socket=str(tmp_path / "anything")), {"command": "stop", "now": True})
    assert refused.value.code == "U25"


@pytest.mark.parametrize("now", [False, True])
def test_a_process_that_is_no_keeper_is_not_signalled(tmp_path, innocent, now):
    run_dir = submission(tmp_path / "r-000001", "local", handle_of(innocent))
    cancel_kept(handle_of(innocent), run_dir, now=now)
    assert innocent.poll() is None


@pytest.mark.parametrize("handle", [{"pid": -1}, {"pid": 0}, {"pid": 10**30}, {"pid": "1"}, {"pid": None}])
def test_a_keeper_that_cannot_be_is_none(tmp_path, handle):
    run_dir = submission(tmp_path / "r-000001", "local", {})
    cancel_kept({**handle, "start_ticks": None, "machine": os.uname().nodename}, run_dir)


def at(url):
    return replace(JOB, engine_options={"endpoint_url": url, "region": "us-east-1"})


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9",
        "https://evil.example/",
        "https://evil.example/.amazonaws.com",
        "https://amazonaws.com.evil.example",
    ],
)
def test_an_address_is_not_taken_from_a_recording(tmp_path, url):
    run_dir = submission(tmp_path / "r-000001", "sagemaker", {"job_name": "r-000001"}, at(url))
    with pytest.raises(UsageError) as refused:
        jobs.observe(run_dir, {"AWS_ACCESS_KEY_ID": "AKIAVICTIM", "AWS_SECRET_ACCESS_KEY": "secret"})
    assert refused.value.code == "U25"


def test_an_address_that_the_user_has_named_is_taken():
    options = at("http://127.0.0.1:9").engine_options
    endpoints.require_named(options, {"AWS_ENDPOINT_URL_SAGEMAKER": "http://127.0.0.1:9"})
    endpoints.require_named({"endpoint_url": "https://api.sagemaker.us-east-1.amazonaws.com"}, {})
    endpoints.remember(options)
    endpoints.require_named(options, {})
    with pytest.raises(UsageError):
        endpoints.require_named(at("http://127.0.0.1:10").engine_options, {})
