"""The remote program, which inspects a host and unpacks the code. It is sent over SSH as text to a Python that need not have paceline.

It answers each line of JSON on stdin with one line, except "stay", until stdin ends. It imports the standard library only.
"""

import errno
import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

# The start of each answer, because a login script may have printed text before.
MARK = b"paceline> "
ARCHIVES, CODE, RUNS = ".archives", "code", "runs"
KEPT_SECONDS = 7 * 24 * 3600.0
_ANY_FREE_PORT = 0
_PIECE_BYTES = 1 << 18
_SILENCE_SECONDS = 30
_ROUND_TRIPS = 9


def main(requests: IO[bytes], answers: IO[bytes]) -> int:
    """Answer requests until the input ends."""
    while line := _until_silence(requests.readline):
        asked = json.loads(line)
        if asked["do"] == "stay":
            continue
        answers.write(MARK + json.dumps(answer(asked, requests)).encode() + b"\n")
        answers.flush()
    return 0


def answer(asked: dict[str, Any], requests: IO[bytes] | None = None) -> dict[str, Any]:
    """The answer to one request. `requests`: the stream of requests, on which an archive may follow."""
    actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "look": look,
        "lay": lay,
        "clock": clock,
        "host": host,
        "listen": listen,
        "connect": connect,
    }
    try:
        if asked["do"] == "receive" and requests is not None:
            return receive(asked, requests)
        return actions[asked["do"]](asked)
    except OSError as error:
        return {"error": f"{error.filename or asked.get('workdir', asked['do'])}: {error.strerror}"}
    except (tarfile.TarError, EOFError) as error:
        return {"error": str(error)}


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """Facts of this host: versions, room on the disk, whether it has the code already, and whether it can resolve the first host's name."""
    jobs = Path(asked["workdir"]).expanduser()
    jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(jobs, time.time())
    digest = asked.get("digest")
    return {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "paceline": paceline_version(),
        "torch": torch_version(),
        "host_name": socket.gethostname(),
        "directory": str(jobs.resolve() / asked["run_id"]),
        "free_bytes": shutil.disk_usage(jobs).free,
        "has_code": digest is None or _archive(jobs, digest).exists(),
        "port": None if asked.get("port") is None else free_port(asked["port"]),
        "unresolved": why_unresolved(asked.get("first_address")),
    }


def clock(asked: dict[str, Any]) -> dict[str, Any]:
    """The time of this host's clock, in Unix ns."""
    return {"time_ns": time.time_ns()}


def host(asked: dict[str, Any]) -> dict[str, Any]:
    """The facts of this host for the checks of hosts, from the paceline that is installed here."""
    try:
        from paceline.probes.host_before import read_host
    except ImportError as error:
        return {"error": f"paceline here: {error}"}
    # Without a directory of the job's own, recordings go below the temporary directory of this host.
    return read_host(asked["name"], Path(asked["workdir"] or tempfile.gettempdir()).expanduser(), asked["ports"])


def listen(asked: dict[str, Any]) -> dict[str, Any]:
    """Listen on a free port as long as this program runs. Data that arrives there is counted and dropped."""
    if socket.has_dualstack_ipv6():
        listening = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
    else:
        listening = socket.create_server(("", 0), backlog=128)
    threading.Thread(target=_serve, args=(listening,), daemon=True).start()
    return {"port": listening.getsockname()[1]}


def connect(asked: dict[str, Any]) -> dict[str, Any]:
    """Connect to each target, and measure the median round-trip time of a byte, and a rate if the request asks for one."""
    return {"links": [_measured(target, asked["timeout_seconds"]) for target in asked["targets"]]}


def receive(asked: dict[str, Any], content: IO[bytes]) -> dict[str, Any]:
    """Receive the archive that follows on the same stream. It is read to its end, even if the disk refuses it."""
    archive = _archive(Path(asked["workdir"]).expanduser(), asked["digest"])
    draft = archive.with_name(f"{archive.name}.{socket.gethostname()}.{os.getpid()}.part")
    pieces = _pieces(content, asked["size"])
    try:
        archive.parent.mkdir(mode=0o700, exist_ok=True)
        with draft.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        draft.replace(archive)
    except (OSError, EOFError):
        for _ in pieces:
            continue
        draft.unlink(missing_ok=True)
        raise
    return {"received_bytes": asked["size"]}


def lay(asked: dict[str, Any]) -> dict[str, Any]:
    """Unpack the archive to the job's own code directory. If the archive's content does not match its name, remove the archive."""
    jobs = Path(asked["workdir"]).expanduser()
    code = jobs / asked["run_id"] / CODE
    if asked.get("digest") is None:
        code.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"digest": None}
    archive = _archive(jobs, asked["digest"])
    found = content_digest(archive)
    if found != asked["digest"]:
        archive.unlink()
        return {"digest": found}
    os.utime(archive)
    if not code.exists():
        draft = code.with_name(f"{CODE}.{socket.gethostname()}.{os.getpid()}.part")
        draft.mkdir(mode=0o700, parents=True)
        with tarfile.open(archive, "r:gz") as content:
            content.extractall(draft, filter="data") if hasattr(tarfile, "data_filter") else content.extractall(draft)
        try:
            draft.rename(code)
        except OSError as error:
            # Hosts that share this directory unpack the same files, so the second host has nothing to do.
            shutil.rmtree(draft, ignore_errors=True)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    return {"digest": found}


