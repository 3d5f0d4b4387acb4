"""Makes a job file of the arguments of `paceline run`. It only reads files that contain values of the command line, and writes nothing."""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.cli import values
from paceline.cli.job.json_file import answer_file
from paceline.cli.job.options import VERB, torchrun_command
from paceline.contract.channels import parse_channels
from paceline.contract.hyperparameters import parse_hyperparameter, read_hyperparameters
from paceline.errors import UsageError
from paceline.facts import Console, Contract, Job, Program, ProgramKind
from paceline.job_file import JobFile, read_job_file
from paceline.launch.prepare import checked_rank_count
from paceline.part import parts, refuse_wrong
from paceline.probes.environment import without_secrets
from paceline.probes.ports import is_local_address
from paceline.recording.plain_files import open_plain
from paceline.spelling import as_typed
from paceline.storage.urls import shown_argv

_MOST_PLAN_BYTES = 4 << 20
_STATIC_JOIN_SECONDS = "900"
_C10D_JOIN_SECONDS = "600"
MEETING = (
    "nnodes", "node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone",
    "local_addr", "store_port", "local_hosts",
)  # fmt: skip
"""Options that set how hosts meet."""
_OF_THE_FILE = (
    "run_id",
    "run_dir",
    "run_dir_mode",
    "token_file",
    "no_token",
    "progress",
    "color",
    "json",
    "json_file",
    "plan",
)
BESIDE_JOB = frozenset({
    "job", "set", *MEETING, *_OF_THE_FILE, "base_dir", "opt_ml",
    "network",
})  # fmt: skip
"""Options that a host may give for itself beside --job; all others belong to the job."""


def job_file_of(
    args: argparse.Namespace, argv: Sequence[str] = (), *, is_local: Callable[[str], bool] = is_local_address
) -> JobFile:
    """The job of this command line. torchrun's options have torchrun's meaning. `argv`: the command line, for the recording.

    Raises:  UsageError U03 value, U05 options that disagree, U06 channel, U07 hyperparameter, U27 job file, U32 torch plug-in
    """
    command = ("paceline", *without_secrets(shown_argv(argv))) if argv else ()
    if args.job is not None:
        file = read_job_file(args.job)
        return _with_this_host(replace(file, command=file.command or command), args, is_local)
    _refuse_plugins(args)
    of_parts = {name: value for part in parts() for name, value in part.job_fields(args).items()}
    resume = bool(of_parts.get("resume", False))
    job = Job(
        name=args.name or default_name(args),
        program=program_of(args),
        role=args.role,
        max_restarts=int(values.not_negative("--max-restarts", args.max_restarts)),
        max_run_seconds=_time_limit(args.max_run),
        total_steps=_total_steps(args.total_steps),
        on_hang=_on_hang(args, resume=resume),
        fork_server=args.fork_server == "auto" or (args.fork_server is None and resume),
        stop_grace_seconds=values.duration_seconds("--stop-grace", args.stop_grace),
        monitor_interval_seconds=args.monitor_interval,
        signals=values.signal_names(args.signals_to_handle),
        virtual_local_rank=args.virtual_local_rank,
        numa_binding=args.numa_binding,
        output_url=args.output or None,
        checkpoint_url=args.checkpoints or None,
        checkpoints_delete=_checkpoints_delete(args),
        contract=_contract(args),
        console=_console(args),
        **of_parts,
    )
    file = JobFile(
        job=_met(job, args, is_local),
        ranks_per_host=checked_rank_count(args.nproc_per_node),
        shutdown_timeout_seconds=args.shutdown_timeout,
        run_id=values.run_id(args.run_id),
        run_dir=args.run_dir,
        run_dir_mode=values.directory_mode(args.run_dir_mode),
        token_file=args.token_file,
        no_token=args.no_token,
        progress=args.progress,
        color=args.color,
        json=args.json,
        json_file=answer_file(args.json_file),
        plan=_plan(args.plan),
        command=command,
    )
    refuse_wrong(file)
    return file


