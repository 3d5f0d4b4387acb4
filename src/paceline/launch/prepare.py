"""Makes this host's job from a job file. It fills in what only the host knows, and refuses a job that this host cannot run."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline.contract.channels import check_channel, is_fetched
from paceline.contract.tree import OPT_ML, read_job
from paceline.errors import UsageError
from paceline.facts import Job
from paceline.job_file import HostSetup, JobFile
from paceline.launch.job.messages import MOST_RANKS_PER_HOST
from paceline.launch.program import require_program
from paceline.launch.token import token_for
from paceline.part import no_job_has, refuse_wrong
from paceline.probes.gpus import count_visible
from paceline.probes.ports import is_loopback
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import is_run_id, new_run_id, runs_root
from paceline.spelling import nearest
from paceline.storage.urls import as_prefix, is_url, misspelt_url

DEFAULT_AGENTS_PORT = 29500
_DEFAULT_SHUTDOWN_SECONDS = "30"
_CHOICES = {
    "on_hang": ("report", "stop", "restart", "resume"),
    "numa_binding": (None, "node", "socket", "exclusive", "core-complex"),
}
_NOT_NEGATIVE = ("max_restarts", "stop_grace_seconds", "shutdown_timeout_seconds", "monitor_interval_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """The settings around a job on this host."""

    command: tuple[str, ...]
    """The command line for the recording."""
    environ: Mapping[str, str]
    """Environment variables of the agent."""
    runs_root: Path
    """The directory of recordings."""
    run_id: str | None = None
    """Id of the run; None: the agent makes one."""
    run_dir_mode: int | None = None
    """Mode of the recording's directory; None: only its owner may read it."""
    plan: dict[str, Any] | None = None
    """What `paceline plan --json` said of the job; None: there is no plan."""
    token: bytes | None = None
    """The secret with which hosts prove that they belong to the job; None: there is none."""
    token_source: str = ""
    """Where the token comes from, for people."""
    token_file: Path | None = None
    """The user's own token file, of which other hosts need a copy; None: the token was given, or there is none."""
    gpu_count: int | None = None
    """Number of GPUs of this host; None: not known."""
    cpus_by_local_rank: tuple[frozenset[int], ...] | None = None
    """The CPUs to which each local rank is bound; None: ranks are not bound."""
    setup: HostSetup = field(default_factory=HostSetup)
    """What the program that started this agent knows about the host."""


def prepare(file: JobFile, environ: Mapping[str, str], *, starts_hosts: bool = False) -> tuple[Job, LaunchConfig]:
    """The job as this host runs it, and its settings here. The call starts and writes nothing.

    `starts_hosts`: this process starts the agents of all hosts and is not an agent itself.

    Raises:  UsageError U02 program, U06 channel, U11 too few GPUs, U12 token, U27 a value of the file, E01, E51 to E53 a URL, U03 a run id
        that is taken, or an instrument that there is not
    """
    _require_instruments(environ.get("PACELINE_OFF", ""))
    gpu_count, gpu_reason = count_visible(environ)
    job = as_delivered(on_this_host(file, environ, gpu_count, gpu_reason=gpu_reason))
    by_hand = not starts_hosts and job.host_name is None and job.agents_port is not None and job.max_hosts > 1
    token = token_for(
        file.token_file,
        environ,
        no_token=file.no_token,
        needed=by_hand,
        must_be_had=by_hand and not is_loopback(job.master_addr),
    )
    config = LaunchConfig(
        command=file.command,
        environ=dict(environ),
        runs_root=Path(file.run_dir) if file.run_dir else runs_root(environ=environ),
        run_id=file.run_id,
        token=token.secret,
        token_source=token.source,
        token_file=token.own_file,
        run_dir_mode=file.run_dir_mode,
        plan=file.plan,
        gpu_count=gpu_count,
        cpus_by_local_rank=_cpus(job, environ),
        setup=file.setup,
    )
    if job.is_first and file.run_id and (taken := RunDirectory(config.runs_root / file.run_id).run_file).exists():
        raise UsageError(
            "U03",
            f"--set run_id={file.run_id}: a run has this id already",
            saw=str(taken),
            next=f"--set run_id={new_run_id()}",
        )
    return job, config


