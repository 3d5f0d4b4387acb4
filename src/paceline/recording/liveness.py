"""Whether the agent that a run.json names is still there. Signals nobody."""

import os
from dataclasses import dataclass

from paceline.facts import Run
from paceline.process_identity import boot_id, start_ticks


@dataclass(frozen=True, slots=True)
class Machine:
    """Identifies one running machine, and one pid namespace on it."""

    hostname: str
    """Its host name."""
    boot_id: str | None
    """The kernel's id of this boot."""
    pid_namespace: str | None
    """Id of the pid namespace."""


def this_machine() -> Machine:
    return Machine(os.uname().nodename, boot_id(), _pid_namespace())


def is_here(run: Run, machine: Machine) -> bool | None:
    """Whether the run's agent was started where this process can see its pid; None if that is not known."""
    if run.machine is None:
        return None
    if run.boot_id is None or machine.boot_id is None:
        return run.machine == machine.hostname or None
    if run.boot_id != machine.boot_id:
        return False
    return run.pid_namespace == machine.pid_namespace or None


def agent_gone(run: Run, machine: Machine | None = None) -> str | None:
    """Why the agent cannot be alive any more, as text; None if it is alive or cannot be read."""
    machine = machine or this_machine()
    if run.agent_pid is None:
        return None
    here = is_here(run, machine)
    if here is False and run.machine == machine.hostname:
        return f"{run.machine} was started again after pid {run.agent_pid} was"
    if not here:
        return None
    ticks = start_ticks(run.agent_pid)
    if ticks is None:
        return f"pid {run.agent_pid} on {run.machine} no longer exists"
    if run.agent_start_ticks is not None and ticks != run.agent_start_ticks:
        return f"pid {run.agent_pid} on {run.machine} is another process now"
    return None


def can_be_seen(run: Run, machine: Machine | None = None) -> bool:
    """Whether agent_gone() has anything to read."""
    machine = machine or this_machine()
    here = is_here(run, machine)
    return run.agent_pid is not None and (bool(here) or (here is False and run.machine == machine.hostname))


def _pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
