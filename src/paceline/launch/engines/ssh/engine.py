"""Hosts over SSH: one agent on each, started by the user's own ssh, kept by a process of ours that holds their leashes.

Option KEY=VALUE -> what it means: see launch/engines/ssh/options.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.launch.engines.base import Capabilities, Engine, Request, known_options
from paceline.launch.engines.detached import DetachedEngine
from paceline.launch.engines.ssh.options import AGENTS_PORT, OPTIONS, Settings, read_settings, ssh_argv
from paceline.launch.engines.ssh.remote import CODE
from paceline.launch.engines.ssh.told import agent_command, agent_job
from paceline.launch.engines.submission import Submission


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The hosts that the options name.

    Raises:  UsageError U03: an option that there is not; E16: hosts or a value that cannot be
    """
    known_options("ssh", options, OPTIONS)
    return SshEngine(environ=environ, settings=read_settings(options))


@dataclass(frozen=True, slots=True, kw_only=True)
class SshEngine(DetachedEngine):
    """All hosts of a list; the job goes on without the terminal, not without the submitting machine."""

    environ: Mapping[str, str]
    """Variables of the process that submits, which the job's keeper gets too."""
    settings: Settings
    """The hosts, and how they are reached."""

    @property
    def name(self) -> str:
        """As --engine has it."""
        return "ssh"

    @property
    def capabilities(self) -> Capabilities:
        """All hosts or none, spare hosts for lost ones where retries are left, the recording here within a second."""
        return Capabilities(
            gang=True,
            requeues=True,
            warning_seconds=None,
            shared_files=False,
            outlives_submitter=False,
            live_recording=True,
        )

    def plan(self, job: Submission) -> Request:
        """Per host the arguments of ssh, the command it runs there, and what the agent is told on standard input.

        The Python, the first host's address and the port are those that are asked for; a look at the hosts may replace the defaults.

        Raises:  UsageError E16: another number of hosts than the job has
        """
        settings = self.settings
        if job.hosts != len(settings.hosts):
            raise UsageError(
                "E16",
                f"the job has {job.hosts} host{'s' if job.hosts > 1 else ''}, and {len(settings.hosts)} are named",
                saw=f"hosts={','.join(settings.hosts)}",
                next=f"paceline submit --engine ssh --hosts {','.join(settings.hosts)} ... without --nnodes",
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

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Look at the hosts, ship the code, run the agents, bring the recording here.

        Raises:  UsageError E10 to E15, E18: refused before anything was started; HostLost E17
        """
        from paceline.launch.engines.ssh.job import hold_job

        return hold_job(request, self.settings, run_dir, environ)
