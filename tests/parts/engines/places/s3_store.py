"""An S3 server on loopback, and a door in front of it that counts what is asked, can hold it back, and can be shut."""

import http.client
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ports import free_port

HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "dummy-secret-of-a-test",
    "AWS_DEFAULT_REGION": "us-east-1",
    # A store that is gone is to be told within seconds.
    "AWS_MAX_ATTEMPTS": "2",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def s3_is_here() -> str | None:
    """Why there can be no S3 server here, None where there can."""
    missing = [name for name in ("moto", "flask", "boto3") if find_spec(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


@dataclass
class S3Server:
    """moto as a process of its own; `client` is boto3's, straight to it."""

    directory: Path
    port: int = 0
    process: subprocess.Popen | None = None
    client: Any = None

    def __enter__(self) -> "S3Server":
        import boto3

        self.port = free_port()
        with (self.directory / "moto.log").open("wb") as log:
            argv = ["-H", "127.0.0.1", "-p", str(self.port)]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", *argv], stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.directory / "moto.log").read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                break
            time.sleep(0.05)
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="nobody",
            aws_secret_access_key="dummy-secret-of-a-test",
            region_name="us-east-1",
        )
        return self

    def __exit__(self, *ignored: object) -> None:
        if self.client is not None:
            self.client.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def put(self, bucket: str, **objects: bytes) -> None:
        for key, body in objects.items():
            self.client.put_object(Bucket=bucket, Key=key.replace("__", "/"), Body=body)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]

    def get(self, bucket: str, key: str) -> bytes:
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()


@dataclass
class Door:
    """Hands requests on to a server. `hold_after`: so many files are given out (`hold_method` GET) or taken (PUT), the
    next ones wait until the door is closed."""

    target: int
    hold_after: int | None = None
    hold_method: str = "GET"
    requests: list[tuple[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0
    _given: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)
    server: ThreadingHTTPServer | None = None

    def __enter__(self) -> "Door":
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                door.hand_on(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *ignored: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        """From now on nobody answers: connections end, new ones are refused."""
        if not self._closed.is_set():
            self._closed.set()
            self.server.shutdown()
            self.server.server_close()

    def files(self, method: str = "GET") -> list[str]:
        """The files that were asked for, listings left out."""
        return [path for asked, path in self.requests if asked == method and "?" not in path and path.count("/") > 1]

    def hand_on(self, request: BaseHTTPRequestHandler) -> None:
        is_file = request.command == self.hold_method and "?" not in request.path and request.path.count("/") > 1
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.requests.append((request.command, request.path))
            self._given += is_file
            held = is_file and self.hold_after is not None and self._given > self.hold_after
        try:
            if held:
                self._closed.wait()
            if self._closed.is_set():
                request.close_connection = True
                request.connection.shutdown(socket.SHUT_RDWR)
                return
            self._answer(request)
        except OSError:
            request.close_connection = True
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        behind = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        behind.request(request.command, request.path, body=body, headers={**headers, "Content-Length": str(len(body))})
        answer = behind.getresponse()
        content = answer.read()
        request.send_response(answer.status)
        length = answer.headers.get("Content-Length") if request.command == "HEAD" else str(len(content))
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP | {"date", "server"}:
                request.send_header(name, value)
        request.send_header("Content-Length", length or "0")
        request.end_headers()
        request.wfile.write(content)
        behind.close()
