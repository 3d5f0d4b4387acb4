"""Places where the engines' jobs are submitted: this machine, or servers and hosts of this process alone that stand in for a cluster."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ray_cluster import RayCluster
from s3_store import CREDENTIALS, S3Server, s3_is_here
from sagemaker_server import serving
from slurm_cluster import SlurmCluster
from slurm_cluster import missing as slurm_is_missing
from ssh_hosts import SshHosts, ssh_is_here

# Of SageMaker's request, beside the options of the engine.
ROLE = "arn:aws:iam::123456789012:role/train"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"
INSTANCE_TYPE = "ml.m5.xlarge"


@dataclass
class Site:
    """Two hosts of an engine. `start`: a command where jobs are submitted; `lose`: takes a host away, by its name and its agent's pid."""

    options: Mapping[str, str]
    start: Callable[..., "subprocess.Popen[bytes]"]
    lose: Callable[[str, int], None]
    environment: Mapping[str, str]


def missing(engine: str) -> str | None:
    """Why there can be no site of an engine here; None where there can."""
    if engine == "ray":
        return None if find_spec("ray") else "the extra [ray] is not installed"
    needs = {"ssh": ssh_is_here, "slurm": slurm_is_missing, "sagemaker": s3_is_here}
    return needs[engine]() if engine in needs else None


def site(engine: str, stack: ExitStack, directory: Path, environment: Mapping[str, str]) -> Site:
    """The site of an engine, until `stack` is closed; its files lie in `directory`."""
    return _SITES[engine](stack, directory, environment)


def _local(stack: ExitStack, directory: Path, environment: Mapping[str, str]) -> Site:
    return Site({}, subprocess.Popen, _kill_agent, environment)


def _ssh(stack: ExitStack, directory: Path, environment: Mapping[str, str]) -> Site:
    hosts = stack.enter_context(SshHosts(directory, 2))
    options = {"hosts": "algo-1,algo-2", "ssh_config": str(hosts.config)}
    return Site(options, hosts.submit, lambda host, pid: hosts.power_off(hosts.names.index(host)), environment)


def _ray(stack: ExitStack, directory: Path, environment: Mapping[str, str]) -> Site:
    cluster = stack.enter_context(RayCluster(2, environment))

    def start(argv, **options):
        return cluster.run_in(0, argv, **options)

    lose = lambda host, pid: cluster.power_off(cluster.hosts.names.index(host))  # noqa: E731
    return Site({"address": cluster.address}, start, lose, cluster.environment_of(0))


def _slurm(stack: ExitStack, directory: Path, environment: Mapping[str, str]) -> Site:
    cluster = stack.enter_context(SlurmCluster(directory, environment))
    return Site(
        {}, subprocess.Popen, lambda host, pid: cluster.power_off(cluster.hosts.names.index(host)), cluster.environ
    )


def _sagemaker(stack: ExitStack, directory: Path, environment: Mapping[str, str]) -> Site:
    directory.mkdir(parents=True)
    store = stack.enter_context(S3Server(directory))
    store.client.create_bucket(Bucket="jobs")
    s3 = f"http://127.0.0.1:{store.port}"
    with_credentials = {**environment, **CREDENTIALS}
    server = stack.enter_context(serving(directory, with_credentials, "--s3-endpoint", s3))
    options = {"bucket": "jobs", "region": "us-east-1", "endpoint_url": server.url, "s3_endpoint_url": s3}
    return Site(options, subprocess.Popen, _kill_agent, with_credentials)


_SITES = {"local": _local, "ssh": _ssh, "ray": _ray, "slurm": _slurm, "sagemaker": _sagemaker}
ENGINES = tuple(_SITES)


def _kill_agent(host: str, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
