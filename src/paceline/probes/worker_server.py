"""Asks torch's worker server inside a rank, through the rank's gate. It is C++ on a UNIX socket; a traceback alone needs the GIL.

A torch has a flight recorder for each kind of backend, and a question for each recorder; an empty recorder answers like a full one. The
entries of ProcessGroupNCCL's recorder are the only answer that needs the CUDA driver, which may never give it.
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.backend_names import FINISHED_ENTRIES, names_in

_MOST_BYTES = 1 << 24
_HEAD_END = b"\r\n\r\n"
# gloo, NCCL as torch has it since 2.15 (`nccl2`), and NCCL before and under the name nccl-legacy.
GLOO, NCCL2, NCCL = "gloo", "nccl2", "nccl"
_NAMES = ""
_OF_GLOO, _OF_NCCL, _OF_NCCL_ALONE = "fr_trace_json", "dump_nccl_trace_json", "dump_nccl_trace_pickle"
# Without entries the recorder asks no device, and takes no lock that a question to a device may hold.
_COUNTERS_OF_NCCL = f"{_OF_NCCL}?includecollectives=false"
# torch 2.4 has no other form. Its stacks would need the GIL, and seconds.
_PICKLE_OF_NCCL = f"{_OF_NCCL_ALONE}?includestacktraces=false"
# Only a torch with one recorder for each backend has this handler; an older one answers every `backend=` with gloo's recorder.
_MARK_OF_SEVERAL = "fr_dump_file"
# A backend as a script names it -> what the backend calls itself, if its recorder is asked by that name.
_ASKED_BY_NAME = {"nccl": NCCL2, NCCL2: NCCL2, "nccl-lazy": "nccl-lazy", "xccl": "xccl", "ucc": "ucc"}
# An answer takes milliseconds. Without one for this long, and with an answer to the counters, the device is what is waited for.
_SILENT_SECONDS = 3.0
# On a loaded machine, and with a full recorder. No other question waits for this one.
_ENTRIES_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RecorderAnswers:
    """What the flight recorders of one rank answered."""

    answers: tuple[tuple[str, bytes], ...] = ()
    """Name of a recorder -> its answer, JSON, or pickle on torch 2.4; the recorders that have seen nothing may be left out."""
    driver_answers: bool | None = None
    """Whether the CUDA driver answers NCCL's recorder for this process; False: for three seconds it has not, while what needs no driver
    was answered; None: not known, or NCCL's recorder is empty."""
    are_whole: bool = True
    """False: NCCL's recorder has entries, and has not given them out."""


class GateClosed(Exception):
    """The rank is leaving, or has no gate, so it gets no request."""


