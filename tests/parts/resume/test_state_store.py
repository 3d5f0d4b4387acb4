"""Directories and URLs of saved steps: files appear whole, and what is not there is no error."""

import pytest

from paceline.parts.resume.state_store import state_store
from paceline.storage.urls import below_checkpoints


@pytest.fixture(params=["directory", "file", "memory"])
def store(request, tmp_path):
    if request.param != "directory":
        pytest.importorskip("fsspec")
    return state_store(
        {"directory": f"{tmp_path}/state", "file": f"file://{tmp_path}/state/", "memory": f"memory://{tmp_path}/state"}[
            request.param
        ]
    )


def test_what_was_written_is_listed_and_read_until_it_is_removed(store):
    assert store.folders() == [] and store.files("step-1") == [] and store.content("step-1/a") is None
    store.write("step-1/a", [b"one", b"", b"two"])
    store.write("ended.json", [b"{}"])
    assert store.folders() == ["step-1"] and store.files("step-1") == ["a"]
    assert b"".join(store.read("step-1/a")) == b"onetwo" and store.content("ended.json") == b"{}"
    store.write("step-1/a", [b"three"])
    assert store.content("step-1/a") == b"three"
    store.remove("step-1/a")
    store.write("step-2/b", [b"four"])
    store.remove("step-2")
    for missing in ("step-2", "step-2/b", "other"):
        store.remove(missing)
    assert store.content("step-1/a") is None and store.content("step-2/b") is None


def broken():
    yield b"begun"
    raise OSError("the source failed")


@pytest.mark.parametrize("store", ["directory", "file"], indirect=True)
def test_a_write_that_fails_leaves_the_file_that_was_there(store):
    store.write("step-1/a", [b"whole"])
    with pytest.raises(OSError, match="the source failed"):
        store.write("step-1/a", broken())
    assert store.content("step-1/a") == b"whole" and store.files("step-1") == ["a"]


def test_the_saved_steps_are_beside_the_checkpoints():
    assert below_checkpoints("s3://b/run/", "state") == "s3://b/run/.paceline/state"


@pytest.mark.parametrize(
    "name", ["../outside", "./outside", "step-1/..", "step-1/.", "step-1/", "", "a/b/c", "step-1/a\0"]
)
def test_no_name_leads_out_of_a_directory_of_states(tmp_path, name):
    store = state_store(f"{tmp_path}/state")
    store.write("step-1/a", [b"inside"])
    (tmp_path / "outside").write_bytes(b"whole")
    with pytest.raises(FileNotFoundError, match="no name of a saved file"):
        list(store.read(name))
    with pytest.raises(FileNotFoundError, match="no name of a saved file"):
        store.write(name, [b"lost"])
    with pytest.raises(FileNotFoundError, match="no name of a saved file"):
        store.remove(name)
    assert (tmp_path / "outside").read_bytes() == b"whole" and store.content("step-1/a") == b"inside"