def content_digest(archive: Path) -> str:
    """The digest of an archive's content, computed as in parts/engines/package.py.

    Holds:   equal to Package.digest of the archive that was packed
    """
    digest = hashlib.sha256()
    with tarfile.open(archive, "r:gz") as content:
        for member in content:
            file = content.extractfile(member)
            head = f"{member.name}\0{member.mode}\0{member.size}\0".encode(errors="surrogateescape")
            digest.update(head + (file.read() if file is not None else b""))
    return digest.hexdigest()


def sweep(jobs: Path, now: float) -> None:
    """Remove job directories and code archives to which no process has written for a week."""
    for old in (*jobs.iterdir(), *_below(jobs / ARCHIVES)):
        if old.name != ARCHIVES and now - _last_written(old) > KEPT_SECONDS:
            shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)


def paceline_version() -> str | None:
    """The version of paceline that this Python would run; None: this Python has no paceline."""
    try:
        import paceline
    except ImportError:
        return None
    return getattr(paceline, "__version__", None)


def torch_version() -> str | None:
    """The version of torch from the installed metadata, because an import of torch takes seconds; None: torch is not installed."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def free_port(wanted: int) -> int:
    """The wanted port if no process listens on it, else another free port."""
    for port in (wanted, _ANY_FREE_PORT):
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind(("", port))
                return int(listening.getsockname()[1])
            except OSError:
                continue
    return wanted


def why_unresolved(name: str | None) -> str | None:
    """Why this host cannot resolve the first host's name; None: it can."""
    if name is None:
        return None
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _serve(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_echo, args=(connection,), daemon=True).start()


def _echo(connection: socket.socket) -> None:
    """Answer each byte 1 at once. After a byte 2, count the bytes that follow, and answer at their end."""
    with connection:
        connection.settimeout(_SILENCE_SECONDS)
        try:
            while kind := connection.recv(1):
                if kind == b"\2":
                    left = int.from_bytes(_exactly(connection, 8), "big")
                    while left:
                        left -= len(_exactly(connection, min(left, _PIECE_BYTES)))
                connection.sendall(kind)
        except (OSError, EOFError):
            return


def _exactly(connection: socket.socket, size: int) -> bytes:
    piece = b""
    while len(piece) < size:
        more = connection.recv(size - len(piece))
        if not more:
            raise EOFError
        piece += more
    return piece


def _measured(target: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    answer: dict[str, Any] = {"target": target["name"], "delay_seconds": None, "bytes_per_second": None, "error": ""}
    try:
        with _connected(target["addresses"], target["port"], timeout_seconds) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            delays = []
            for _ in range(_ROUND_TRIPS):
                began = time.monotonic()
                connection.sendall(b"\1")
                _exactly(connection, 1)
                delays.append(time.monotonic() - began)
            answer["delay_seconds"] = sorted(delays)[len(delays) // 2]
            if size := target.get("size_bytes"):
                began = time.monotonic()
                connection.sendall(b"\2" + size.to_bytes(8, "big") + bytes(size))
                _exactly(connection, 1)
                answer["bytes_per_second"] = size / (time.monotonic() - began)
    except (OSError, EOFError) as error:
        answer["error"] = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return answer


def _connected(addresses: list[str], port: int, timeout_seconds: float) -> socket.socket:
    """A connection to the first of the addresses that answers.

    Raises:  OSError: none of them answers; the error of the first address
    """
    errors: list[OSError] = []
    for address in addresses:
        try:
            return socket.create_connection((address, port), timeout_seconds)
        except OSError as error:
            errors.append(error)
    raise errors[0]


def _pieces(content: IO[bytes], size: int) -> Iterator[bytes]:
    while size:
        piece = _until_silence(functools.partial(content.read, min(size, _PIECE_BYTES)))
        if not piece:
            raise EOFError("the archive ended too early")
        size -= len(piece)
        yield piece


def _until_silence(read: Callable[[], bytes]) -> bytes:
    """The next input. A cut connection need not end, so after some time of silence SIGALRM ends this program."""
    signal.alarm(_SILENCE_SECONDS)
    try:
        return read()
    finally:
        signal.alarm(0)


def _archive(jobs: Path, digest: str) -> Path:
    return jobs / ARCHIVES / f"{digest}.tar.gz"


def _below(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _last_written(path: Path) -> float:
    """When a file below the path was last written: a running job writes its telemetry every second."""
    live = path.glob(f"{RUNS}/*/hosts/*/telemetry.jsonl") if path.is_dir() else ()
    newest = 0.0
    for file in (path, path / CODE, *live):
        try:
            newest = max(newest, file.stat().st_mtime)
        except OSError:
            continue
    return newest


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
