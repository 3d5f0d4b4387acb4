"""S3 through boto3, against an S3 server in this process: it answers as fsspec's own file system in memory does."""

import socket
import threading
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("boto3", reason="pip install 'paceline[s3]'")
server_of = pytest.importorskip("moto.server", reason="pip install 'moto[server]'")

from botocore.exceptions import BotoCoreError, ClientError  # noqa: E402
from fsspec.callbacks import Callback  # noqa: E402
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

from paceline.storage.s3 import S3FileSystem  # noqa: E402

SMALLEST_PART = 5 << 20
names = st.lists(st.sampled_from(["a", "b", "a-1", "deep", "ü b", "#c"]), min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def store():
    """An S3 server's file system with the empty bucket `bucket`."""
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "dummy-secret-of-a-test")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        store = S3FileSystem({"endpoint_url": f"http://{host}:{port}", "region_name": "us-east-1"})
        store.client.create_bucket(Bucket="bucket")
        yield store
        store.client.close()
    server.stop()


@pytest.fixture
def bucket(store):
    for path in store.find("bucket"):
        store.rm_file(path)
    return store


class Count(Callback):
    """Sums up what it is told."""

    total = 0

    def relative_update(self, inc=1):
        self.total += inc


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.sets(names, min_size=1, max_size=5), begin=st.sampled_from(["", "a", "deep"]), asked=names)
def test_it_answers_as_every_file_system_of_fsspec_does(store, keys, begin, asked):
    # In memory a name is a file or a directory; in S3 it may be both.
    keys = {key for key in keys if not any(other.startswith(f"{key}/") for other in keys)}
    memory = MemoryFileSystem()
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    memory.mkdir("/bucket")
    for path in store.find("bucket"):
        store.rm_file(path)
    for key in keys:
        memory.makedirs(f"/bucket/{key}".rpartition("/")[0], exist_ok=True)
        for each in (memory, store):
            each.pipe_file(f"bucket/{key}", key.encode())

    def plain(call):
        try:
            found = call()
        except FileNotFoundError:
            return "missing"
        if isinstance(found, dict) and "name" in found:
            found = [found]
        if isinstance(found, dict):
            found = list(found.values())
        if isinstance(found, list):
            return sorted((one["name"].strip("/"), one["type"], one["size"]) for one in found)
        return found

    for path in ("bucket", f"bucket/{asked}", f"bucket/{asked}/".rstrip("/"), f"bucket/{asked}/no"):
        for call in (
            lambda each, path=path: each.ls(path, detail=True),
            lambda each, path=path: each.info(path),
            lambda each, path=path: each.exists(path),
            lambda each, path=path: each.isfile(path),
            lambda each, path=path: each.cat_file(path) if each.isfile(path) else None,
        ):
            assert plain(lambda call=call: call(store)) == plain(lambda call=call: call(memory)), path
    below = sorted(name for name in keys if name.startswith(begin))
    assert sorted(store.find("bucket", detail=True, prefix=begin)) == [f"bucket/{name}" for name in below]
    assert sorted(store.find("bucket/deep")) == [f"bucket/{name}" for name in sorted(keys) if name.startswith("deep/")]


def test_more_objects_than_one_answer_holds_are_all_found(bucket):
    for number in range(1003):
        bucket.client.put_object(Bucket="bucket", Key=f"many/{number:04}", Body=b"")
    assert len(bucket.find("bucket/many")) == len(bucket.ls("bucket/many")) == 1003
    bucket.rm("bucket/many", recursive=True)
    assert bucket.find("bucket") == []


