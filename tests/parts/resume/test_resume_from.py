"""The saved state that --resume names: where it is looked for, what is checked, and what the new job's buffers hold."""

import json
import os
import threading
from dataclasses import replace

import pytest
from kept_state import COUNT, TENSOR_BYTES, Rank
from saved_runs import VERSION, job, saved_by_two_ranks

from paceline.errors import UsageError
from paceline.parts.resume import resume_from
from paceline.parts.resume.agent.save_newest_step import StateSaving
from paceline.parts.resume.agent.saved_job import facts_of, saving_place
from paceline.parts.resume.recording.state_buffer import SLOT_AT, StateHeader
from paceline.parts.resume.resume_from import beginning, load_state
from paceline.parts.resume.state_store import state_store
from paceline.recording.layout import RunDirectory


@pytest.fixture
def world(tmp_path, monkeypatch):
    with saved_by_two_ranks(tmp_path, monkeypatch):
        yield tmp_path


def load(world, name="r-1", environ=None, **more):
    loaded = load_state(job(world, name, **more), environ or {}, world)
    loaded.states.close()
    return loaded


def refused(world, *args, **more):
    with pytest.raises(UsageError) as raised:
        load(world, *args, **more)
    return raised.value


def piece(world, step, kind="safetensors"):
    return next((world / f"r-1/state/step-{step}").glob(f"rank-1.*.{kind}"))


@pytest.mark.parametrize("name", ["r-1", "{}/r-1", "{}/r-1/state", "file://{}/r-1/state"])
def test_the_newest_step_is_put_into_the_buffers_of_the_new_job(world, name):
    loaded = load_state(job(world, name.format(world)), {}, world)
    for local_rank in (0, 1):
        header = StateHeader(os.dup(loaded.states.descriptor(local_rank)))
        (slot,) = header.slots()
        assert (slot.step, slot.tensor_bytes, slot.batch_crc) == (7, TENSOR_BYTES, 7) and header.plain(slot)
        assert os.pread(header.descriptor, 4 * COUNT, SLOT_AT[0]) == (7).to_bytes(4, "little") * COUNT
    assert (loaded.step, loaded.hash_seed) == (7, 77) and "step 7 of run r-1" in loaded.notices[0]
    loaded.states.begin_attempt(7, 0)
    loaded.states.close()


def test_the_directory_of_the_checkpoints_leads_to_the_state_beside_them(world):
    (world / "checkpoints/.paceline").mkdir(parents=True)
    (world / "r-1/state").rename(world / "checkpoints/.paceline/state")
    assert load(world, world / "checkpoints").step == load(world, f"file://{world}/checkpoints").step == 7
    (world / "r-1/state").mkdir()
    (world / "r-1/state/place.json").write_text(json.dumps({"place": f"file://{world}/checkpoints/.paceline/state"}))
    assert load(world).step == 7


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["safetensors", "msgpack"])
@pytest.mark.parametrize("harm", ["flip", "cut", "longer", "missing"])
def test_instead_of_a_damaged_step_the_one_before_is_taken_and_said(world, kind, harm):
    path = piece(world, 7, kind)
    match harm:
        case "flip":
            flip(path)
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "longer":
            path.write_bytes(path.read_bytes() + bytes(5 << 20))
        case "missing":
            path.unlink()
    loaded = load(world)
    assert loaded.step == 6 and "step 7 is damaged, step 6 is taken (F04)" in loaded.notices[0]


def test_a_cut_manifest_makes_its_step_damaged(world):
    manifest = world / "r-1/state/step-7/manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert load(world).step == 6


def test_where_every_step_is_damaged_nothing_is_started(world):
    flip(piece(world, 7))
    flip(piece(world, 6))
    error = refused(world)
    assert error.code == "F04" and "7, 6" in error.saw and error.next and error.exit_code == 2