def _with_this_host(file: JobFile, args: argparse.Namespace, is_local: Callable[[str], bool]) -> JobFile:
    """The job of --job, with this host's own options."""
    rows = (*VERB.options, *VERB.keys)
    said = {row.dest for row in rows if getattr(args, row.dest) != row.unset}
    for row in rows:
        if row.dest in said and row.dest not in BESIDE_JOB:
            raise UsageError(
                "U05",
                f"--job says what the job is, and {row.in_messages} says it otherwise",
                saw=f"--job {args.job} {as_typed(row.in_messages, getattr(args, row.dest))}",
                next=f"leave {row.in_messages} out, or change it in {args.job}",
            )
    _refuse_two_trees(args)
    job = file.job
    if said & set(MEETING):
        args.nnodes = args.nnodes if "nnodes" in said else f"{job.min_hosts}:{job.max_hosts}"
        job = replace(_met(job, args, is_local), **_kept_of_the_meeting(job, said))
    if said & {"base_dir", "opt_ml"}:
        shown = args.opt_ml and args.local_hosts is not None
        contract = replace(
            job.contract, base_dir=args.base_dir, opt_ml=args.opt_ml and not shown, shown_at_opt_ml=shown
        )
        job = replace(job, contract=contract)
    given = {name: getattr(args, name) for name in _OF_THE_FILE if name in said}
    if "run_id" in given:
        values.run_id(args.run_id)
    if "run_dir_mode" in given:
        given["run_dir_mode"] = values.directory_mode(args.run_dir_mode)
    if "plan" in given:
        given["plan"] = _plan(args.plan)
    return replace(file, job=job, **given)


def _kept_of_the_meeting(job: Job, said: set[str]) -> dict[str, Any]:
    """The file's rendezvous values that the command line does not set."""
    by_option = {
        "rdzv_conf": ("join_timeout_seconds", "last_call_seconds"),
        "rdzv_id": ("rendezvous_id",),
        "local_addr": ("local_address",),
    }
    left = (name for option, names in by_option.items() if option not in said for name in names)
    return {name: getattr(job, name) for name in left}


def _plan(path: str | None) -> dict[str, Any] | None:
    """The plan in the file of --set plan; None: no file is named.

    Raises:  UsageError U03: the file cannot be read, or is no plan
    """
    if path is None:
        return None
    try:
        with open_plain(Path(path)) as file:
            plan = json.loads(file.read(_MOST_PLAN_BYTES))
        schema = plan.get("schema") if isinstance(plan, dict) else None
        saw = "no object of JSON" if not isinstance(plan, dict) else f"its schema is {schema}"
    except OSError as error:
        plan, schema, saw = None, None, str(error.strerror)
    except (ValueError, RecursionError):
        plan, schema, saw = None, None, "no JSON"
    if not isinstance(schema, str) or not schema.startswith("paceline.plan/"):
        raise UsageError(
            "U03",
            f"--set plan={path} is no plan of paceline",
            saw=saw,
            next=f"paceline plan --json train.py > {path}",
        )
    found: dict[str, Any] = plan
    return found


def default_name(args: argparse.Namespace) -> str:
    """The run's name without --name: the name of the script or module."""
    script: str = args.training_script
    return script.rpartition(".")[2] if args.module else Path(script).stem or "run"


def program_of(args: argparse.Namespace) -> Program:
    """The program, from one of torchrun's four ways to name one: script, -m, --no-python, --run-path.

    Raises:  UsageError U03: -m together with --no-python
    """
    if args.no_python and args.module and not args.run_path:
        raise UsageError(
            "U03",
            "--no-python and -m exclude each other",
            saw=f"-m --no-python {args.training_script}",
            next="leave --no-python out",
        )
    ways = (
        (args.run_path, ProgramKind.RUN_PATH),
        (args.no_python, ProgramKind.EXECUTABLE),
        (args.module, ProgramKind.MODULE),
        (True, ProgramKind.SCRIPT),
    )
    kind = next(kind for is_said, kind in ways if is_said)
    return Program(kind=kind, target=args.training_script, arguments=tuple(args.training_script_args))


