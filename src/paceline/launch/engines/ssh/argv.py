"""What an agent is started with: the remote command, and the arguments of its `paceline run`. Pure."""

import shlex

from paceline.launch.engines.ssh.options import in_home
from paceline.launch.engines.ssh.remote import RUNS
from paceline.launch.engines.submission import Submission, rendezvous_argv, run_argv


def agent_command(directory: str, python: str) -> str:
    """What the login shell of a host is given; any shell reads it."""
    return f"cd {in_home(directory)} && exec {shlex.quote(python)} -P -m paceline.cli.programs.engine_host"


def agent_argv(job: Submission, node_rank: int, first_address: str, port: int) -> list[str]:
    """Behind `paceline run`, in the directory of the code; the recording goes beside that, whatever the submitting machine's is."""
    meeting = rendezvous_argv(job.hosts, str(node_rank), first_address, port)
    return ["--run-dir", f"../{RUNS}", *meeting, *run_argv(job)]
