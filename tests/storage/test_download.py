"""From a URL into a directory: whole or not there, and never twice."""

import os
from dataclasses import replace

import pytest

from paceline.errors import UsageError
from paceline.storage import download
from paceline.storage.download import DownloadTarget, Progress, finished, install
from paceline.storage.listing import Listing, listing

pytest.importorskip("fsspec")


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    (directory / "deep").mkdir(parents=True)
    for name, text in {"a": "1", "b": "22", "deep/c": "333"}.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def place(tmp_path):
    return DownloadTarget(tmp_path / "files", tmp_path / "records")


class Counting:
    """A file system that counts, and fails for the keys it is told; fsspec's own otherwise."""

    def __init__(self, store, failing=(), error=None, short=()):
        self.store, self.failing, self.error, self.short, self.asked = store, failing, error, short, []

    def get_file(self, path, target, callback):
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if name in self.failing:
            with open(target, "wb") as file:
                file.write(b"half")
            raise self.error or ConnectionError("the line is cut")
        self.store.get_file(path, target, callback=callback)
        if name in self.short:
            os.truncate(target, 0)


def fetch(source, place, **faults):
    found = listing(f"file://{source}", "d")
    store = Counting(found.store, **faults)
    told = []
    progress = Progress(lambda progress: told.append(progress.done_bytes))
    install(
        Listing(store, found.items),
        place,
        f"file://{source}",
        "channel 'train' could not be fetched",
        progress,
        threads=1,
    )
    return store.asked, progress, found.items


def names(place):
    return sorted(path.relative_to(place.files).as_posix() for path in place.files.rglob("*") if path.is_file())


def test_all_is_there_and_marked(source, place):
    asked, progress, items = fetch(source, place)
    assert sorted(asked) == ["a", "b", "c"] and names(place) == ["a", "b", "deep/c"]
    assert (progress.done_bytes, progress.total_bytes, progress.done_files) == (6, 6, 3)
    assert finished(items, place) and not list(place.parts.iterdir())


def test_a_second_time_nothing_is_fetched(source, place):
    fetch(source, place)
    asked, progress, _ = fetch(source, place)
    assert asked == [] and progress.skipped_files == 3 and progress.done_bytes == 6


def test_half_a_file_has_no_name_and_what_is_complete_stays(source, place):
    with pytest.raises(UsageError) as broken:
        fetch(source, place, failing=("b",))
    # The others may come while the second fails, or after it has.
    assert broken.value.code == "E53" and " of 3 files are here, whole" in broken.value.saw
    assert "b" not in names(place) and not place.finished.exists()
    whole = names(place)
    asked, _, items = fetch(source, place)
    assert not set(whole) & set(asked) and finished(items, place)


def test_a_file_that_came_short_is_not_taken(source, place):
    with pytest.raises(UsageError) as broken:
        fetch(source, place, short=("a",))
    assert "a: 0 of 1 bytes came" in broken.value.saw and "a" not in names(place)


@pytest.mark.parametrize(
    ("error", "code"),
    [(FileNotFoundError("gone"), "E51"), (PermissionError("Forbidden"), "E52"), (OSError(28, "No space left"), "U22")],
)
def test_what_a_library_raises_has_its_code(source, place, error, code):
    with pytest.raises(UsageError) as told:
        fetch(source, place, failing=("a",), error=error)
    assert told.value.code == code


def test_what_changed_there_is_fetched_and_what_is_gone_there_goes(source, place):
    fetch(source, place)
    (source / "a").write_text("new")
    (source / "b").unlink()
    asked, _, _ = fetch(source, place)
    assert asked == ["a"] and names(place) == ["a", "deep/c"] and (place.files / "a").read_text() == "new"


def test_what_was_changed_here_is_fetched_again(source, place):
    fetch(source, place)
    (place.files / "a").write_text("spoilt")
    asked, _, _ = fetch(source, place)
    assert asked == ["a"] and (place.files / "a").read_text() == "1"


def test_a_cut_index_costs_only_what_its_last_line_said(source, place):
    fetch(source, place)
    place.index.write_bytes(place.index.read_bytes()[:-10])
    asked, _, items = fetch(source, place)
    assert len(asked) == 1 and finished(items, place)


def test_no_room_is_seen_before_the_first_byte(source, place):
    found = listing(f"file://{source}", "d")
    store = Counting(found.store)
    huge = tuple(replace(item, size_bytes=1 << 60) for item in found.items)
    with pytest.raises(UsageError) as refused:
        install(Listing(store, huge), place, "s3://bucket/data", "d", Progress(lambda progress: None))
    assert refused.value.code == "U22" and store.asked == []


def test_one_file_is_at_its_place_whole_or_not_at_all(source, tmp_path):
    download.fetch(f"file://{source}/deep/c", tmp_path / "new" / "c", "the code could not be fetched")
    assert [(path.name, path.read_text()) for path in (tmp_path / "new").iterdir()] == [("c", "333")]
    with pytest.raises(UsageError) as refused:
        download.fetch(f"file://{source}/no", tmp_path / "new" / "no", "the code could not be fetched")
    assert refused.value.code == "E51" and refused.value.what.startswith("the code could not be fetched: file://")
    assert not (tmp_path / "new" / "no").exists()