def _met(job: Job, args: argparse.Namespace, is_local: Callable[[str], bool]) -> Job:
    """The job with the rendezvous values of the command line."""
    meeting = _meeting(args, is_local)
    return replace(
        job,
        min_hosts=meeting.least,
        max_hosts=meeting.most,
        node_rank=meeting.node_rank,
        master_addr=meeting.address,
        agents_port=meeting.agents_port,
        store_port=meeting.store_port,
        is_first=meeting.is_first,
        local_address=args.local_addr,
        rendezvous_id=args.rdzv_id,
        join_timeout_seconds=meeting.join_seconds,
        last_call_seconds=meeting.last_call_seconds,
    )


def _checkpoints_delete(args: argparse.Namespace) -> bool:
    if args.checkpoints_delete and not args.checkpoints:
        raise UsageError(
            "U03",
            "--set checkpoints_delete says what to do below --checkpoints, and there is none",
            saw="no --checkpoints",
            next="paceline run --checkpoints URL --set checkpoints_delete=true ...",
        )
    return bool(args.checkpoints_delete)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendezvous:
    """How the hosts of the job find each other."""

    least: int
    """Smallest number of hosts with which the job starts."""
    most: int
    """Largest number of hosts."""
    node_rank: int | None
    """The node rank of this host; None: hosts are numbered in the order of arrival."""
    address: str
    """The address of the first host for the other hosts."""
    agents_port: int | None
    """Port of the first host's agent; None: a job of one host has no port; 0: a free port."""
    store_port: int | None
    """Port of torch's store on the first host; None: a free port."""
    is_first: bool
    """Whether this host is the first one. If `node_rank` is None, this is a guess from the address."""
    join_seconds: float
    """Longest wait until the hosts have met."""
    last_call_seconds: float
    """How long to wait for more hosts once `least` hosts are there."""


