"""Which texts are URLs, what may be shown of them, and what is said where nothing reaches them."""

import sys

import pytest

from paceline.clone import install_command
from paceline.errors import UsageError
from paceline.storage import urls
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
    assert refused.value.code == "E01" and "gopher://host/x" in refused.value.what
    assert "secret" not in refused.value.what + refused.value.saw


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "./a", "a/", "a\0b", "x" * 256])
def test_a_key_that_is_no_file_name_has_its_reason(key):
    assert safe_key(key)


@pytest.mark.parametrize("key", ["a", "a/b.txt", ".hidden", "a b/ü", "..a", "x" * 255])
def test_other_keys_have_none(key):
    assert safe_key(key) is None


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [("http://127.0.0.1:5000", "http://127.0.0.1:5000"), ("", "https://s3.eu-west-1.amazonaws.com")],
)
@pytest.mark.parametrize("scheme", ["s3", "S3", "s3a"])
def test_a_process_can_be_told_where_s3_is(endpoint, asked, scheme, monkeypatch):
    pytest.importorskip("boto3", reason="pip install 'paceline[s3]'")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(urls, "_S3_CLIENT", {})
    use_s3_at(endpoint, "eu-west-1")
    store, path = file_system(f"{scheme}://bucket/key")
    assert path == "bucket/key"
    assert (store.client.meta.endpoint_url, store.client.meta.region_name) == (asked, "eu-west-1")


def test_without_boto3_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "paceline.storage.s3", raising=False)
    with pytest.raises(UsageError) as refused:
        file_system("s3://bucket/key")
    assert refused.value.code == "E01" and "boto3" in refused.value.saw
    assert refused.value.next == install_command("s3")
