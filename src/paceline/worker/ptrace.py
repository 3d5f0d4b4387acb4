"""Lets the agent, and what it starts, look at this process's stacks where the system allows that to parents only."""

import ctypes
import os

_PR_SET_PTRACER = 0x59616D61


def allow_agent() -> None:
    """Name the agent as the one who may trace this process (Yama, ptrace_scope 1); where there is no Yama nothing changes.

    Source:  prctl(2), PR_SET_PTRACER; the allowance covers what the agent starts
    """
    agent = os.environ.get("PACELINE_AGENT_PID", "")
    if agent.isdigit():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(agent)), 0, 0, 0)
