"""Follows the agents of one attempt: their ends, the coordinator's output and recording, and whether their hosts are still there.

The agents themselves report within seconds that an agent is lost. Ray may take minutes, so this module does not wait for Ray.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import HostLost
from paceline.job_file import job_document
from paceline.parts.engines.ray.placement import Asked, PlacedHost, host_lost
from paceline.parts.engines.submission import Submission, host_file
from paceline.recording.mirror import apply
from paceline.terminal_text import write_line

MIRROR_SECONDS = 1.0
# An actor answers every second. An actor that is silent for this time counts as lost, whatever Ray reports.
SILENT_SECONDS = 15.0
# After the loss of a host, the coordinator has this time to notice the loss and to report how the job ended.
LOSS_GRACE_SECONDS = 12.0
# After a second signal, the agents have this time to end.
KILL_SECONDS = 10.0
_SLICE_SECONDS = 0.25


class JobFollower:
    """Follows one attempt. Requests to the actors are always open: each answer is handled, and the request is sent again."""

    def __init__(self, ray: Any, hosts: Sequence[PlacedHost], run_id: str, directory: Path, asked: Asked) -> None:
        self._ray = ray
        self._hosts = hosts
        self._run_id = run_id
        self._directory = directory
        self._asked = asked
        self._told = 0
        self._open: dict[Any, tuple[Callable[[PlacedHost, Any], None], PlacedHost]] = {}
        self._codes: dict[int, int] = {}
        self._heard: dict[int, float] = {}
        self._lost: dict[int, str] = {}
        self._since: float | None = None
        self._output_ended = False
        self._known: dict[int, Mapping[str, Any]] = {}
        self._mirrored = 0.0
        self._mirroring: set[int] = set()
        self._unwritten = ""

    def start(self, job: Submission, environment: Mapping[str, str]) -> None:
        """Start every agent.

        Raises:  HostLost E17: a host is lost
        """
        first = self._hosts[0]
        started = [
            host.actor.start.remote(job_document(host_file(job, host.rank, first.node, first.port)), environment)
            for host in self._hosts
        ]
        for host, one in zip(self._hosts, started, strict=True):
            try:
                self._ray.get(one, timeout=SILENT_SECONDS)
            except self._ray.exceptions.RayError as error:
                raise host_lost(host.node, type(error).__name__) from error
            self._heard[host.rank] = time.monotonic()
            self._ask(host, "ended", self._on_ended)
        self._ask(first, "output", self._on_output)

    def to_the_end(self) -> int:
        """Wait for the end of the job and for its recording. Returns the job's exit code.

        Raises:  HostLost E17: a host is lost, and no agent was left to report it
        """
        while True:
            self._mirror()
            self._take(_SLICE_SECONDS)
            self._pass_on()
            self._miss()
            code = self._judge()
            if code is not None:
                return code

    def _ask(self, host: PlacedHost, method: str, then: Callable[[PlacedHost, Any], None], *argv: Any) -> None:
        self._open[getattr(host.actor, method).remote(*argv)] = (then, host)

    def _take(self, seconds: float) -> None:
        done, _ = self._ray.wait(list(self._open), num_returns=1, timeout=seconds) if self._open else ((), ())
        for answer in done:
            then, host = self._open.pop(answer)
            try:
                value = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:
                # The actor is alive, but the request failed.
                self._say_once(f"{host.node}: {error.cause}")
                self._mirroring.discard(host.rank)
                continue
            except self._ray.exceptions.RayError as error:
                self._lose(host, f"Ray: {type(error).__name__}")
                continue
            self._heard[host.rank] = time.monotonic()
            then(host, value)

    def _on_ended(self, host: PlacedHost, code: int | None) -> None:
        if code is None:
            self._ask(host, "ended", self._on_ended)
            return
        self._codes[host.rank] = code
        if host.rank and code and self._since is None:
            self._since = time.monotonic()
            self._ask(host, "last_words", lambda _, text: _write(2, text))

    def _on_output(self, host: PlacedHost, pieces: tuple[bytes, bytes] | None) -> None:
        if pieces is None:
            self._output_ended = True
            return
        _write(1, pieces[0])
        _write(2, pieces[1])
        self._ask(host, "output", self._on_output)

    def _mirror(self) -> None:
        """Ask the first host for the changes in its recording, once a second, with one open request at a time."""
        now = time.monotonic()
        if now - self._mirrored >= MIRROR_SECONDS and 0 not in self._mirroring and 0 not in self._lost:
            self._mirrored = now
            self._ask_changes(self._hosts[0])

    def _ask_changes(self, host: PlacedHost) -> None:
        self._mirroring.add(host.rank)
        self._ask(host, "changes", self._on_changes, self._run_id, self._known.get(host.rank, {}))

    def _on_changes(self, host: PlacedHost, answer: tuple[bytes, Mapping[str, Any]]) -> None:
        piece, known = answer
        self._mirroring.discard(host.rank)
        try:
            apply(self._directory, piece)
        except (OSError, ValueError) as error:
            self._say_once(f"the recording cannot be brought to {self._directory}: {error}")
            return
        more = known != self._known.get(host.rank, {})
        self._known[host.rank] = known
        # A round is bounded, so the next round may have more changes. After the end all changes are fetched.
        if more and host.rank in self._codes:
            self._ask_changes(host)

    def _pass_on(self) -> None:
        """Send the first signal to the coordinator, which tells the others, or to all agents if it has ended. Send the second to all."""
        while self._told < min(len(self._asked), 2):
            self._told += 1
            if self._told == 2:
                self._since = time.monotonic() - LOSS_GRACE_SECONDS + KILL_SECONDS
            left = [host for host in self._hosts if host.rank not in self._codes and host.rank not in self._lost]
            for host in left[:1] if self._told == 1 and left and left[0].rank == 0 else left:
                self._ask(host, "stop", lambda _, nothing: None, self._told == 2)

    def _miss(self) -> None:
        now = time.monotonic()
        for host in self._hosts:
            if host.rank not in self._codes and host.rank not in self._lost:
                silent = now - self._heard[host.rank]
                if silent > SILENT_SECONDS:
                    self._lose(host, f"its actor has not answered for {silent:.0f} s")

    def _lose(self, host: PlacedHost, why: str) -> None:
        self._mirroring.discard(host.rank)
        if host.rank not in self._lost and host.rank not in self._codes:
            self._lost[host.rank] = why
            self._since = self._since or time.monotonic()

    def _judge(self) -> int | None:
        if 0 in self._codes:
            self._bring_the_rest()
            return self._codes[0]
        if 0 in self._lost or self._orphaned():
            raise host_lost(self._hosts[0].node, self._lost.get(0, "the other agents say so: the first one is gone"))
        if self._since is None or time.monotonic() - self._since < LOSS_GRACE_SECONDS:
            return None
        if self._lost:
            rank, why = next(iter(self._lost.items()))
            raise host_lost(self._hosts[rank].node, why)
        if len(self._asked) > 1:
            return 128 + self._asked[0]
        # An agent refused the job, and the coordinator still waits for that agent.
        return next(code for rank, code in sorted(self._codes.items()) if code)

    def _orphaned(self) -> bool:
        """Whether another agent has lost the coordinator, and the coordinator's actor is silent as well."""
        silent = time.monotonic() - self._heard[0] > SILENT_SECONDS / 4
        return silent and any(code == HostLost.exit_code for code in self._codes.values())

    def _bring_the_rest(self) -> None:
        """Fetch the coordinator's last output, the end of its recording, and the parts that only the other hosts have."""
        deadline = time.monotonic() + SILENT_SECONDS
        present = [host for host in self._hosts if host.rank not in self._lost]
        while len(self._codes) < len(present) and time.monotonic() < deadline - SILENT_SECONDS / 2:
            self._take(_SLICE_SECONDS)
            self._miss()
            present = [host for host in self._hosts if host.rank not in self._lost]
        while self._mirroring and time.monotonic() < deadline:
            self._take(_SLICE_SECONDS)
        for host in present:
            self._codes.setdefault(host.rank, HostLost.exit_code)
            self._ask_changes(host)
        while (self._mirroring or not self._output_ended) and time.monotonic() < deadline:
            self._take(_SLICE_SECONDS)

    def _say_once(self, text: str) -> None:
        if text != self._unwritten:
            self._unwritten = text
            write_line(f"paceline  {text}")


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
