"""Runs the user's script, unchanged, under the trace."""

import os
import runpy
import sys
import traceback
from typing import Any, NoReturn

from paceline.parts.plan.trace.session import TraceSession
from paceline.parts.plan.trace.user_frame import of_traceback

# What torchrun gives to the first rank of its only host. Frameworks that find no run id of it go on to look for MPI and Slurm.
_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_RANK": "0",
    "ROLE_NAME": "default",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "False",
}


_OURS = os.path.dirname(os.path.abspath(__file__))
# In a message of an exception: the stand-in, not the script, is at fault.
_SIGNS = (
    "FakeTensor",
    "fake tensor",
    "not linked with support for cuda",
    "not compiled with CUDA",
    "Cannot access accelerator",
)


def environment(world_size: int) -> None:
    """The variables of rank 0, as a launcher would set them; trackers of experiments are told to stay silent."""
    os.environ.update(_RANK)
    os.environ["WORLD_SIZE"] = os.environ["ROLE_WORLD_SIZE"] = str(world_size)
    os.environ.setdefault("WANDB_MODE", "disabled")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def run(session: TraceSession, target: str, arguments: list[str], *, is_module: bool) -> NoReturn:
    """Execute the script as `python` would; it never returns.

    Raises:  nothing: every outcome of the script ends in the session's own JSON (P03, P05, P06 with the user's line)
    """
    sys.argv = [target, *arguments]
    try:
        if is_module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(target)))
            runpy.run_path(target, run_name="__main__")
    except SystemExit as leaving:
        _ended(session, leaving.code)
    except BaseException as error:
        failed(session, error)
    _ended(session, 0)


def failed(session: TraceSession, error: BaseException) -> NoReturn:
    """Report the error, and whether the script or the trace caused it."""
    traceback.print_exception(error)
    place = of_traceback(error.__traceback__)
    what = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    code = "P06" if _of_the_trace(error) else "P03"
    session.fail(code, what[:300], place=place, saw=_chain(error))


def _of_the_trace(error: BaseException) -> bool:
    """Whether torch failed only because the tensors have no data."""
    seen: Any = error
    while seen is not None:
        if type(seen).__module__.startswith("torch._subclasses") or any(sign in str(seen) for sign in _SIGNS):
            return True
        if type(getattr(seen, "obj", None)).__module__.startswith("paceline.parts.plan.trace"):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _chain(error: BaseException) -> str:
    outside = [entry for entry in traceback.extract_tb(error.__traceback__) if not entry.filename.startswith(_OURS)]
    last = outside[-1:]
    return "; ".join(f"raised in {entry.filename}:{entry.lineno}" for entry in last)


def _ended(session: TraceSession, status: Any) -> NoReturn:
    if session.facts.get("stepped"):
        session.finish()
    if status not in (None, 0):
        session.fail("P03", f"the script left with {status!s:.100} before its first optimizer step")
    session.finish()
