"""The process that saves the state: what it saves by itself, when it is asked, when its agent dies, and when it is killed."""

import os
import signal

import pytest
from dead_store import DeadStore
from kept_state import Rank, complete
from killed_savers import Saver, kill_savers
from patience import patient

from paceline.parts.resume.recording.saved_state import JobFacts
from paceline.parts.resume.state_store import state_store

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
JOB = JobFacts(run_id="r-1", script="/t.py", script_sha256="00", hash_seed="7")
KILLS = 20


@pytest.fixture
def ranks():
    made = [Rank(), Rank()]
    for rank in made:
        rank.keep(1)
    yield made
    for rank in made:
        os.close(rank.descriptor)


def test_it_saves_by_itself_and_when_it_is_asked(tmp_path, ranks):
    saver = Saver(ranks, tmp_path / "state", JOB)
    assert saver.answer()["step"] == 1
    for rank in ranks:
        rank.keep(2)
    saver.ask("save")
    assert saver.answer() | {"seconds": 0} == {
        "to": "save",
        "step": 2,
        "seconds": 0,
        "size_bytes": ranks_bytes(tmp_path, 2),
    }
    with open(f"/proc/{saver.process.pid}/stat", "rb") as file:
        assert file.read().rpartition(b")")[2].split()[16] == b"10"
    with open(f"/proc/{saver.process.pid}/maps") as file:
        assert "torch" not in file.read()
    saver.ask("end")
    assert saver.answer() == {"to": "end"} and complete(state_store(str(tmp_path / "state"))) == {}
    saver.kill()


def ranks_bytes(tmp_path, step):
    (manifest,) = [one for number, one in complete(state_store(str(tmp_path / "state"))).items() if number == step]
    return sum(file.size_bytes for file in manifest.files)


def test_what_cannot_be_saved_is_said_with_the_reason_and_the_step_that_is_there(tmp_path, ranks):
    saver = Saver(ranks, tmp_path / "state", JOB)
    assert saver.answer()["step"] == 1
    (tmp_path / "state").rename(tmp_path / "away")
    (tmp_path / "state").write_text("in the way")
    for rank in ranks:
        rank.keep(2)
    saver.ask("save")
    answer = saver.answer()
    assert answer["step"] == 1 and "could not be saved" in answer["failed"]
    (tmp_path / "state").unlink()
    (tmp_path / "away").rename(tmp_path / "state")
    saver.ask("save")
    assert saver.answer()["step"] == 2 and sorted(complete(state_store(str(tmp_path / "state")))) == [1, 2]
    saver.kill()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, None])
def test_when_the_agent_is_gone_the_newest_step_is_saved_once_more(tmp_path, ranks, number):
    saver = Saver(ranks, tmp_path / "state", JOB)
    assert saver.answer()["step"] == 1
    for rank in ranks:
        rank.keep(5)
    if number is not None:
        saver.process.send_signal(number)
    saver.process.stdin.close()
    saver.process.wait(patient(60))
    saver.process.stdout.close()
    assert sorted(complete(state_store(str(tmp_path / "state")))) == [1, 5]


@pytest.mark.slow
def test_after_each_kill_of_a_saver_the_newest_step_is_whole_and_no_older_than_before(tmp_path):
    # bench/saver_kills.py does so 1,000 times.
    found = kill_savers(tmp_path, KILLS, seed=16)
    assert found.kills == KILLS and found.newest > 1


@pytest.mark.slow
@pytest.mark.parametrize("request_", ["", "save", "end"])
def test_of_a_store_that_answers_no_more_it_is_said_once_until_it_answers_again(tmp_path, ranks, request_):
    pytest.importorskip("fsspec")
    store = DeadStore(tmp_path)
    silent = {"silent_seconds": 3600.0 if request_ else patient(1.0)}
    saver = Saver(ranks, store.url, JOB, pause_seconds=0.1, environment=store.variables, **silent)
    assert saver.answer()["step"] == 1
    store.die()
    for rank in ranks:
        rank.keep(2)
    if request_:
        saver.ask("now")
        saver.ask(request_)
    answer = saver.answer()
    assert answer["step"] == 1 and answer.get("to", "") == request_
    assert f"{store.url} has not answered for" in answer["failed"]
    store.live()
    # The next line is that of the save, which goes on.
    answer = saver.answer()
    assert "failed" not in answer and (request_ == "end" or answer["step"] == 2)
    saver.kill()
