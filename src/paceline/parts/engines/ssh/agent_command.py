"""Makes the remote command that starts an agent, and the job file for the agent's stdin. Pure."""

import shlex
from dataclasses import replace
from typing import Any

from paceline.job_file import job_document
from paceline.parts.engines.ssh.options import in_home
from paceline.parts.engines.ssh.remote import RUNS
from paceline.parts.engines.submission import Submission, host_file


def agent_command(directory: str, python: str) -> str:
    """The command for a host's login shell. Every shell can read it."""
    return f"cd {in_home(directory)} && exec {shlex.quote(python)} -P -m paceline.launch.programs.engine_host"


def agent_job(job: Submission, node_rank: int, first_address: str, port: int) -> dict[str, Any]:
    """The job of one host. The recording is beside the code, independent of the directory on the submitting machine."""
    return job_document(replace(host_file(job, node_rank, first_address, port), run_dir=f"../{RUNS}"))
