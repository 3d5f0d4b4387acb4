"""Ray: a cluster that is there, or one that starts with the job on this machine; one actor keeps one agent on each host.

Ray's own jobs and its Train library are not used: the agents supervise, record and diagnose as they do everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.job_file import job_document
from paceline.launch.engines.base import Capabilities, Engine, Request
from paceline.launch.engines.detached import DetachedEngine
from paceline.launch.engines.ray.options import RayOptions, read_options
from paceline.launch.engines.submission import Submission, host_file

# Filled in on the cluster once the hosts are placed, as the port is, which a plan leaves out.
FIRST_ADDRESS = "<address of actor 0>"


def engine(environ: Mapping[str, str], options: Mapping[str, str]) -> Engine:
    """Ray with the options of this job.

    Raises:  UsageError U03: an option that it does not have, or a value that it cannot take
    """
    return RayEngine(environ, read_options(options, environ.get("RAY_ADDRESS")))


@dataclass(frozen=True, slots=True)
class RayEngine(DetachedEngine):
    """The job lasts as long as the keeper, which is the Ray driver, and the cluster."""

    environ: Mapping[str, str]
    """Variables of the process that submits, which the job's keeper gets too."""
    options: RayOptions
    """Which cluster, and what each host of the job takes of it."""

    @property
    def name(self) -> str:
        """As --engine has it."""
        return "ray"

    @property
    def capabilities(self) -> Capabilities:
        """All hosts or none; a lost host is retried; the recording is brought here while the job runs."""
        return Capabilities(
            gang=True,
            requeues=True,
            warning_seconds=None,
            shared_files=False,
            outlives_submitter=False,
            live_recording=True,
            extra="ray",
        )

    def plan(self, job: Submission) -> Request:
        """The placement group, and the job file of the agent that each of its bundles gets.

        Holds:   as many bundles as hosts, and no value of the environment in the document
        Raises:  UsageError E22: ranks are counted by GPUs, and none are asked for
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
            # Code travels as an argument: a worker without a runtime environment of its own is there already.
            "runtime_env": {},
            "retries": job.retries,
        }
        return Request(engine=self.name, job=job, document=document)

    def hold(self, request: Request, run_dir: Path, environ: Mapping[str, str]) -> int:
        """Place the agents and stay until the job has ended; again, as another run, while a host was lost and retries are left.

        Raises:  UsageError E01 Ray is not installed; E20, E24, E25 the cluster cannot be joined; E21 it can never hold the job;
                 E23 versions differ; HostLost E26: a host was lost and no retry is left
        """
        from paceline.launch.engines.ray.job import hold

        return hold(self.options, request.job, run_dir, environ)


def _no_gpus_asked(job: Submission) -> UsageError:
    return UsageError(
        "E22",
        f"--nproc-per-node {job.ranks_per_host} needs to know how many GPUs a host takes of the cluster",
        saw="no --option gpus_per_host, and Ray hides the GPUs that nobody asked for",
        next="paceline submit --engine ray --option gpus_per_host=8 ...",
    )