def test_without_a_saved_step_the_error_says_where_was_looked(world):
    (world / "r-2").mkdir()
    (world / "r-2/run.json").write_text(json.dumps({"schema": "paceline.run/3", "id": "r-2"}))
    error = refused(world, "r-2")
    assert error.code == "F04" and f"no saved step in {world}/r-2/state" == error.saw
    assert refused(world, "r-77").code == "U09"


def test_of_a_run_that_ended_well_it_is_said_that_it_did(world):
    StateSaving([], state_store(str(world / "r-1/state")), facts_of(job(world, "r-1"), "r-1", "77")).end()
    error = refused(world)
    assert error.code == "F04" and "ended well" in error.what


def test_another_script_is_refused_unless_the_user_says_otherwise(world):
    (world / "train.py").write_text("another script")
    error = refused(world)
    assert error.code == "F05" and str(world / "train.py") in error.what and "--set resume_anyway=true" in error.next
    assert load(world, resume_anyway=True).step == 7


def test_another_torch_is_refused_unless_the_user_says_otherwise(world, monkeypatch):
    monkeypatch.setattr(resume_from, "_versions", lambda environ: (VERSION, "2.14.0"))
    assert "torch 2.14.0" in refused(world).what
    assert load(world, resume_anyway=True).step == 7


@pytest.mark.parametrize("anyway", [False, True])
def test_another_python_and_another_hash_seed_are_always_refused(world, monkeypatch, anyway):
    assert "PYTHONHASHSEED" in refused(world, environ={"PYTHONHASHSEED": "1"}, resume_anyway=anyway).what
    assert load(world, environ={"PYTHONHASHSEED": "77"}, resume_anyway=anyway).step == 7
    monkeypatch.setattr(resume_from, "_versions", lambda environ: ("3.99.0", "2.13.0"))
    error = refused(world, resume_anyway=anyway)
    assert error.code == "F05" and "3.99.0" in error.what


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_gets_the_state_of_the_rank_or_of_rank_0(world, ranks):
    loaded = load_state(job(world, "r-1", ranks=ranks), {}, world)
    for local_rank in range(ranks):
        header = StateHeader(os.dup(loaded.states.descriptor(local_rank)))
        assert header.steps() == (7,) and header.plain(header.slots()[0])
    loaded.states.close()


def test_another_number_of_ranks_passes_over_a_damaged_step_too(world):
    flip(piece(world, 7))
    loaded = load(world, ranks=3)
    assert loaded.step == 6 and "step 7 is damaged, step 6 is taken (F04)" in loaded.notices[0]


class OwnTensors(Rank):
    def tensors(self, step):
        return os.urandom(TENSOR_BYTES)


def test_ranks_with_tensors_of_their_own_are_not_dealt_to_another_number(world):
    ranks = [OwnTensors(python=VERSION), OwnTensors(python=VERSION)]
    for rank in ranks:
        rank.keep(8)
    facts = facts_of(job(world, "r-1"), "r-1", "77")
    StateSaving([rank.descriptor for rank in ranks], state_store(str(world / "r-1/state")), facts).save()
    error = refused(world, ranks=3)
    assert error.code == "F05" and error.what == "the state is that of 2 ranks, and the job has 3"
    assert "rank 1 has another value than rank 0" in error.saw and "--nproc-per-node 2" in error.next
    assert load(world).step == 8
    for rank in ranks:
        os.close(rank.descriptor)


