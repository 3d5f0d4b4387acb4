"""The saved state that --resume names: where it is looked for, what is checked, and what the new job's buffers hold."""

import json
import os
import sys

import pytest
from kept_state import COUNT, TENSOR_BYTES, Rank

from paceline.errors import UsageError
from paceline.facts import Job, Program, ProgramKind
from paceline.launch import resume_from
from paceline.launch.agent.saved_job import facts_of
from paceline.launch.agent.state_saving import StateSaving
from paceline.launch.resume_from import load_state
from paceline.recording.state_buffer import SLOT_AT, StateHeader
from paceline.storage.state_store import state_store

VERSION = sys.version.split()[0]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Steps 6 and 7 of two ranks, saved in the directory of run r-1."""
    # Runs are found in the directories of others too, by the index of their user.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "index"))
    script = tmp_path / "train.py"
    script.write_text("a script")
    (tmp_path / "r-1").mkdir()
    (tmp_path / "r-1/run.json").write_text(json.dumps({"schema": "paceline.run/3", "id": "r-1"}))
    monkeypatch.setattr(resume_from, "_versions", lambda environ: (VERSION, "2.13.0+cpu"))
    ranks = [Rank(python=VERSION), Rank(python=VERSION)]
    facts = facts_of(job(tmp_path, "r-1"), "r-1", "77")
    saving = StateSaving([rank.descriptor for rank in ranks], state_store(str(tmp_path / "r-1/state")), facts)
    for step in (6, 7):
        for rank in ranks:
            rank.keep(step)
        saving.save()
    yield tmp_path
    for rank in ranks:
        os.close(rank.descriptor)


def job(folder, name, ranks=2, **more):
    program = Program(kind=ProgramKind.SCRIPT, target=str(folder / "train.py"))
    return Job(name="j", program=program, ranks_per_host=ranks, resume=True, resume_from=str(name), **more)


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
    assert (loaded.step, loaded.hash_seed) == (7, "77") and "step 7 of run r-1" in loaded.notices[0]
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


@pytest.mark.parametrize("kind", ["safetensors", "marshal"])
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
    assert error.code == "F05" and str(world / "train.py") in error.what and "--resume-anyway" in error.next
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
