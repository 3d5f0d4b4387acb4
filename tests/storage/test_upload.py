"""One archive of the files of several hosts: nothing overwritten, nothing half there."""

import tarfile

import pytest

from paceline.errors import UsageError
from paceline.storage.download import Progress
from paceline.storage.files import has_files
from paceline.storage.upload import HostArchive, pack, pack_files, send

pytest.importorskip("fsspec")


def directory(path, **files):
    for name, text in files.items():
        target = path / name.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return path


def contents(archive):
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read().decode() for member in tar}


def test_a_directory_becomes_an_archive_without_its_own_name(tmp_path):
    packed = pack(directory(tmp_path / "model", a="1", deep__b="22"), tmp_path / "model.tar.gz")
    assert contents(tmp_path / "model.tar.gz") == {"a": "1", "deep/b": "22"}
    assert (packed.file_count, packed.size_bytes, packed.clashes) == (2, 3, {})


def test_equal_names_of_other_hosts_lie_below_their_host_and_equal_content_once(tmp_path):
    parts = []
    for host, text in (("algo-2", "two"), ("algo-3", "three")):
        archive = tmp_path / f"{host}.tar.gz"
        pack(directory(tmp_path / host, model=text, same="same", **{host: "own"}), archive)
        parts.append(HostArchive(host=host, archive=archive))
    packed = pack(directory(tmp_path / "first", model="one", same="same"), tmp_path / "all.tar.gz", parts)
    assert contents(tmp_path / "all.tar.gz") == {
        "model": "one", "same": "same", "algo-2": "own", "algo-2/model": "two", "algo-3": "own", "algo-3/model": "three",
    }  # fmt: skip
    assert packed.clashes == {"model": ["algo-2", "algo-3"]}


def test_a_link_to_a_file_is_its_content_and_owners_are_not_told(tmp_path):
    model = directory(tmp_path / "model", real="weights")
    (model / "latest").symlink_to("real")
    pack(model, tmp_path / "model.tar.gz")
    assert contents(tmp_path / "model.tar.gz") == {"latest": "weights", "real": "weights"}
    with tarfile.open(tmp_path / "model.tar.gz") as tar:
        assert {(member.uid, member.uname) for member in tar} == {(0, "")}


def test_directories_alone_are_nothing(tmp_path):
    (tmp_path / "model" / "empty").mkdir(parents=True)
    assert not has_files(tmp_path / "model") and not has_files(tmp_path / "none")


def test_it_arrives_whole_and_under_its_name_only(tmp_path):
    local = tmp_path / "model.tar.gz"
    local.write_text("content")
    send(local, f"file://{tmp_path}/out/r-1/model.tar.gz", "d", Progress(lambda progress: None))
    assert [path.name for path in (tmp_path / "out" / "r-1").iterdir()] == ["model.tar.gz"]


def test_what_could_not_be_sent_is_kept_and_named(tmp_path):
    local = tmp_path / "model.tar.gz"
    local.write_text("content")
    (tmp_path / "out").write_text("a file in the way")
    with pytest.raises(UsageError) as refused:
        send(
            local,
            f"file://{tmp_path}/out/r-1/model.tar.gz",
            "model.tar.gz could not be sent",
            Progress(lambda progress: None),
        )
    assert refused.value.what.startswith("model.tar.gz could not be sent") and local.exists()
    assert refused.value.saw.endswith(f"; the file is kept here: {local}")


def test_files_of_several_directories_become_one_archive(tmp_path):
    first, other = directory(tmp_path / "first", a="1"), directory(tmp_path / "other", a="2")
    (other / "latest").symlink_to("a")
    files = {"a": first / "a", "a.algo-2": other / "a", "latest": other / "latest"}
    pack_files(files, tmp_path / "all.tar.gz")
    assert contents(tmp_path / "all.tar.gz") == {"a": "1", "a.algo-2": "2", "latest": "2"}
