"""A parameter server of TensorFlow on this host: a process beside the ranks, which SageMaker's toolkit starts as well.

Source:  aws/sagemaker-tensorflow-training-toolkit, training.py, `_run_ps`
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.agent.fork_server import OF_A_RANK
from paceline.launch.agent.process_end import ProcessEnd
from paceline.launch.tf_config import VARIABLE
from paceline.recording.plain_files import write_plain

PROGRAM = Path(__file__).resolve().parents[2] / "worker" / "parameter_server.py"
# On a GPU it would take the memory of the rank beside it. Its work is adding up.
_OWN = {"CUDA_VISIBLE_DEVICES": "-1", "PACELINE_OFF": "all"}
_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """A running parameter server."""

    process: subprocess.Popen[bytes]
    """The process, which leads a session."""
    log: Path
    """The file with what it prints."""

    async def ended(self) -> str:
        """Wait until it has ended. Returns how, for people, with the last line that it has printed."""
        over = asyncio.Event()
        end = ProcessEnd(self.process.pid, over.set)
        try:
            await over.wait()
        finally:
            end.close()
        code = self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        lines = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return how + (f": {last}" if last and code > 0 else "")


def start_parameter_server(
    python: str, environment: Mapping[str, str], directory: str | None, config: str, log: Path
) -> ParameterServer:
    """Start a parameter server. `environment`: that of a rank; `config`: its TF_CONFIG; `log`: the file for its output.

    Raises:  OSError: the interpreter cannot be executed, or the file cannot be written
    """
    of_host = {name: value for name, value in environment.items() if name not in OF_A_RANK}
    with os.fdopen(write_plain(log, os.O_WRONLY | os.O_APPEND), "ab") as out:
        process = subprocess.Popen(
            [python, "-u", str(PROGRAM)],
            env={**of_host, **_OWN, VARIABLE: config},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return ParameterServer(process, log)