def test_the_versions_are_those_of_the_python_that_runs_the_ranks(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 3.42.1\necho 9.9\n")
    python.chmod(0o755)
    assert resume_from._versions({"PYTHON_EXEC": str(python), "PATH": os.environ["PATH"]}) == ("3.42.1", "9.9")
    assert resume_from._versions({})[0] == VERSION


def test_several_hosts_are_refused(world):
    assert refused(world, min_hosts=2, max_hosts=2).code == "F05"


def begins(world, run_id="r-1.2", **more):
    """The step at which an attempt of the submitted job r-1 begins; None: at the start. And what is said of it."""
    own = job(world, "", **{"submission_id": "r-1", "resume_from": None, **more})
    found = beginning(own, run_id, {}, world)
    if found.step is not None:
        found.states.close()
    return None if found.step is None else (found.step, found.is_named), " ".join(found.notices)


def test_a_further_attempt_of_a_submitted_job_goes_on_at_its_newest_saved_step(world):
    assert begins(world)[0] == begins(world, "r-1.3")[0] == (7, False)
    assert "goes on at step 7 of run r-1" in begins(world)[1]
    flip(piece(world, 7))
    assert begins(world)[0] == (6, False) and "step 7 is damaged, step 6 is taken (F04)" in begins(world)[1]


def test_where_it_looks_a_further_attempt_saves_as_well(world):
    for run, of_job, place in (
        ("r-1", None, "r-1/state"),
        ("r-1", "r-1", "r-1/state"),
        ("r-1.2", None, "r-1.2/state"),
        ("r-1.2", "r-1", "r-1/state"),
        ("r-1-4.3", "r-1", "r-1-4/state"),
        ("r-1.2", "r-1.2", "r-1.2/state"),
    ):
        own = job(world, "x", submission_id=of_job)
        assert saving_place(own, RunDirectory(world / run)) == str(world / place), (run, of_job)
    own = job(world, "x", submission_id="r-1", checkpoint_url="s3://b/c/")
    assert saving_place(own, RunDirectory(world / "r-1.2")) == "s3://b/c/.paceline/state"
    assert saving_place(replace(own, state_dir="/kept"), RunDirectory(world / "r-1.2")) == "/kept"


def test_the_first_attempt_begins_at_the_start_without_a_word(world):
    assert begins(world, "r-1") == begins(world, submission_id=None) == begins(world, resume=False) == (None, "")
    assert begins(world, min_hosts=2, max_hosts=2) == (None, "")


def test_an_attempt_without_a_saved_step_says_where_it_looked(world):
    begun, said = begins(world, "r-2.2", submission_id="r-2")
    assert begun is None
    assert said == f"no step of this job is saved in {world}/r-2/state: the job begins at the start of the script"
    # A container cannot know whether one was here before it.
    assert begins(world, "r-2", submission_id="r-2", state_dir=str(world / "none"))[1].startswith("no step of this job")


def test_an_attempt_never_goes_on_from_the_state_of_another_job(world):
    begun, said = begins(world, "r-2.2", submission_id="r-2", state_dir=str(world / "r-1/state"))
    assert begun is None and "is that of run r-1, not of this job: the job begins at the start" in said
    assert "(F05)" in said
    assert begins(world, "r-1", state_dir=str(world / "r-1/state"))[0] == (7, False)
    (world / "train.py").write_text("another script")
    begun, said = begins(world)
    assert begun is None and "is not the script whose state was saved" in said and "(F05)" in said


def test_an_attempt_whose_saved_steps_are_all_damaged_says_so_and_begins_at_the_start(world):
    flip(piece(world, 7))
    flip(piece(world, 6))
    begun, said = begins(world)
    assert begun is None and "the saved state of step 7, 6 in" in said and "(F04)" in said


def test_a_further_attempt_prefers_its_own_step_to_the_state_that_the_user_named(world):
    (world / "r-3").mkdir()
    assert begins(world, resume_from=str(world / "r-3"))[0] == (7, False)
    begun, said = begins(world, "r-2.2", submission_id="r-2", resume_from="r-1")
    assert begun == (7, True) and "no step of this job" in said and "goes on at step 7 of run r-1" in said


def test_an_attempt_waits_until_the_processes_of_the_one_before_have_left_this_host(world):
    socket = world / "control.sock"
    socket.touch()
    (world / "r-1/run.json").write_text(json.dumps({"control_socket": str(socket)}))
    leaving = threading.Timer(0.3, socket.unlink)
    leaving.start()
    assert begins(world)[0] == (7, False) and not socket.exists()
    leaving.join()
