"""Asks the agent of a run that lasts, over its UNIX socket: one JSON line there, one back. The agent's side is in launch."""

import errno
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

from paceline.errors import HostLost, UsageError
from paceline.facts import Run, Status
from paceline.recording.layout import RunDirectory
from paceline.recording.liveness import Machine, agent_gone, is_here, this_machine
from paceline.recording.owner import require_own

_ANSWER_SECONDS = 10.0
# The stacks of a few thousand ranks.
_MOST_ANSWER_BYTES = 1 << 26


def ask(run: Run, command: dict[str, Any], *, machine: Machine | None = None) -> dict[str, Any]:
    """The agent's answer to a command such as `{"command": "stop", "now": bool}`, `{"command": "look"}` or `{"command": "status"}`.

    Raises:  UsageError U25: the recording is another user's
             UsageError U19: the agent runs on another machine or as another user, or has no socket
             HostLost U19: the agent is gone, or does not answer
    """
    directory = Path(run.directory)
    require_own(directory, RunDirectory(directory).run_file, verb=f"paceline {_verb(command)} {run.directory}")
    machine = machine or this_machine()
    who = f"the agent of {run.id} (pid {run.agent_pid or 'unknown'} on {run.machine or run.first_host or 'an unknown host'})"
    gone = agent_gone(run, machine) or (run.reason if run.reason.startswith("agent gone") else None)
    if gone is not None and run.status not in (Status.COMPLETED, Status.STOPPED):
        raise HostLost("U19", f"{who} is gone", saw=gone.removeprefix("agent gone: "), next=f"paceline logs {run.id}")
    if run.control_socket is None:
        raise UsageError(
            "U19", f"{who} cannot be reached", saw="run.json names no control socket", next=_from_there(run, command)
        )
    if is_here(run, machine) is not True and not os.path.exists(run.control_socket):
        raise UsageError(
            "U19",
            f"{who} cannot be reached from {machine.hostname}",
            saw=f"its socket is on {run.machine or 'another machine'}: {run.control_socket}",
            next=_from_there(run, command),
        )
    try:
        return _exchange(run.control_socket, command)
    except PermissionError as error:
        raise UsageError(
            "U19",
            f"{who} belongs to another user",
            saw=f"{run.control_socket}: {error.strerror}",
            next=f"as the user who started it: paceline {_verb(command)} {run.id}",
        ) from error
    except (OSError, ValueError) as error:
        raise HostLost(
            "U19",
            f"{who} does not answer",
            saw=f"{run.control_socket}: {error}",
            next=f"kill -TERM {run.agent_pid}" if _verb(command) == "stop" else f"paceline why {run.id}",
        ) from error


def _from_there(run: Run, command: dict[str, Any]) -> str:
    """Refuses to signal an agent when the user only wants to look."""
    host = run.machine or run.first_host or "HOST"
    if _verb(command) == "stop":
        return f"ssh {host} kill -TERM {run.agent_pid or 'PID'}"
    return f"ssh {host} paceline {_verb(command)} {run.directory}"


def _verb(command: dict[str, Any]) -> str:
    """The verb that asks this."""
    return {"look": "stack", "status": "top"}.get(command["command"], "stop")


def _exchange(path: str, command: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(path)
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid():
            raise PermissionError(errno.EACCES, "another user listens there")
        connection.sendall(json.dumps(command).encode() + b"\n")
        received = bytearray()
        while not received.endswith(b"\n") and len(received) < _MOST_ANSWER_BYTES:
            part = connection.recv(1 << 18)
            if not part:
                break
            received += part
    answer = json.loads(bytes(received).partition(b"\n")[0])
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer
