"""Which texts are URLs, what may be shown of them, and what is said where nothing reaches them."""

import pytest

from paceline.errors import UsageError
from paceline.storage.urls import as_prefix, below, file_system, is_url, safe_key, shown, shown_argv, use_s3_at


@pytest.mark.parametrize("text", ["s3://bucket/key", "file:///data", "memory://x", "s3a://b", "git+ssh://host/x"])
def test_what_has_a_scheme_is_a_url(text):
    assert is_url(text)


@pytest.mark.parametrize("text", ["/data", "data:old", "C:/data", "", "a:b//c"])
def test_a_path_with_colons_is_none(text):
    assert not is_url(text)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("sftp://me:secret@host/data", "sftp://host/data"),
        ("https://me@host/data?X-Amz-Signature=secret&a=b", "https://host/data"),
        ("cannot open https://u:p@host/x?sig=1 and s3://b/k", "cannot open https://host/x and s3://b/k"),
        ("train=abfs://key:p%40ss@account/box", "train=abfs://account/box"),
        ("sftp://me:a@b@host/data", "sftp://host/data"),
        ("sftp://me:p/w@host/data", "sftp://host/data"),
        ("sftp://me:p/w@x/y@host/data and s3://b/k@v", "sftp://host/data and s3://b/k@v"),
        ("https://host/data#token=secret", "https://host/data"),
        ("https://host/data#a?token=secret", "https://host/data"),
        ("s3://bucket/part#1/file@2", "s3://bucket/part#1/file@2"),
        ("s3://bucket/part#1?versionId=secret", "s3://bucket/part#1"),
        ("no URL at all: user@host", "no URL at all: user@host"),
    ],
)
def test_users_passwords_and_signatures_are_not_shown(text, seen):
    assert shown(text) == seen and shown(seen) == seen


def test_the_words_of_a_command_line_are_kept_without_them():
    assert shown_argv(["--output", "s3://key:secret@bucket/x"]) == ("--output", "s3://bucket/x")


def test_a_prefix_ends_in_one_slash_so_that_ten_is_not_one():
    assert as_prefix("s3://bucket/run-1") == as_prefix("s3://bucket/run-1//") == "s3://bucket/run-1/"
    assert below("s3://bucket/run-1", "output", "/model.tar.gz") == "s3://bucket/run-1/output/model.tar.gz"


def test_a_scheme_that_nothing_reaches_is_said_with_what_to_do():
    with pytest.raises(UsageError) as refused:
        file_system("gopher://me:secret@host/x")
    assert refused.value.code == "E50" and "gopher://host/x" in refused.value.what
    assert "secret" not in refused.value.what + refused.value.saw


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "./a", "a/", "a\0b", "x" * 256])
def test_a_key_that_is_no_file_name_has_its_reason(key):
    assert safe_key(key)


@pytest.mark.parametrize("key", ["a", "a/b.txt", ".hidden", "a b/ü", "..a", "x" * 255])
def test_other_keys_have_none(key):
    assert safe_key(key) is None


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:5000", ""])
def test_a_process_can_be_told_where_s3_is(endpoint, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("s3fs")
    monkeypatch.setattr(fsspec.config, "conf", {})
    use_s3_at(endpoint, "eu-west-1")
    store, path = file_system("s3://bucket/key")
    assert path == "bucket/key"
    assert (store.endpoint_url, store.client_kwargs) == (endpoint or None, {"region_name": "eu-west-1"})