def _require_instruments(off: str) -> None:
    """Check the names that PACELINE_OFF turns off.

    Raises:  UsageError U03: there is no instrument of that name
    """
    if not off:
        return
    # Their files say them: what watches inside a rank is not imported here.
    folders = ("worker/instruments", "parts/*/instruments")
    files = (file for folder in folders for file in Path(__file__).parents[1].glob(f"{folder}/[a-z]*.py"))
    known = {file.stem for file in files} | {"all", "resume"}
    for word in off.lower().replace(" ", "").split(","):
        if word and word not in known:
            raise UsageError(
                "U03",
                f"PACELINE_OFF={off}: there is no instrument {word!r}",
                saw=f"instruments: {', '.join(sorted(known))}",
                next=f"export PACELINE_OFF={near}" if (near := nearest(word, known)) else "unset PACELINE_OFF",
            )


def on_this_host(file: JobFile, environ: Mapping[str, str], gpu_count: int | None, *, gpu_reason: str = "") -> Job:
    """The job of the file, with its number of ranks and this host's variables.

    `gpu_count` None: the number is unknown, for `gpu_reason`. The call reads the file system to check that the program and the channels
    exist.

    Raises:  UsageError U02 program, U06 channel, U11 too few GPUs, U27 an invalid value, E01, E51 to E53 a URL
    """
    check_values(file)
    check_data(file, environ)
    require_program(file.job, environ)
    job, contract, console = file.job, file.job.contract, file.job.console
    if job.numa_binding and not gpu_count:
        raise UsageError(
            "U11",
            f"--numa-binding {job.numa_binding}: no GPU is visible on this host to bind near to",
            saw=gpu_reason or "NVML and CUDA_VISIBLE_DEVICES leave 0 GPUs",
            next="leave --numa-binding out",
        )
    prefix = environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
    base_dir = contract.base_dir or (None if contract.opt_ml else _base_dir_of_the_user(environ))
    return replace(
        job,
        ranks_per_host=_ranks_per_host(file.ranks_per_host, gpu_count, gpu_reason),
        shutdown_timeout_seconds=_shutdown_seconds(file.shutdown_timeout_seconds, environ),
        output_url=_prefix(job.output_url),
        checkpoint_url=_prefix(job.checkpoint_url),
        contract=replace(contract, base_dir=base_dir),
        console=replace(console, line_prefix_template=console.line_prefix_template or prefix),
    )


def check_values(file: JobFile) -> None:
    """Refuse invalid values. A command line has refused them before, but a file that was written by hand was not checked yet.

    Raises:  UsageError U27; what a part raises
    """
    job = file.job
    wrong: tuple[tuple[bool, str, object], ...] = (
        (not 1 <= job.min_hosts <= job.max_hosts, "min_hosts", job.min_hosts),
        (job.node_rank is not None and not 0 <= job.node_rank < job.max_hosts, "node_rank", job.node_rank),
        (job.max_hosts > 1 and job.agents_port is None, "agents_port", job.agents_port),
        *((not 0 <= (port or 0) < 65536, "port", port) for port in (job.agents_port, job.store_port)),
        *((getattr(job, name) < 0, name, getattr(job, name)) for name in _NOT_NEGATIVE),
        *((getattr(job, name) not in known, name, getattr(job, name)) for name, known in _CHOICES.items()),
        (job.max_run_seconds is not None and job.max_run_seconds <= 0, "max_run_seconds", job.max_run_seconds),
        (job.total_steps is not None and job.total_steps < 1, "total_steps", job.total_steps),
        (job.contract.profile not in ("v2", "v3"), "contract.profile", job.contract.profile),
        (file.run_id is not None and not is_run_id(file.run_id), "run_id", file.run_id),
        (job.on_hang == "resume" and not job.resume, "on_hang without resume:", job.on_hang),
        (not _is_private(file.run_dir_mode), "run_dir_mode", file.run_dir_mode),
    )
    for is_wrong, name, value in wrong:
        if is_wrong:
            raise no_job_has(name, value)
    refuse_wrong(file)


def _is_private(mode: int | None) -> bool:
    """Whether only the owner may write to a directory with this mode."""
    return mode is None or (mode & 0o700 == 0o700 and not mode & 0o022 and mode <= 0o777)


