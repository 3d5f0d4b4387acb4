"""One job as every engine is given it, and the arguments that start its agent on a host."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.facts import Channel, Program, ProgramKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The directory of a job's code as it is shipped.

    `archive`: a gzipped tar on the submitting machine; `digest`: SHA-256 of its content, the same for the same files. `commit`, `dirty`:
    git's commit and the paths that differ from it; None and () outside a work tree.
    """

    directory: str
    archive: str
    digest: str
    file_count: int
    size_bytes: int
    archive_bytes: int
    commit: str | None = None
    dirty: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job for an engine: `hosts` agents, each started by `paceline run`, and the directory of code they need.

    `program`: its script is relative to the package. `options`: further arguments of `paceline run`, but none of how hosts meet.
    `run_dir_mode`: of the recording's directory.
    `ranks_per_host`: as --nproc-per-node has it. `retries`: how often the engine starts the job anew after a lost host or a preemption,
    beside --max-restarts. `environment`: of every rank; may hold secrets, never shown. `engine_options`: what only this engine understands,
    from `--option KEY=VALUE`. `platform`: fields of CreateTrainingJob that only SageMaker understands.
    """

    run_id: str
    name: str
    program: Program
    package: Package | None = None
    options: tuple[str, ...] = ()
    run_dir_mode: int | None = None
    hosts: int = 1
    ranks_per_host: str = "1"
    environment: Mapping[str, str] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    profile: str = "v2"
    channels: tuple[Channel, ...] = ()
    output_url: str | None = None
    checkpoint_url: str | None = None
    max_run_seconds: float | None = None
    retries: int = 0
    engine_options: Mapping[str, str] = field(default_factory=dict)
    platform: Mapping[str, Any] = field(default_factory=dict)


def run_argv(job: Submission, *, data: bool = True) -> tuple[str, ...]:
    """The arguments of `paceline run` that are the same on every host, the script and its arguments last.

    `data` False leaves channels, outputs, checkpoints and hyperparameters to the platform that lays /opt/ml.
    """
    argv = ["--run-id", job.run_id, "--name", job.name, "--nproc-per-node", job.ranks_per_host, *job.options]
    if job.max_run_seconds is not None:
        argv += ["--max-run", f"{job.max_run_seconds:g}s"]
    if job.run_dir_mode is not None:
        argv += ["--run-dir-mode", f"{job.run_dir_mode:04o}"]
    if data:
        argv += _data_argv(job)
    return (*argv, *program_argv(job.program))


def rendezvous_argv(hosts: int, node_rank: str, first_address: str, port: int) -> tuple[str, ...]:
    """How an agent of several hosts finds the others; `node_rank` may be a variable that the engine's shell replaces."""
    if hosts == 1:
        return ()
    numbers = ("--nnodes", str(hosts), "--node-rank", node_rank)
    return (*numbers, "--master-addr", first_address, "--master-port", str(port))


def program_argv(program: Program) -> tuple[str, ...]:
    """The script, module or executable and its arguments, as `paceline run` reads them."""
    flag = {
        ProgramKind.MODULE: ("-m",),
        ProgramKind.EXECUTABLE: ("--no-python",),
        ProgramKind.RUN_PATH: ("--run-path",),
    }
    return (*flag.get(program.kind, ()), "--", program.target, *program.arguments)


def _data_argv(job: Submission) -> list[str]:
    argv = ["--hp-profile", job.profile] if job.hyperparameters else []
    argv += [word for key, value in job.hyperparameters.items() for word in ("--hp", f"{key}={json.dumps(value)}")]
    argv += [word for channel in job.channels for word in ("--channel", channel_argv(channel))]
    for option, url in (("--output", job.output_url), ("--checkpoints", job.checkpoint_url)):
        argv += [option, url] if url is not None else []
    return argv


def channel_argv(channel: Channel) -> str:
    """The channel as `--channel` reads it."""
    argv = [channel.distribution]
    argv += [channel.data_type] if channel.data_type != "S3Prefix" else []
    argv += [channel.input_mode] if channel.input_mode != "File" else []
    return ":".join((f"{channel.name}={channel.source}", *argv))
