"""What lies behind a URL, on fsspec's file system in memory and on this machine's."""

import json
import uuid

import pytest

from paceline.errors import UsageError
from paceline.storage.listing import beginning_with, check, check_writable, listing, listing_or_nothing, parse_manifest

pytest.importorskip("fsspec")


@pytest.fixture
def store():
    """A prefix in memory of this test's own, and a function that puts files below it."""
    import fsspec

    prefix = f"memory://{uuid.uuid4().hex}"
    opened, path = fsspec.core.url_to_fs(prefix)

    def put(**files):
        for name, content in files.items():
            opened.pipe_file(f"{path}/{name.replace('__', '/')}", content)
        return prefix

    return put


def keys(found):
    return [item.key for item in found.items]


def test_a_prefix_is_all_that_lies_below_it_sorted_by_bytes(store):
    prefix = store(**{"data__b": b"1", "data__a__c": b"22", "data__Z": b"", "data__ü": b"", "data-2__x": b""})
    found = listing(f"{prefix}/data", "d")
    assert keys(found) == ["Z", "a/c", "b", "ü"]
    assert [item.size_bytes for item in found.items] == [0, 2, 1, 0]


def test_a_url_of_one_file_is_that_file(store):
    assert keys(listing(f"{store(data__train=b'1')}/data/train", "d")) == ["train"]


def test_nothing_below_a_prefix_is_an_error_or_a_beginning(store):
    prefix = store(other=b"")
    with pytest.raises(UsageError) as refused:
        listing(f"{prefix}/data", "channel 'train' could not be fetched")
    assert refused.value.code == "E51" and "channel 'train' could not be fetched" in refused.value.what
    assert keys(listing_or_nothing(f"{prefix}/data", "d")) == []


def test_check_asks_and_finds(store):
    prefix = store(data__a=b"")
    check(f"{prefix}/data", "d")
    check(f"{prefix}/data/a", "d")
    with pytest.raises(UsageError, match="not there"):
        check(f"{prefix}/none", "d")


def test_a_manifest_names_the_files(store):
    prefix = store(data__a=b"1", data__b=b"2", data__c__d=b"3")
    store_too = [{"prefix": f"{prefix}/data/"}, "c/d", "a", "a"]
    import fsspec

    fsspec.core.url_to_fs(prefix)[0].pipe_file(f"{prefix}/manifest", json.dumps(store_too).encode())
    assert keys(listing(f"{prefix}/manifest", "d", "ManifestFile")) == ["a", "c/d"]


def test_a_file_that_a_manifest_names_and_that_is_not_there_is_named(store):
    prefix = store(data__a=b"1")
    import fsspec

    content = json.dumps([{"prefix": f"{prefix}/data/"}, "missing"]).encode()
    fsspec.core.url_to_fs(prefix)[0].pipe_file(f"{prefix}/manifest", content)
    with pytest.raises(UsageError) as refused:
        listing(f"{prefix}/manifest", "d", "ManifestFile")
    assert refused.value.code == "E51" and refused.value.what.endswith("/data/missing: not there")


@pytest.mark.parametrize(
    ("content", "saw"),
    [
        ("{", "not JSON"),
        ("{}", "its first element"),
        ("[]", "its first element"),
        ('["a"]', "its first element"),
        ('[{"prefix": "s3://b/"}]', "it names no file"),
        ('[{"prefix": "s3://b/"}, {"a": 1}]', "no name of a file"),
        ("\xff", "not JSON"),
    ],
)
def test_a_manifest_that_is_none_is_refused(content, saw):
    with pytest.raises(UsageError) as refused:
        parse_manifest(content.encode("latin-1"), "s3://bucket/manifest")
    assert refused.value.code == "U06" and saw in refused.value.saw


def test_a_manifest_cannot_lead_out_of_the_directory(store):
    prefix = store(secret=b"1", data__a=b"1")
    import fsspec

    content = json.dumps([{"prefix": f"{prefix}/data/"}, "../secret"]).encode()
    fsspec.core.url_to_fs(prefix)[0].pipe_file(f"{prefix}/manifest", content)
    with pytest.raises(UsageError) as refused:
        listing(f"{prefix}/manifest", "d", "ManifestFile")
    assert refused.value.code in ("E51", "U06")


def test_an_augmented_manifest_is_refused_with_the_reason():
    with pytest.raises(UsageError) as refused:
        listing("s3://bucket/manifest", "d", "AugmentedManifestFile")
    assert refused.value.code == "U06" and "pipe" in refused.value.saw


@pytest.mark.parametrize(
    ("begin", "found"),
    [
        ("data/run-1", ["run-10/x", "x", "y/z"]),
        ("data/run-1/", ["x", "y/z"]),
        ("data/run-1/x", ["x"]),
        ("data/ru", ["run-1/x", "run-1/y/z", "run-10/x", "run-2"]),
        ("data/no", []),
        ("", ["data/run-1/x", "data/run-1/y/z", "data/run-10/x", "data/run-2"]),
    ],
)
def test_a_prefix_of_sagemaker_is_the_beginning_of_an_address(store, begin, found):
    prefix = store(**{"data__run-1__x": b"", "data__run-1__y__z": b"", "data__run-10__x": b"", "data__run-2": b""})
    assert keys(beginning_with(f"{prefix}/{begin}", "d")) == found


def test_a_directory_that_cannot_be_written_is_refused_before_the_job(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("/proc/x", str(tmp_path / "file" / "below")):
        with pytest.raises(UsageError) as refused:
            check_writable(f"file://{place}/", "what the job leaves cannot be sent")
        assert refused.value.code in ("E51", "E52", "E53") and place in refused.value.what
    check_writable(f"file://{tmp_path}/new/place/", "what the job leaves cannot be sent")
    assert list((tmp_path / "new" / "place").iterdir()) == []
