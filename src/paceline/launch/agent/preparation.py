"""Prepares a host for its ranks: what the job requires is installed, its data fetched, and the contract's tree and variables made."""

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.contract import Prepared, prepare_host, requirements
from paceline.contract.tree import Tree
from paceline.facts import Job
from paceline.launch.agent.data import HostData
from paceline.launch.agent.host_attempt import HostIdentity
from paceline.launch.agent.opt_ml import show_at_opt_ml
from paceline.launch.job.messages import StartAttemptMessage


@dataclass(frozen=True, slots=True)
class HostPreparation:
    """What comes before the ranks of one host."""

    job: Job
    """The job as this host's command line describes it."""
    identity: HostIdentity
    """Names and settings of this host in the run."""
    data: HostData
    """This host's part in the job's data."""
    gpu_count: int | None
    """Number of GPUs of this host; None: not known."""
    event: Callable[..., None]
    """Records one event of this host."""

    async def prepare(self, message: StartAttemptMessage, lock_directory: Path) -> Prepared:
        """Prepare an attempt. `lock_directory`: of this user's agents on this machine, which install one after the other.

        Raises:  UsageError: what the job requires, its data or its hyperparameters cannot be had
        """
        job, identity = self.job, self.identity
        await asyncio.to_thread(self._install_requirements, lock_directory)
        fetched = await self.data.fetch(message)
        prepared = await asyncio.to_thread(
            prepare_host,
            job.contract,
            base=self.data.base,
            fetched=fetched,
            job_name=identity.job_name,
            hosts=tuple(p.host for p in sorted(message.placements, key=lambda p: p.node_rank)),
            current_host=identity.name,
            program=job.program,
            master_addr=message.master_addr,
            master_port=message.store_port,
            ranks_per_host=job.ranks_per_host,
            gpu_count=self.gpu_count or 0,
            network_interface=identity.network_interface,
            environ=identity.environ,
        )
        # Every host would report the same about the channels, so only the first host reports it.
        if message.attempt == 0 and message.placements[0].host == identity.name:
            for finding in prepared.findings:
                self.event("finding", **dataclasses.asdict(finding))
        if job.contract.shown_at_opt_ml and message.attempt == 0:
            self._show_at_opt_ml(prepared.tree)
        return prepared

    def _install_requirements(self, lock_directory: Path) -> None:
        wanted = requirements.wanted(self.job.contract, self.job.program)
        if wanted is None:
            return
        self.event("notice", text=f"installing {wanted}")
        requirements.install(
            wanted,
            python=self.identity.python,
            lock_directory=lock_directory,
            run_id=self.identity.run_id,
            environment=self.identity.marked_environ,
        )

    def _show_at_opt_ml(self, tree: Tree) -> None:
        # In the thread of the loop: the directory of the process is entered again, and no other thread may start a program meanwhile.
        refused = (
            show_at_opt_ml(tree) if self.identity.own_mounts else "this machine allows no mounts of its own to a host"
        )
        if refused is not None:
            text = f"/opt/ml is not the tree of {self.identity.name}: {refused}; read SM_CHANNEL_* and SM_MODEL_DIR"
            self.event("notice", text=text)
