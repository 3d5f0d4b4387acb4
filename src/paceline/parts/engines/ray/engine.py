"""Runs a job on an existing Ray cluster, or on a cluster that starts with the job on this machine. One actor per host runs the agent.

Ray's own jobs and its Train library are not used: the agents supervise, record and diagnose as on every engine.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paceline.errors import UsageError
from paceline.job_file import job_document
from paceline.parts.engines.base import Engine, Request
from paceline.parts.engines.detached import DetachedEngine
from paceline.parts.engines.host_check import StartedHost, this_machine
from paceline.parts.engines.ray.options import EMBEDDED, RayOptions, read_options
from paceline.parts.engines.submission import Submission, host_file

# The address is filled in on the cluster when the hosts are placed. So is the port, which a plan leaves out.
FIRST_ADDRESS = "<address of actor 0>"


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """The Ray engine with the options of this job.

    Raises:  UsageError U03: an unknown option, or an invalid value
    """
    return RayEngine(environ, read_options(options, environ.get("RAY_ADDRESS")))


@dataclass(frozen=True, slots=True)
class RayEngine(DetachedEngine):
    """The engine of a Ray cluster. A job lasts as long as its keeper, which is the Ray driver, and as the cluster."""

    requeues: ClassVar[bool] = True
    """The job is retried after a lost host."""
    environ: Mapping[str, str]
    """Environment variables of the submitting process. The job's keeper gets them too."""
    options: RayOptions
    """The cluster, and the resources that each host of the job takes."""

    @property
    def name(self) -> str:
        """The engine's name, as in --engine."""
        return "ray"

    def plan(self, job: Submission) -> Request:
        """The placement group, and the job file of each bundle's agent.

        Holds:   one bundle for each host, and no value of the environment in the document
        Raises:  UsageError E33: ranks are counted by GPUs, and the options ask for no GPUs
        """
        options = self.options
        if job.ranks_per_host in ("gpu", "auto") and not options.bundle.get("GPU"):
            raise _no_gpus_asked(job)
        document = {
            "address": options.address,
            "placement_group": {
                "strategy": options.strategy_for(job.hosts),
                "bundles": [dict(options.bundle) for _ in range(job.hosts)],
            },
            "actors": [
                {"bundle": rank, "job": job_document(host_file(job, rank, FIRST_ADDRESS))} for rank in range(job.hosts)
            ],
            "environment": sorted(job.environment),
            # The code is sent as an argument: without a runtime environment Ray can use a worker process that runs already.
            "runtime_env": {},
            "retries": job.retries,
        }
        return Request(engine=self.name, job=job, document=document)

    def start_on_hosts(
        self, job: Submission, wait_seconds: float
    ) -> AbstractAsyncContextManager[Sequence[StartedHost]]:
        """The nodes of the cluster in which Ray places the job's hosts. A cluster that starts with the job is this machine.

        Raises:  Unknown: the nodes are in use; UsageError E01, E10, E11, E33: the cluster cannot be joined, or can never hold the job
        """
        if self.options.address == EMBEDDED:
            return this_machine(os.uname().nodename, "")
        from paceline.parts.engines.ray.hosts import started_on_nodes

        return started_on_nodes(self.options, job.hosts, self.environ, wait_seconds)

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Place the agents and wait until the job has ended. If a host was lost and retries are left, start again as another run.

        Raises:  UsageError E01 Ray is not installed; E10 the cluster cannot be joined; E33 it can never hold the job;
                 E11 versions differ; HostLost E17: a host was lost and no retry is left
        """
        from paceline.parts.engines.ray.job import hold

        return hold(self.options, request.job, run_dir, environ)


def _no_gpus_asked(job: Submission) -> UsageError:
    return UsageError(
        "E33",
        f"--nproc-per-node {job.ranks_per_host} needs to know how many GPUs a host takes of the cluster",
        saw="no --option gpus_per_host, and Ray hides the GPUs that nobody asked for",
        next="paceline submit --engine ray --option gpus_per_host=8 ...",
    )
