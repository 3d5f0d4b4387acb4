"""From the arguments of `paceline run` to the Job they describe; what can be refused before a process starts is."""

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.cli import values
from paceline.cli.job.options import torchrun_command
from paceline.cli.job.program import default_name, program_of
from paceline.contract.channels import check_channel, is_fetched, parse_channels
from paceline.contract.hyperparameters import parse_hyperparameter, read_hyperparameters
from paceline.errors import UsageError
from paceline.facts import Channel, Console, Contract, Job
from paceline.planner import strategies
from paceline.probes.ports import is_local_address
from paceline.storage.urls import as_prefix, is_url

_DEFAULT_SHUTDOWN_SECONDS = "30"
_STATIC_JOIN_SECONDS = "900"
_C10D_JOIN_SECONDS = "600"


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Every directory and URL of a job; URLs of artefacts and checkpoints end in a slash."""

    channels: tuple[Channel, ...]
    output_url: str | None
    checkpoint_url: str | None


def data_of(args: argparse.Namespace, environ: Mapping[str, str]) -> Data:
    """The data of a command line, seen to be there: directories at once, URLs by one or two questions each.

    Raises:  UsageError U03, U06 (a directory), E50 (no plug-in), E51 (not there), E52 (denied), E53 (no answer), E55 (data type)
    """
    channels = parse_channels(args.channel or ())
    for channel in channels:
        if not is_fetched(channel):
            check_channel(channel)
    data = Data(channels=channels, output_url=_prefix(args.output), checkpoint_url=_prefix(args.checkpoints))
    if args.checkpoints_delete and data.checkpoint_url is None:
        raise UsageError(
            "U03",
            "--checkpoints-delete says what to do below --checkpoints, and there is none",
            saw="no --checkpoints",
            next="paceline run --checkpoints URL --checkpoints-delete ...",
        )
    urls = [data.output_url, data.checkpoint_url, *(channel.source for channel in channels if is_fetched(channel))]
    if any(url is not None for url in urls) and not getattr(args, "urls_are_checked", False):
        from paceline.launch.agent.transfer_client import check_urls

        check_urls(channels, data.output_url, data.checkpoint_url, environ)
    return data


def _prefix(text: str | None) -> str | None:
    """A URL as it is, a directory as the file:// URL of it."""
    if not text:
        return None
    return as_prefix(text if is_url(text) else f"file://{Path(text).expanduser().absolute()}")