def check_data(file: JobFile, environ: Mapping[str, str]) -> None:
    """Check that the job's data exists: directories on the file system, and each URL with one or two requests.

    Raises:  UsageError U06 (a directory, a data type), E01 (no plug-in), E51 (not there), E52 (denied), E53 (no answer)
    """
    job, channels = file.job, file.job.contract.channels
    for channel in channels:
        if not is_fetched(channel):
            check_channel(channel)
    has_urls = job.output_url or job.checkpoint_url or any(map(is_fetched, channels))
    if has_urls and not file.setup.urls_are_checked:
        from paceline.launch.agent.transfer_client import check_urls

        check_urls(channels, _prefix(job.output_url), _prefix(job.checkpoint_url), environ)


def as_delivered(job: Job) -> Job:
    """The job inside a SageMaker container: its hosts are those of resourceconfig.json, because the job names none."""
    base = OPT_ML if job.contract.opt_ml else job.contract.base_dir
    delivered = read_job(Path(base)) if base is not None and job.max_hosts == 1 else None
    if delivered is None or len(delivered.hosts) < 2:
        return job
    node_rank = delivered.hosts.index(delivered.current_host)
    return replace(
        job,
        min_hosts=len(delivered.hosts),
        max_hosts=len(delivered.hosts),
        node_rank=node_rank,
        is_first=node_rank == 0,
        host_name=delivered.current_host,
        master_addr=delivered.hosts[0],
        # With one host on the command line, --master-port is the store's port. In the container it is the agents' port.
        agents_port=job.store_port or DEFAULT_AGENTS_PORT,
        store_port=None,
    )


def _prefix(text: str | None) -> str | None:
    """The URL without a change, or a directory's file:// URL.

    Raises:  UsageError U03: a URL with one slash
    """
    if not text:
        return None
    if meant := misspelt_url(text):
        raise UsageError(
            "U03",
            f"{text} is neither a directory nor a URL",
            saw=f"a URL is {meant}",
            next=f"{meant} instead of {text}",
        )
    return as_prefix(text if is_url(text) else f"file://{Path(text).expanduser().absolute()}")


def _ranks_per_host(text: str, gpu_count: int | None, gpu_reason: str) -> int:
    if text == "cpu" or (text == "auto" and not gpu_count):
        return len(os.sched_getaffinity(0))
    if text in ("gpu", "auto"):
        if not gpu_count:
            raise UsageError(
                "U11",
                "--nproc-per-node gpu: no GPU is visible on this host",
                saw=gpu_reason or "NVML and CUDA_VISIBLE_DEVICES leave 0 GPUs",
                next="paceline run --nproc-per-node 2 ...",
            )
        return gpu_count
    if text == "xpu":
        raise UsageError(
            "U11",
            "--nproc-per-node xpu: XPUs are counted by torch alone, which the launcher never loads",
            saw="no other way to count them",
            next="paceline run --nproc-per-node \"$(python -c 'import torch; print(torch.xpu.device_count())')\" ...",
        )
    return int(checked_rank_count(text))


def checked_rank_count(text: str) -> str:
    """The text if it says how many ranks a host has; gpu, cpu, auto and xpu are counted there.

    Raises:  UsageError U03: it is no number, or more ranks than a host may have
    """
    # A text of thousands of digits is no int, and nine say that it is too many.
    count = int(text.lstrip("0")[:9] or 0) if text.isdecimal() else 0
    meant = f"a number of ranks up to {MOST_RANKS_PER_HOST}" if count else "a number of ranks, gpu, cpu or auto"
    if count > MOST_RANKS_PER_HOST or (not count and text not in ("gpu", "cpu", "auto", "xpu")):
        shown = text or "''"
        raise UsageError(
            "U03", f"--nproc-per-node {shown} is not {meant}", next=f"--nproc-per-node {'cpu' if count else 2}"
        )
    return text


def _shutdown_seconds(given: float | None, environ: Mapping[str, str]) -> float:
    if given is not None:
        return given
    text = environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", _DEFAULT_SHUTDOWN_SECONDS)
    if not text.strip().isdecimal():
        raise UsageError(
            "U03",
            f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT {text!r} is not a whole number of seconds",
            saw=text,
            next="paceline run --shutdown-timeout 30 ...",
        )
    return float(text)


def _base_dir_of_the_user(environ: Mapping[str, str]) -> str | None:
    # Inside a rank of another run, the other run has set the variable, not the user.
    return None if "PACELINE_RUN_ID" in environ else environ.get("SAGEMAKER_BASE_DIR")


def _cpus(job: Job, environ: Mapping[str, str]) -> Any:
    if job.numa_binding is None:
        return None
    from paceline.launch.agent.numa import bindings

    return bindings(job.numa_binding, job.ranks_per_host, environ)