class Questions:
    """Sends requests to ranks, one request of a kind at a time for each rank.

    Some answers need the GIL, and the server's thread that waits for it is not released when the client leaves: after some thirty of
    them the server answers nothing any more. So a request without an answer in time stays open, and with it the
    gate (see worker/gate.py), until the answer arrives or the rank is gone; until then the same request has no answer.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[Path, str], float] = {}
        self._names: dict[Path, frozenset[str] | None] = {}
        self._turn = threading.Lock()

    def open_seconds(self, socket_path: Path, handler: str) -> float:
        """For how long this request has been without an answer; 0: there is none."""
        with self._turn:
            since = self._open.get((socket_path, handler))
        return 0.0 if since is None else time.monotonic() - since

    def handlers(self, socket_path: Path, timeout_seconds: float) -> frozenset[str] | None:
        """Names of what the server answers, asked once for each server; None: it does not say.

        Raises:  GateClosed: the rank is leaving
        """
        if socket_path not in self._names and (answer := self.ask(socket_path, _NAMES, timeout_seconds)) is not None:
            self._names[socket_path] = _names_in(answer)
        return self._names.get(socket_path)

    def ask(self, socket_path: Path, handler: str, timeout_seconds: float) -> bytes | None:
        """The body of the server's answer within `timeout_seconds`; None if it does not answer, or not with 200.

        A stopped process accepts the connection and never answers; a process without a server refuses it.

        Raises:  GateClosed: the rank is leaving
        """
        question = (socket_path, handler)
        with self._turn:
            if question in self._open:
                return None
            self._open[question] = time.monotonic()
        answer: Future[bytes | None] = Future()
        # A daemon thread, because it stays as long as the request is open.
        threading.Thread(
            target=self._carry_out, args=(question, timeout_seconds, answer), daemon=True, name="paceline-ask"
        ).start()
        try:
            return answer.result(timeout_seconds)
        except TimeoutError:
            return None

    def _carry_out(self, question: tuple[Path, str], timeout_seconds: float, answer: "Future[bytes | None]") -> None:
        socket_path, handler = question
        try:
            with _gate_held(socket_path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                _send(connection, socket_path, handler, timeout_seconds)
                # From here on the server works, and the gate stays open until it is done.
                connection.settimeout(None)
                answered = _receive(connection)
        except GateClosed as closed:
            self._settle(question)
            answer.set_exception(closed)
        except OSError:
            self._settle(question)
            answer.set_result(None)
        else:
            self._settle(question)
            answer.set_result(answered)

    def _settle(self, question: tuple[Path, str]) -> None:
        with self._turn:
            self._open.pop(question, None)


_QUESTIONS = Questions()
"""One for the whole life of this process: a question that a rank left open must be known at the next one."""


def ask(socket_path: Path, handler: str, timeout_seconds: float) -> bytes | None:
    """As `Questions.ask`, for this process's single set of requests.

    Raises:  GateClosed: the rank is leaving
    """
    return _QUESTIONS.ask(socket_path, handler, timeout_seconds)


def traces(
    socket_path: Path,
    timeout_seconds: float,
    *,
    backends: Collection[str] = (),
    finished: bool = False,
    questions: Questions = _QUESTIONS,
) -> RecorderAnswers | None:
    """Every flight recorder of one rank, for diagnosis.flight_recorder; works while a thread holds the GIL.

    The answer that needs a device, the entries of ProcessGroupNCCL, comes last, has a time limit of its own, and holds up nothing.
    `backends`: those that the rank has joined, as a script names them; (): not known. `finished`: the finished entries are wanted too,
    which some recorders give out only with the GIL. None: the server does not answer.

    Raises:  GateClosed: the rank is leaving
    """
    ends_at = time.monotonic() + timeout_seconds

    def asked(handler: str) -> bytes | None:
        left = ends_at - time.monotonic()
        return questions.ask(socket_path, handler, left) if left > 0 else None

    # A server that does not list them answers the questions that it does not know with 404.
    names = questions.handlers(socket_path, timeout_seconds) or frozenset({_OF_GLOO, _OF_NCCL, _OF_NCCL_ALONE})
    own_names = _own_names(backends)
    found = [(GLOO, asked(_OF_GLOO))] if _OF_GLOO in names else []
    if _MARK_OF_SEVERAL in names:
        found += [(name, asked(f"{_OF_GLOO}?backend={name}")) for name in own_names]
    counters = asked(_COUNTERS_OF_NCCL) if _OF_NCCL in names else None
    driver_answers, are_whole = None, True
    if counters is not None and not _is_empty(counters):
        entries = questions.ask(socket_path, _OF_NCCL, max(timeout_seconds, _ENTRIES_SECONDS))
        silent = entries is None and questions.open_seconds(socket_path, _OF_NCCL) >= _SILENT_SECONDS
        driver_answers = True if entries is not None else False if silent else None
        # The counters alone are no count: they are those of sends if a send came last.
        are_whole = entries is not None
        found.append((NCCL, entries))
    elif counters is None and _OF_NCCL_ALONE in names and not any(answer for _, answer in found):
        found.append((NCCL, asked(_PICKLE_OF_NCCL)))
    if finished and FINISHED_ENTRIES in names:
        # A rank that keeps the GIL leaves this question open, and holds up none of those above.
        every = {
            name: asked(f"{FINISHED_ENTRIES}?backend={name}") for name, answer in found if answer and name in own_names
        }
        found = [(name, every.get(name) or answer) for name, answer in found]
    answers = tuple((name, answer) for name, answer in found if answer is not None)
    return RecorderAnswers(answers, driver_answers, are_whole) if answers or counters is not None else None


def _own_names(backends: Collection[str]) -> list[str]:
    """Names by which recorders are asked for; of unknown backends only NCCL's."""
    given = [name for backend in backends or ("nccl",) for name in names_in(backend)]
    return list(dict.fromkeys(_ASKED_BY_NAME[name] for name in given if name in _ASKED_BY_NAME))


def _is_empty(counters: bytes) -> bool:
    """Whether the recorder has seen no group make a call."""
    try:
        document = json.loads(counters)
    except ValueError:
        return True
    return not (isinstance(document, dict) and document.get("pg_status"))


def _names_in(answer: bytes) -> frozenset[str] | None:
    try:
        names = json.loads(answer)
    except ValueError:
        return None
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else None


def parse_response(received: bytes) -> bytes | None:
    """The body of a complete HTTP response; None if it is incomplete or its status is not 200."""
    head, end, body = received.partition(_HEAD_END)
    if not end or head.split(b" ", 2)[1:2] != [b"200"]:
        return None
    length = _content_length(head)
    if length is None or len(body) < length:
        return None
    return body[:length]


@contextmanager
def _gate_held(socket_path: Path) -> Iterator[None]:
    """The rank's gate, held open.

    Raises:  GateClosed: it is closed for good, or not there
    """
    try:
        gate = os.open(socket_path.with_suffix(".gate"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise GateClosed(f"no gate: {error.strerror}") from None
    try:
        try:
            fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GateClosed("it is leaving") from None
        yield
    finally:
        os.close(gate)


def _send(connection: socket.socket, socket_path: Path, handler: str, timeout_seconds: float) -> None:
    connection.settimeout(timeout_seconds)
    connection.connect(str(socket_path))
    method = "POST" if handler else "GET"
    request = (
        f"{method} /handler/{handler} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    connection.sendall(request.encode())


def _receive(connection: socket.socket) -> bytes | None:
    """The body of the complete answer, or None if the connection ends before."""
    parts: list[bytes] = []
    wanted: int | None = None
    size = 0
    while size < _MOST_BYTES:
        part = connection.recv(1 << 18)
        parts.append(part)
        size += len(part)
        if wanted is None:
            received = b"".join(parts)
            head, end, _ = received.partition(_HEAD_END)
            length = _content_length(head) if end else None
            wanted = None if length is None else len(head) + len(_HEAD_END) + length
        if not part or (wanted is not None and size >= wanted):
            break
    return parse_response(b"".join(parts))


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None