def _refuse_plugins(args: argparse.Namespace) -> None:
    store_type = values.rendezvous_conf(args.rdzv_conf).get("store_type", "tcp") if not args.standalone else "tcp"
    refused = (
        (args.logs_specs not in (None, "default"), f"--logs-specs {args.logs_specs}"),
        (args.event_log_handler not in ("null", "console"), f"--event-log-handler {args.event_log_handler}"),
        (not args.standalone and args.rdzv_backend not in ("static", "c10d"), f"--rdzv-backend {args.rdzv_backend}"),
        (store_type != "tcp", f"--rdzv-conf store_type={store_type}"),
    )
    if (backend := args.rdzv_backend.lower()) != args.rdzv_backend and backend in ("static", "c10d"):
        raise values.bad_value("--rdzv-backend", args.rdzv_backend, f"{backend}, in small letters", backend)
    for is_refused, option in refused:
        if is_refused:
            raise UsageError(
                "U32",
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
                "leave --standalone out",
            )
        least = most = 1
    by_arrival = args.rdzv_backend == "c10d" and not args.standalone
    address, port, store_port = _place(args, most, by_arrival)
    if most > 1 and port is not None and port == store_port:
        raise values.bad_value("--set store_port", store_port, "another port than the agents' one", str(port + 1))
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
    # torchrun's default, "1:1", looks the same as "1:1" given by hand. With --local-hosts both mean "all".
    count = args.local_hosts
    if count < 1:
        raise values.bad_value("--local-hosts", count, "a number of hosts", "2")
    clash = (
        (
            args.rdzv_endpoint != "" or args.rdzv_backend != "static" or args.standalone,
            "--local-hosts meets on addresses of its own",
        ),
        (args.node_rank != 0, "--local-hosts numbers its hosts itself"),
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
    for option, port in (("--master-port", args.master_port), ("--set store_port", args.store_port)):
        if port is not None:
            values.port_number(option, port)
    if args.standalone:
        return "127.0.0.1", None, args.store_port
    # Of a single host, torchrun takes any text.
    address, port = (
        args.master_addr if most == 1 else values.address("--master-addr", args.master_addr),
        args.master_port,
    )
    if args.rdzv_endpoint or by_arrival:
        default_port = values.C10D_PORT if by_arrival else values.STATIC_PORT
        address, port = values.endpoint(args.rdzv_endpoint or "localhost", default_port)
    if most == 1:
        # torchrun's static rendezvous uses the given port for the ranks' store. Its c10d rendezvous uses the port for the agents.
        return address, None, (args.store_port if args.store_port is not None or by_arrival else port) or None
    if port == 0:
        raise values.bad_value(
            "--rdzv-endpoint" if args.rdzv_endpoint else "--master-port", 0, "a port the other hosts can know", "29500"
        )
    if port is None:
        port = 0 if args.local_hosts else values.STATIC_PORT
    return address, port, args.store_port or None


def _node_rank(args: argparse.Namespace, most: int) -> int:
    rank: int = args.node_rank
    if 0 <= rank < most:
        return rank
    if rank < 0:
        raise values.bad_value("--node-rank", rank, "0 or more", "0")
    raise _disagree(
        f"--node-rank {rank} is not a host of this job: {most} host{'s are' if most > 1 else ' is'} numbered from 0",
        f"--node-rank {rank} --nnodes {args.nnodes}",
        f"paceline run --node-rank {most - 1} ...",
    )


def _is_first(node_rank: int | None, conf: Mapping[str, str], address: str, is_local: Callable[[str], bool]) -> bool:
    if node_rank is not None:
        return node_rank == 0
    if "is_host" in conf:
        return values.yes_or_no("--rdzv-conf is_host", conf["is_host"])
    return is_local(address)


def _disagree(what: str, saw: str, next_step: str) -> UsageError:
    return UsageError("U05", what, saw=saw, next=next_step)


def _time_limit(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = values.duration_seconds("--max-run", text)
    if seconds <= 0:
        raise values.bad_value("--max-run", text, "more than 0", "12h")
    return seconds


def _total_steps(number: int | None) -> int | None:
    if number is not None and number < 1:
        raise values.bad_value("--set total_steps", number, "1 or more", "10000")
    return number


def _on_hang(args: argparse.Namespace, *, resume: bool) -> str:
    choice: str = args.on_hang
    if choice == "resume" and not resume:
        raise _disagree(
            "--on-hang resume needs --resume auto: without it no state is kept from which the job could go on",
            "--on-hang resume, and no --resume",
            "paceline run --resume auto --on-hang resume ...",
        )
    if choice == "restart" and not args.max_restarts:
        raise _disagree(
            "--on-hang restart needs --max-restarts: without it no restart is left, and a hang would end the job",
            "--on-hang restart --max-restarts 0",
            "paceline run --on-hang restart --max-restarts 1 ...",
        )
    return choice


def _contract(args: argparse.Namespace) -> Contract:
    _refuse_two_trees(args)
    hyperparameters = dict(read_hyperparameters(args.hyperparameters)) if args.hyperparameters else {}
    hyperparameters.update(parse_hyperparameter(text) for text in args.hp or ())
    return Contract(
        hyperparameters=hyperparameters,
        profile=args.profile,
        channels=parse_channels(args.channel or ()),
        base_dir=args.base_dir,
        opt_ml=args.opt_ml and args.local_hosts is None,
        shown_at_opt_ml=args.opt_ml and args.local_hosts is not None,
        install_requirements=args.install_requirements,
        code_dir=_source_dir(args.source_dir),
    )


def _refuse_two_trees(args: argparse.Namespace) -> None:
    if args.base_dir and args.opt_ml:
        raise UsageError(
            "U03",
            "--set base_dir and --set opt_ml name two places for one tree",
            saw=f"--set base_dir={args.base_dir} --set opt_ml=true",
            next="leave --set opt_ml out",
        )


def _source_dir(text: str | None) -> str | None:
    if text is not None and not os.path.isdir(text):
        raise UsageError(
            "U02",
            f"--source-dir {text} is not a directory",
            saw=f"looked in {Path.cwd()}",
            next="--source-dir .",
        )
    return text


def _console(args: argparse.Namespace) -> Console:
    if args.log_dir is not None and os.path.isfile(args.log_dir):
        raise UsageError(
            "U02", f"--log-dir {args.log_dir} is a file", saw="ranks' output goes below it", next="--log-dir logs"
        )
    return Console(
        redirects=values.streams("--redirects", args.redirects),
        tee=values.streams("--tee", args.tee),
        local_ranks_filter=values.local_ranks(args.local_ranks_filter),
        stdout_filters=tuple(args.duplicate_stdout_filters),
        stderr_filters=tuple(args.duplicate_stderr_filters),
        log_dir=args.log_dir,
        line_prefix_template=args.log_line_prefix_template or None,
    )
