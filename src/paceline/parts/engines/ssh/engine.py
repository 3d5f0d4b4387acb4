"""Runs a job on hosts over SSH. The user's own ssh starts one agent on each host, and a process of ours holds the agents' lifelines.

The options of `--option KEY=VALUE` are in parts/engines/ssh/options.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paceline.errors import UsageError
from paceline.parts.engines.base import Engine, Request, known_options
from paceline.parts.engines.detached import DetachedEngine
from paceline.parts.engines.host_check import StartedHost
from paceline.parts.engines.ssh.agent_command import agent_command, agent_job
from paceline.parts.engines.ssh.options import AGENTS_PORT, OPTIONS, Settings, read_settings, ssh_argv
from paceline.parts.engines.ssh.remote import CODE
from paceline.parts.engines.submission import Submission


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The engine for the hosts of the options.

    Raises:  UsageError U03: an unknown option; U05: invalid hosts, or an invalid value
    """
    known_options("ssh", options, OPTIONS)
    return SshEngine(environ=environ, settings=read_settings(options))


@dataclass(frozen=True, slots=True, kw_only=True)
class SshEngine(DetachedEngine):
    """The engine for a list of hosts. The job outlives the terminal, but not the submitting machine."""

    requeues: ClassVar[bool] = True
    """Spare hosts replace lost hosts while retries are left."""
    environ: Mapping[str, str]
    """Environment variables of the submitting process. The job's keeper gets them too."""
    settings: Settings
    """The hosts, and how ssh reaches them."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""
        return "ssh"

    def plan(self, job: Submission) -> Request:
        """For each host: the arguments of ssh, the remote command, and the agent's input on stdin.

        The Python, the first host's address and the port come from the options. An inspection of the hosts may replace their defaults.

        Raises:  UsageError U05: the number of hosts is not the job's
        """
        settings = self.settings
        if job.hosts != len(settings.hosts):
            raise UsageError(
                "U05",
                f"the job has {job.hosts} host{'s' if job.hosts > 1 else ''}, and {len(settings.hosts)} are named",
                saw=f"hosts={','.join(settings.hosts)}",
                next="leave --nnodes out",
            )
        first = settings.first_address or settings.hosts[0].rpartition("@")[2]
        port = settings.agents_port or AGENTS_PORT
        directory = f"{settings.workdir.rstrip('/')}/{job.run_id}/{CODE}"
        command = agent_command(directory, settings.python or "python3")
        hosts = [
            {
                "host": host,
                "argv": [*ssh_argv(settings, host), command],
                "job": agent_job(job, node_rank, first, port),
            }
            for node_rank, host in enumerate(settings.hosts)
        ]
        return Request(engine=self.name, job=job, document={"hosts": hosts, "spares": list(settings.spares)})

    def start_on_hosts(
        self, job: Submission, wait_seconds: float
    ) -> AbstractAsyncContextManager[Sequence[StartedHost]]:
        """The hosts of the options, each over a connection of its own. There is nothing to wait for."""
        from paceline.parts.engines.ssh.hosts import started_over_ssh

        return started_over_ssh(self.settings, self.environ)

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Inspect the hosts, ship the code, run the agents, and copy the recording to this machine.

        Raises:  UsageError E01, E10, E11, U22: refused before any process was started; HostLost E17: a host was lost
        """
        from paceline.parts.engines.ssh.job import hold_job

        return hold_job(request, self.settings, run_dir, environ)
