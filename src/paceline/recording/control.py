"""Asks the agent of a run that lasts, over its UNIX socket: one JSON line there, one back. The agent's side is in launch."""

import json
import socket
from pathlib import Path
from typing import Any

from paceline.errors import HostLost, UsageError
from paceline.facts import Run, Status
from paceline.recording.liveness import Machine, agent_gone, is_here, this_machine

_ANSWER_SECONDS = 10.0
_MOST_ANSWER_BYTES = 1 << 20


def ask(run: Run, command: dict[str, Any], *, machine: Machine | None = None) -> dict[str, Any]:
    """The agent's answer to `{"command": "stop", "now": bool}` or `{"command": "status"}`.

    Raises:  UsageError U18: the agent runs on another machine, or has no socket
             HostLost U19: the agent is gone, or does not answer
    """
    machine = machine or this_machine()
    who = f"the agent of {run.id} (pid {run.agent_pid or 'unknown'} on {run.machine or run.first_host or 'an unknown host'})"
    gone = agent_gone(run, machine) or (run.reason if run.reason.startswith("agent gone") else None)
    if gone is not None and run.status not in (Status.COMPLETED, Status.STOPPED):
        raise HostLost("U19", f"{who} is gone", saw=gone.removeprefix("agent gone: "), next=f"paceline logs {run.id}")
    if run.control_socket is None:
        raise UsageError(
            "U18", f"{who} cannot be reached", saw="run.json names no control socket", next=_from_there(run)
        )
    if is_here(run, machine) is not True and not Path(run.control_socket).exists():
        raise UsageError(
            "U18",
            f"{who} cannot be reached from {machine.hostname}",
            saw=f"its socket is on {run.machine or 'another machine'}: {run.control_socket}",
            next=_from_there(run),
        )
    try:
        return _exchange(run.control_socket, command)
    except (OSError, ValueError) as error:
        raise HostLost(
            "U19", f"{who} does not answer", saw=f"{run.control_socket}: {error}", next=f"kill -TERM {run.agent_pid}"
        ) from error


def _from_there(run: Run) -> str:
    host = run.machine or run.first_host
    return f"ssh {host or 'HOST'} kill -TERM {run.agent_pid or 'PID'}"


def _exchange(path: str, command: dict[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(path)
        connection.sendall(json.dumps(command).encode() + b"\n")
        received = b""
        while b"\n" not in received and len(received) < _MOST_ANSWER_BYTES:
            part = connection.recv(65536)
            if not part:
                break
            received += part
    answer = json.loads(received.partition(b"\n")[0])
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer
