"""What is saved of the ranks' state buffers while the ranks go on, and what is never published."""

import os
import subprocess

import pytest
from kept_state import Rank, complete

from paceline.parts.resume.agent.save_newest_step import StateSaving
from paceline.parts.resume.recording.saved_state import MANIFEST, JobFacts, NoManifest, folder_of, parse_manifest
from paceline.parts.resume.state_store import state_store

JOB = JobFacts(run_id="r-1", script="/t.py", script_sha256="00", hash_seed="7")
JOB_BESIDE = JobFacts(run_id="r-2", script="/t.py", script_sha256="00", hash_seed="7")


@pytest.fixture
def ranks():
    made = [Rank(), Rank()]
    yield made
    for rank in made:
        os.close(rank.descriptor)


def saving(ranks, store, **more):
    return StateSaving([rank.descriptor for rank in ranks], store, JOB, **more)


def test_the_newest_step_that_all_ranks_have_is_saved_with_what_a_later_job_must_know(tmp_path, ranks):
    for step in (5, 6):
        ranks[0].keep(step)
    ranks[1].keep(5)
    store = state_store(str(tmp_path / "state"))
    saved = saving(ranks, store).save()
    (manifest,) = complete(store).values()
    assert (saved.step, saved.size_bytes) == (5, sum(file.size_bytes for file in manifest.files))
    assert (manifest.step, manifest.world_size, manifest.python, manifest.torch) == (5, 2, "3.11.9", "2.13.0")
    assert manifest.job == JOB


def test_a_step_is_saved_once_and_without_one_nothing_is(tmp_path, ranks):
    store = state_store(str(tmp_path / "state"))
    saves = saving(ranks, store)
    assert saves.save() is None and store.folders() == []
    for rank in ranks:
        rank.keep(1)
    assert saves.save().step == 1 and saves.save() is None


def test_the_last_two_complete_steps_are_kept_and_what_was_left_half_is_removed(tmp_path, ranks):
    store = state_store(f"file://{tmp_path}/state")
    store.write("step-3/rank-0.dead.msgpack", [b"half"])
    saves = saving(ranks, store)
    for step in (1, 2, 4, 7):
        for rank in ranks:
            rank.keep(step)
        saves.save()
    assert sorted(complete(store)) == [4, 7] and sorted(store.folders()) == ["step-4", "step-7"]


def test_what_another_run_saves_meanwhile_is_left_alone_and_its_id_is_told(tmp_path, ranks):
    place = tmp_path / "state"
    store = state_store(str(place))
    other = StateSaving([rank.descriptor for rank in ranks], store, JOB_BESIDE)
    mine = saving(ranks, store)
    for step in range(1, 7):
        for rank in ranks:
            rank.keep(step)
        saved = (other, mine)[step % 2].save()
        # The other one began while the first step was there, and so may be the one that goes on from it.
        assert saved.other_run == ("", "", "r-2", "r-1", "r-2", "r-1")[step - 1]
    assert sorted(complete(store)) == [3, 4, 5, 6]
    store.write("step-6/rank-0.half.msgpack", [b"half"])
    mine.end()
    assert sorted(complete(store)) == [4, 6] and (place / "step-6/rank-0.half.msgpack").exists()
    assert not (place / "ended.json").exists()
    other.end()
    assert complete(store) == {} and (place / "ended.json").exists()


class SlowStore:
    """A store during whose writes something happens."""

    def __init__(self, store, happens):
        self._store, self._happens = store, happens

    def __getattr__(self, name):
        return getattr(self._store, name)

    def write(self, name, blocks):
        self._happens(name)
        self._store.write(name, blocks)


@pytest.mark.parametrize("memory", [1 << 40, 0])
def test_ranks_that_write_while_they_are_saved_never_mix_two_steps(tmp_path, ranks, memory):
    for rank in ranks:
        rank.keep(10)
    made = [10]

    def goes_on(name):
        if name.endswith(".safetensors") and made[-1] < 13:
            made.append(made[-1] + 1)
            for rank in ranks:
                rank.keep(made[-1])

    store = state_store(str(tmp_path))
    saved = saving(ranks, SlowStore(store, goes_on), memory_left=lambda: memory).save()
    # With a copy the step that was asked for is saved; without one it was overwritten, and a later one is.
    assert saved.step == (10 if memory else 12)
    assert list(complete(store)) == [saved.step]


def test_a_slot_that_is_being_written_is_not_read(tmp_path, ranks):
    store = state_store(str(tmp_path))
    for rank in ranks:
        rank.keep(3)
        rank.keep(4)
    ranks[1].begin(0)
    assert saving(ranks, store).save().step == 3


def test_a_step_that_is_saved_again_changes_nothing_of_the_one_that_is_there(tmp_path, ranks):
    store = state_store(str(tmp_path))
    for rank in ranks:
        rank.keep(3)
    saving(ranks, store).save()
    kept = {name: store.content(f"step-3/{name}") for name in store.files("step-3")}

    def fails(name):
        if name.endswith(MANIFEST):
            raise OSError("the machine went down here")

    with pytest.raises(OSError, match="went down"):
        saving(ranks, SlowStore(store, fails)).save()
    assert kept.items() <= {name: store.content(f"step-3/{name}") for name in store.files("step-3")}.items()
    assert list(complete(store)) == [3]


def test_of_a_job_that_has_ended_well_nothing_is_left_to_go_on_from(tmp_path, ranks):
    store = state_store(str(tmp_path))
    for rank in ranks:
        rank.keep(3)
    saves = saving(ranks, store)
    saves.save()
    saves.end()
    assert store.folders() == [] and b"r-1" in store.content("ended.json")


def test_a_save_that_nobody_needs_any_more_is_left_without_a_manifest(tmp_path, ranks):
    store = state_store(str(tmp_path))
    for rank in ranks:
        rank.keep(3)
    assert saving(ranks, store, is_over=lambda: bool(store.folders())).save() is None
    assert complete(store) == {} and store.files("step-3") == []


def test_a_full_disk_leaves_the_step_before(tmp_path, ranks):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a disk of its own needs root")
    try:
        store = state_store(str(disk / "state"))
        saves = saving(ranks, store)
        for step in (1, 2, 3):
            for rank in ranks:
                rank.keep(step)
            if step < 3:
                saves.save()
        with pytest.raises(OSError, match="No space"):
            saves.save()
        assert sorted(complete(store)) == [1, 2]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_url_is_written_as_a_directory_is(ranks):
    pytest.importorskip("fsspec")
    store = state_store("memory://paceline-test-state/state")
    saves = saving(ranks, store)
    for step in (1, 2, 3):
        for rank in ranks:
            rank.keep(step)
        saves.save()
    assert sorted(complete(store)) == [2, 3]
    saves.end()
    assert complete(store) == {}


def test_a_manifest_that_was_cut_makes_its_step_one_that_does_not_exist(tmp_path, ranks):
    store = state_store(str(tmp_path))
    for rank in ranks:
        rank.keep(3)
    saving(ranks, store).save()
    path = tmp_path / folder_of(3) / MANIFEST
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(NoManifest):
        parse_manifest(path.read_bytes())