@pytest.mark.parametrize("size", [0, 1, SMALLEST_PART - 1, SMALLEST_PART, SMALLEST_PART + 1, 2 * SMALLEST_PART])
def test_what_is_written_block_by_block_is_read_as_it_was(bucket, size):
    content = bytes(range(251)) * (size // 251) + bytes(size % 251)
    with bucket.open("bucket/shard", "wb", block_size=SMALLEST_PART) as file:
        for start in range(0, size, 1 << 20):
            file.write(content[start : start + (1 << 20)])
        assert not bucket.exists("bucket/shard")
    assert bucket.cat_file("bucket/shard") == content
    with bucket.open("bucket/shard", "rb", block_size=SMALLEST_PART) as file:
        assert b"".join(iter(lambda: file.read(3 << 20), b"")) == content
    if size > 1:
        assert bucket.cat_file("bucket/shard", 1, 4) == content[1:4]


@pytest.mark.parametrize("size", [1, 2 * SMALLEST_PART + 1])
def test_what_is_discarded_leaves_nothing(bucket, size):
    file = bucket.open("bucket/half", "wb", block_size=SMALLEST_PART)
    file.write(bytes(size))
    file.discard()
    file.close()
    assert not bucket.exists("bucket/half")
    assert not bucket.client.list_multipart_uploads(Bucket="bucket").get("Uploads")


@pytest.mark.parametrize("size", [0, 7, 20 << 20])
def test_a_file_goes_there_and_back_and_every_byte_is_counted_once(bucket, tmp_path, size):
    there, back, sent, fetched = tmp_path / "there", tmp_path / "back", Count(), Count()
    there.write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
    bucket.put_file(str(there), "bucket/file", callback=sent)
    bucket.get_file("bucket/file", str(back), callback=fetched)
    assert back.read_bytes() == there.read_bytes()
    assert (sent.total, fetched.total) == (size, size)


@pytest.mark.parametrize(
    "call",
    [
        lambda store, file: store.info("no-such-bucket"),
        lambda store, file: store.info("no-such-bucket/key"),
        lambda store, file: store.ls("no-such-bucket"),
        lambda store, file: store.ls("bucket/missing"),
        lambda store, file: store.find("no-such-bucket/x"),
        lambda store, file: store.cat_file("bucket/missing"),
        lambda store, file: store.get_file("bucket/missing", str(file)),
        lambda store, file: store.put_file(__file__, "no-such-bucket/x"),
        lambda store, file: store.pipe_file("no-such-bucket/x", b""),
        lambda store, file: store.open("bucket/missing", "rb"),
    ],
)
def test_what_is_missing_is_a_missing_file(bucket, tmp_path, call):
    with pytest.raises(FileNotFoundError):
        call(bucket, tmp_path / "file")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", PermissionError),
        (403, "InvalidAccessKeyId", ClientError),
        (404, "NoSuchKey", FileNotFoundError),
        (400, "InvalidRequest", ClientError),
    ],
)
def test_what_a_server_refuses_has_the_kind_of_a_file_system(bucket, status, code, kind):
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    head = f"HTTP/1.1 {status} no\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with answering(head.encode() + body) as at, pytest.raises(kind):
        S3FileSystem({**bucket.client_options, "endpoint_url": at}).cat_file("bucket/key")


def test_a_store_that_nobody_serves_is_neither_there_nor_missing(bucket):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    gone = S3FileSystem({**bucket.client_options, "endpoint_url": f"http://127.0.0.1:{port}"})
    with pytest.raises(BotoCoreError):
        gone.exists("bucket/key")


def test_a_content_that_breaks_off_is_asked_for_again(bucket):
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabc"
    with answering(half, half, half + b"def") as at:
        assert S3FileSystem({**bucket.client_options, "endpoint_url": at}).cat_file("bucket/key") == b"abcdef"


class answering:
    """A server that gives these answers, one for each connection, and then none."""

    def __init__(self, *answers):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, args=(answers,))

    def _serve(self, answers):
        for answer in answers:
            connection, _ = self._listener.accept()
            with closing(connection):
                while b"\r\n\r\n" not in connection.recv(1 << 16):
                    pass
                connection.sendall(answer)

    def __enter__(self):
        self._thread.start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *ignored):
        self._thread.join()
        self._listener.close()