def job_from_arguments(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    gpu_count: int | None,
    *,
    gpu_reason: str = "",
    is_local: Callable[[str], bool] = is_local_address,
) -> Job:
    """The job of this host's command line, with torchrun's meaning for each of its options.

    `gpu_count` None: unknown, for `gpu_reason`. The file system is read to see that the script, the channels and the
    hyperparameter file are there; nothing is written or started.

    Raises:  UsageError U02 script, U03 value, U05 hosts that disagree, U06 channel, U07 hyperparameter,
             U08 torch plug-in, U11 too few GPUs, X10, X11, X12 strategy, E50 to E55 a URL
    """
    _refuse_plugins(args)
    meeting = _meeting(args, is_local)
    data = data_of(args, environ)
    return Job(
        name=args.name or default_name(args),
        program=program_of(args, environ),
        min_hosts=meeting.least,
        max_hosts=meeting.most,
        ranks_per_host=_ranks_per_host(args.nproc_per_node, gpu_count, gpu_reason),
        node_rank=meeting.node_rank,
        master_addr=meeting.address,
        agents_port=meeting.agents_port,
        store_port=meeting.store_port,
        is_first=meeting.is_first,
        local_address=args.local_addr,
        role=args.role,
        rendezvous_id=args.rdzv_id,
        join_timeout_seconds=meeting.join_seconds,
        last_call_seconds=meeting.last_call_seconds,
        max_restarts=int(values.not_negative("--max-restarts", args.max_restarts)),
        max_run_seconds=_time_limit(args.max_run),
        total_steps=_total_steps(args.total_steps),
        on_hang=args.on_hang,
        gradients=_gradients(args),
        allow_lossy=args.allow_lossy,
        tf_config=_tf_config(args),
        stop_grace_seconds=values.duration_seconds("--stop-grace", args.stop_grace),
        shutdown_timeout_seconds=_shutdown_seconds(args.shutdown_timeout, environ),
        monitor_interval_seconds=values.not_negative("--monitor-interval", args.monitor_interval),
        signals=values.signal_names(args.signals_to_handle),
        virtual_local_rank=args.virtual_local_rank,
        numa_binding=_numa_binding(args.numa_binding, gpu_count, gpu_reason),
        output_url=data.output_url,
        checkpoint_url=data.checkpoint_url,
        checkpoints_delete=args.checkpoints_delete,
        contract=_contract(args, environ, data.channels),
        console=_console(args, environ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendezvous:
    """How the hosts of the job find each other."""

    least: int
    most: int
    node_rank: int | None
    address: str
    agents_port: int | None
    store_port: int | None
    is_first: bool
    join_seconds: float
    last_call_seconds: float


def _refuse_plugins(args: argparse.Namespace) -> None:
    store_type = values.rendezvous_conf(args.rdzv_conf).get("store_type", "tcp") if not args.standalone else "tcp"
    refused = (
        (args.logs_specs is not None, f"--logs-specs {args.logs_specs}"),
        (args.event_log_handler not in ("null", "console"), f"--event-log-handler {args.event_log_handler}"),
        (not args.standalone and args.rdzv_backend not in ("static", "c10d"), f"--rdzv-backend {args.rdzv_backend}"),
        (store_type != "tcp", f"--rdzv-conf store_type={store_type}"),
    )
    for is_refused, option in refused:
        if is_refused:
            raise UsageError(
                "U08",
                f"{option} loads a torch plug-in, and paceline's launcher never loads torch",
                saw="paceline itself meets hosts (static, c10d), files every rank's output and records events",
                next=torchrun_command(args),
            )


def _meeting(args: argparse.Namespace, is_local: Callable[[str], bool]) -> _Rendezvous:
    least, most = values.host_range(args.nnodes)
    conf = values.rendezvous_conf(args.rdzv_conf)
    if args.local_hosts is not None:
        least, most = _local_range(args, least, most)
    if args.standalone:
        if least > 1:
            raise _disagree(
                f"--standalone is one host, and --nnodes asks for {least}",
                f"--standalone --nnodes {args.nnodes}",
                "drop --standalone",
            )
        least = most = 1
    by_arrival = args.rdzv_backend == "c10d" and not args.standalone
    address, port, store_port = _place(args, most, by_arrival)
    if most > 1 and port is not None and port == store_port:
        raise values.bad_value("--store-port", store_port, "another port than the agents' one", str(port + 1))
    node_rank = None if by_arrival and most > 1 else _node_rank(args, most)
    return _Rendezvous(
        least=least,
        most=most,
        node_rank=node_rank,
        address=address,
        agents_port=port,
        store_port=store_port,
        is_first=_is_first(node_rank, conf, address, is_local),
        join_seconds=float(
            conf.get("join_timeout")
            or conf.get("timeout")
            or (_C10D_JOIN_SECONDS if by_arrival else _STATIC_JOIN_SECONDS)
        ),
        last_call_seconds=float(conf.get("last_call_timeout", "30")),
    )


def _local_range(args: argparse.Namespace, least: int, most: int) -> tuple[int, int]:
    # torchrun's default, "1:1", cannot be told from the same text given by hand; next to --local-hosts both mean "all".
    count = args.local_hosts
    if count < 1:
        raise values.bad_value("--local-hosts", count, "a number of hosts", "2")
    clash = (
        (
            args.rdzv_endpoint != "" or args.rdzv_backend != "static" or args.standalone,
            "--local-hosts meets on addresses of its own",
        ),
        (args.node_rank != 0, "--local-hosts numbers its hosts itself"),
        (args.opt_ml, "several hosts on one machine cannot share the real /opt/ml"),
    )
    for clashes, why in clash:
        if clashes:
            raise _disagree(
                why,
                f"--local-hosts {count} beside an option for one host of many",
                f"paceline run --local-hosts {count} ...",
            )
    if args.nnodes == "1:1":
        return count, count
    if not least <= count <= most:
        raise _disagree(
            f"--local-hosts starts {count} hosts, and --nnodes asks for {args.nnodes}",
            f"--local-hosts {count} --nnodes {args.nnodes}",
            f"paceline run --local-hosts {count} --nnodes {count} ...",
        )
    return least, most


def _place(args: argparse.Namespace, most: int, by_arrival: bool) -> tuple[str, int | None, int | None]:
    """Address, agents' port and store port."""
    for option, port in (("--master-port", args.master_port), ("--store-port", args.store_port)):
        if port is not None:
            values.port_number(option, port)
    if args.standalone:
        return "127.0.0.1", None, args.store_port
    address, port = _address(args.master_addr), args.master_port
    if args.rdzv_endpoint or by_arrival:
        default_port = values.C10D_PORT if by_arrival else values.STATIC_PORT
        address, port = values.endpoint(args.rdzv_endpoint or "localhost", default_port)
    if most == 1:
        # torchrun's static way puts the ranks' store on the port it is given; its c10d way keeps that for the agents.
        return address, None, (args.store_port if args.store_port is not None or by_arrival else port) or None
    if port == 0:
        raise values.bad_value(
            "--rdzv-endpoint" if args.rdzv_endpoint else "--master-port", 0, "a port the other hosts can know", "29500"
        )
    if port is None:
        port = 0 if args.local_hosts else values.STATIC_PORT
    return address, port, args.store_port or None


def _address(text: str) -> str:
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _node_rank(args: argparse.Namespace, most: int) -> int:
    rank: int = args.node_rank
    if 0 <= rank < most:
        return rank
    if rank < 0:
        raise values.bad_value("--node-rank", rank, "0 or more", "0")
    raise _disagree(
        f"--node-rank {rank} is not a host of this job: {most} host{'s are' if most > 1 else ' is'} numbered from 0",
        f"--node-rank {rank} --nnodes {args.nnodes}",
        f"paceline run --nnodes {rank + 1} --node-rank {rank} ...",
    )


def _is_first(node_rank: int | None, conf: Mapping[str, str], address: str, is_local: Callable[[str], bool]) -> bool:
    if node_rank is not None:
        return node_rank == 0
    if "is_host" in conf:
        return values.yes_or_no("--rdzv-conf is_host", conf["is_host"])
    return is_local(address)


def _disagree(what: str, saw: str, next_step: str) -> UsageError:
    return UsageError("U05", what, saw=saw, next=next_step)


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
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise values.bad_value("--nproc-per-node", text, "a number of ranks, gpu, cpu or auto", "2")
    return count


def _numa_binding(mode: str | None, gpu_count: int | None, gpu_reason: str) -> str | None:
    if mode and not gpu_count:
        raise UsageError(
            "U11",
            f"--numa-binding {mode}: no GPU is visible on this host to bind near to",
            saw=gpu_reason or "NVML and CUDA_VISIBLE_DEVICES leave 0 GPUs",
            next="leave --numa-binding out",
        )
    return mode


def _time_limit(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = values.duration_seconds("--max-run", text)
    if seconds <= 0:
        raise values.bad_value("--max-run", text, "more than 0", "12h")
    return seconds


def _total_steps(number: int | None) -> int | None:
    if number is not None and number < 1:
        raise values.bad_value("--total-steps", number, "1 or more", "10000")
    return number


def _gradients(args: argparse.Namespace) -> str | None:
    name: str | None = args.gradients
    if name is not None:
        name = name.strip().lower() if name.strip().lower() == strategies.AUTO else name.strip()
        strategies.check(name)
    if args.allow_lossy and name != strategies.AUTO:
        raise UsageError(
            "X12",
            "--allow-lossy is for --gradients auto alone: nothing else chooses a strategy",
            saw=f"--gradients {name}, which is taken as it is named" if name else "no --gradients",
            next="leave --allow-lossy out" if name else "paceline run --gradients auto --allow-lossy ...",
        )
    return name


def _tf_config(args: argparse.Namespace) -> str | None:
    form: str | None = args.tf_config
    if form is not None and args.nproc_per_node != "1":
        raise values.bad_value(
            "--nproc-per-node", args.nproc_per_node, "1: --tf-config speaks of one process per host", "1"
        )
    return form


def _shutdown_seconds(given: int | None, environ: Mapping[str, str]) -> float:
    if given is not None:
        return values.not_negative("--shutdown-timeout", given)
    text = environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", _DEFAULT_SHUTDOWN_SECONDS)
    if not text.strip().isdecimal():
        raise values.bad_value(
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", text, "a whole number of seconds", "--shutdown-timeout 30"
        )
    return float(text)


def _contract(args: argparse.Namespace, environ: Mapping[str, str], channels: tuple[Channel, ...]) -> Contract:
    if args.base_dir and args.opt_ml:
        raise UsageError(
            "U03",
            "--base-dir and --opt-ml name two places for one tree",
            saw=f"--base-dir {args.base_dir} --opt-ml",
            next="leave one out",
        )
    hyperparameters = dict(read_hyperparameters(args.hyperparameters)) if args.hyperparameters else {}
    hyperparameters.update(parse_hyperparameter(text) for text in args.hp or ())
    return Contract(
        hyperparameters=hyperparameters,
        profile=args.hp_profile,
        channels=channels,
        base_dir=args.base_dir or (None if args.opt_ml else _base_dir_of_the_user(environ)),
        opt_ml=args.opt_ml,
        install_requirements=args.install_requirements,
        code_dir=_source_dir(args.source_dir),
    )


def _base_dir_of_the_user(environ: Mapping[str, str]) -> str | None:
    # Inside a rank of another run the variable is that run's, not the user's.
    return None if "PACELINE_RUN_ID" in environ else environ.get("SAGEMAKER_BASE_DIR")


def _source_dir(text: str | None) -> str | None:
    if text is not None and not os.path.isdir(text):
        raise UsageError(
            "U02",
            f"--source-dir {text} is not a directory",
            saw=f"looked in {Path.cwd()}",
            next="paceline run --source-dir DIR ...",
        )
    return text


def _console(args: argparse.Namespace, environ: Mapping[str, str]) -> Console:
    return Console(
        redirects=values.streams("--redirects", args.redirects),
        tee=values.streams("--tee", args.tee),
        local_ranks_filter=values.local_ranks(args.local_ranks_filter),
        stdout_filters=tuple(args.duplicate_stdout_filters),
        stderr_filters=tuple(args.duplicate_stderr_filters),
        log_dir=args.log_dir,
        line_prefix_template=environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
    )
