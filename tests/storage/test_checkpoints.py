"""A directory and a prefix kept alike: nothing half written, nothing of another host overwritten, nothing deleted unasked."""

import os

import pytest

from paceline.storage.checkpoints import CheckpointSync, place_of, scan
from paceline.storage.download import Progress
from paceline.storage.ownership import OwnershipLedger

pytest.importorskip("fsspec")


@pytest.fixture
def there(tmp_path):
    directory = tmp_path / "there"
    directory.mkdir()
    return directory


def sync(tmp_path, there, name="checkpoints", **options):
    directory = tmp_path / name
    directory.mkdir(exist_ok=True)
    return CheckpointSync(place_of(directory), f"file://{there}", **options)


def look(sync, *, final=False):
    return sync.look(Progress(lambda progress: None), final=final)


def restore(sync):
    sync.restore(Progress(lambda progress: None))


def files(directory):
    return {name: (directory / name).read_text() for name in sorted(scan(directory))}


def test_a_file_is_sent_when_two_looks_saw_it_the_same(tmp_path, there):
    mine = sync(tmp_path, there)
    path = mine.place.files / "step-1.pt"
    path.write_text("half")
    assert look(mine) == 0 and files(there) == {}
    path.write_text("half and half")
    assert look(mine) == 0 and files(there) == {}
    assert look(mine) == 1 and files(there) == {"step-1.pt": "half and half"}
    assert look(mine) == 0


def test_the_last_look_waits_for_nobody(tmp_path, there):
    mine = sync(tmp_path, there)
    (mine.place.files / "deep").mkdir()
    (mine.place.files / "deep" / "last.pt").write_text("x")
    assert look(mine, final=True) == 1 and files(there) == {"deep/last.pt": "x"}


def test_what_is_there_comes_back_and_is_not_sent_again(tmp_path, there):
    (there / "last.pt").write_text("state")
    mine = sync(tmp_path, there)
    restore(mine)
    assert files(mine.place.files) == {"last.pt": "state"} and look(mine, final=True) == 0
    assert sorted(path.name for path in mine.place.files.iterdir()) == ["last.pt"]


def test_saved_state_beside_the_checkpoints_is_no_checkpoint(tmp_path, there):
    (there / ".paceline/state/step-4").mkdir(parents=True)
    (there / ".paceline/state/step-4/manifest.json").write_text("{}")
    (there / "last.pt").write_text("state")
    mine = sync(tmp_path, there, delete=True)
    restore(mine)
    assert files(mine.place.files) == {"last.pt": "state"}
    look(mine, final=True)
    assert ".paceline/state/step-4/manifest.json" in files(there)


def test_a_prefix_that_is_not_there_yet_is_a_first_run(tmp_path):
    mine = sync(tmp_path, tmp_path / "never")
    restore(mine)
    assert files(mine.place.files) == {}


def test_what_was_written_here_since_is_kept_and_sent(tmp_path, there):
    mine = sync(tmp_path, there)
    (mine.place.files / "last.pt").write_text("first")
    look(mine, final=True)
    # The job was killed before its last checkpoint was sent; the next one starts on the same directory.
    (mine.place.files / "last.pt").write_text("second")
    again = sync(tmp_path, there)
    restore(again)
    assert files(again.place.files) == {"last.pt": "second"}
    assert look(again, final=True) == 1 and files(there) == {"last.pt": "second"}


def test_what_is_newer_there_replaces_what_is_old_here(tmp_path, there):
    mine = sync(tmp_path, there)
    (mine.place.files / "last.pt").write_text("old")
    os.utime(mine.place.files / "last.pt", (1, 1))
    (there / "last.pt").write_text("new")
    restore(mine)
    assert files(mine.place.files) == {"last.pt": "new"}


@pytest.mark.parametrize("delete", [False, True])
def test_deletions_count_there_only_when_asked(tmp_path, there, delete):
    mine = sync(tmp_path, there, delete=delete)
    (there / "theirs.pt").write_text("never fetched")
    (mine.place.files / "step-1.pt").write_text("x")
    look(mine, final=True)
    (mine.place.files / "step-1.pt").unlink()
    look(mine)
    assert ("step-1.pt" in files(there)) is not delete and "theirs.pt" in files(there)


def test_saved_steps_that_were_removed_here_are_removed_there(tmp_path, there):
    mine = sync(tmp_path, there)
    for step in (1, 2, 3):
        folder = mine.place.files / ".paceline/state" / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(str(step))
    look(mine, final=True)
    (mine.place.files / ".paceline/state/step-1/manifest.json").unlink()
    look(mine, final=True)
    assert list(files(there)) == [f".paceline/state/step-{step}/manifest.json" for step in (2, 3)]


def test_a_directory_that_vanished_deletes_nothing(tmp_path, there):
    mine = sync(tmp_path, there, delete=True)
    (mine.place.files / "step-1.pt").write_text("x")
    look(mine, final=True)
    mine.place.files.rename(tmp_path / "unmounted")
    look(mine)
    assert files(there) == {"step-1.pt": "x"}


def test_a_name_belongs_to_the_host_that_came_first(tmp_path, there):
    ledger = OwnershipLedger()
    hosts = {
        name: sync(tmp_path, there, name, shared=True, claim=lambda digests, name=name: ledger.claim(name, digests))
        for name in ("algo-1", "algo-2")
    }
    for name, host in hosts.items():
        (host.place.files / "last.pt").write_text(f"of {name}")
        (host.place.files / "same.pt").write_text("same")
        (host.place.files / f"{name}.pt").write_text("own")
        look(host, final=True)
    assert files(there) == {"algo-1.pt": "own", "algo-2.pt": "own", "last.pt": "of algo-1", "same.pt": "same"}
    assert ledger.clashes() == {"last.pt": ("algo-1", ["algo-2"])}


def test_hosts_that_write_the_same_one_after_the_other_do_not_clash():
    ledger = OwnershipLedger()
    ledger.claim("algo-1", {"last.pt": "step 1"})
    assert ledger.claim("algo-2", {"last.pt": "step 1"}).same == {"last.pt"}
    # algo-2 has written step 2 already, algo-1 writes it a moment later.
    assert ledger.claim("algo-2", {"last.pt": "step 2"}).taken == {"last.pt": "algo-1"}
    ledger.claim("algo-1", {"last.pt": "step 2"})
    assert ledger.clashes() == {}
