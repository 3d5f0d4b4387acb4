"""Start a training job here: every option of torchrun, the SageMaker contract around the ranks, and a recording of what they do."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.job.options import VERB as VERB
from paceline.cli.job.options import parse_run
from paceline.errors import PacelineError, UsageError
from paceline.facts import Evidence, Job

if TYPE_CHECKING:
    from paceline.launch.job.outcome import Outcome


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of `paceline run`; the words themselves stay with them, for the recording and for local hosts."""
    args = parse_run(argv, os.environ)
    args.argv = tuple(argv)
    return args


def run(args: argparse.Namespace) -> int:
    """Run the job and return its exit code.

    Raises:  UsageError: refused before anything was started
    """
    from paceline.cli.run.network import network_of

    network = network_of(args)
    if args.hosts is not None:
        from paceline.cli.run.on_hosts import run_on_hosts

        return run_on_hosts(args)
    _refuse_without_hosts(args)
    with said_to_sagemaker(args):
        job, config = prepare(args, os.environ)
        if args.local_hosts is not None:
            from paceline.emulate.local_hosts import run_local_hosts

            return run_local_hosts(args.local_hosts, job, args.argv, environ=os.environ, network=network)
        return run_here(job, config, args)


def _refuse_without_hosts(args: argparse.Namespace) -> None:
    for option, given in (("--option", args.option), ("--env", args.env)):
        if given:
            raise UsageError(
                "U05",
                f"{option} is for other hosts, and --hosts is not given",
                saw=f"{option} {given[0].partition('=')[0]}=...",
                next=f"paceline run --hosts node1,node2 {option} ...",
            )


def prepare(args: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Job, Any]:
    """Everything that can be refused is refused here; nothing is started or written."""
    from paceline.cli import values
    from paceline.cli.job.job import job_from_arguments
    from paceline.cli.run.token import token_for
    from paceline.launch.run import LaunchConfig
    from paceline.probes.environment import without_secrets
    from paceline.probes.gpus import count_visible
    from paceline.probes.ports import is_loopback
    from paceline.recording.runs import runs_root
    from paceline.storage.urls import shown_argv

    gpu_count, gpu_reason = count_visible(environ)
    job = _as_delivered(job_from_arguments(args, environ, gpu_count, gpu_reason=gpu_reason))
    by_hand = args.local_hosts is None and job.host_name is None and job.agents_port is not None and job.max_hosts > 1
    token = token_for(
        args.token_file,
        environ,
        no_token=args.no_token,
        needed=by_hand,
        must_be_had=by_hand and not is_loopback(job.master_addr),
    )
    config = LaunchConfig(
        command=("paceline", "run", *without_secrets(shown_argv(args.argv))),
        environ=dict(environ),
        runs_root=Path(args.run_dir) if args.run_dir else runs_root(environ=environ),
        run_id=values.run_id(args.run_id),
        token=token.secret,
        token_source=token.source,
        token_file=token.own_file,
        run_dir_mode=values.directory_mode(args.run_dir_mode),
        gpu_count=gpu_count,
        cpus_by_local_rank=_cpus(job, environ),
    )
    return job, config


def run_here(job: Job, config: Any, args: argparse.Namespace, *, quiet: bool = False) -> int:
    """Be this host's agent until the job has ended, then say how it ended."""
    from paceline.cli.run.terminal import RunTerminal
    from paceline.launch.run import run_job
    from paceline.terminal_text import write_line
    from paceline.views.live import end_text

    terminal = RunTerminal(mode=args.progress, color=args.color, environ=config.environ, quiet=quiet)
    ended = run_job(job, config, terminal)
    _leave_failure(args, ended.outcome.failure_text() if ended.outcome.exit_code else "")
    if ended.first:
        _say_summary(ended.directory.path, ended.outcome, args)
    elif not quiet:
        write_line(end_text(ended.directory.path.name, ended.outcome.exit_code, ended.outcome.reason))
    return int(ended.outcome.exit_code)


@contextmanager
def said_to_sagemaker(args: argparse.Namespace) -> Iterator[None]:
    """Inside a container, a refusal is left where SageMaker takes the reason of a failed job from."""
    try:
        yield
    except PacelineError as error:
        _leave_failure(args, f"error[{error.code}]: {error.what}\n  saw   {error.saw}\n  next  {error.next}")
        raise


def _leave_failure(args: argparse.Namespace, reason: str) -> None:
    """`reason` into output/failure of a container's tree, where the host's agent or the script have not written theirs."""
    from paceline.contract.failure import write_failure
    from paceline.contract.tree import OPT_ML, Tree, is_delivered

    base = OPT_ML if args.opt_ml else args.base_dir
    if reason and base and is_delivered(tree := Tree(Path(base))):
        tree.output.mkdir(exist_ok=True)
        write_failure(tree, reason)


def _as_delivered(job: Job) -> Job:
    """Inside a SageMaker container, the hosts are those of its resourceconfig.json; the command line names none."""
    from paceline.contract.tree import OPT_ML, read_job
    from paceline.launch.run import DEFAULT_AGENTS_PORT

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
        # With one host on the command line, --master-port was taken for the store's; here the agents meet on it.
        agents_port=job.store_port or DEFAULT_AGENTS_PORT,
        store_port=None,
    )


def _cpus(job: Job, environ: Mapping[str, str]) -> tuple[frozenset[int], ...] | None:
    if job.numa_binding is None:
        return None
    from paceline.launch.agent.numa import bindings

    return bindings(job.numa_binding, job.ranks_per_host, environ)


def as_it_ended(found: Evidence, outcome: "Outcome", now_ns: int) -> Evidence:
    """The recording, with the run's end where a full disk kept it from being written: this process knows it.

    Holds:   a recording that says how the run ended is left as it is
    """
    if found.run.finished_ns is not None:
        return found
    run = replace(
        found.run,
        status=outcome.status,
        secondary_status=outcome.secondary_status,
        exit_code=outcome.exit_code,
        reason=outcome.reason,
        finished_ns=now_ns,
    )
    lost = f"the end of the run could not be recorded, later readers will not know it: df -h {run.directory}"
    return replace(found, run=run, not_judged=(lost, *found.not_judged))


def _say_summary(directory: Path, outcome: "Outcome", args: argparse.Namespace) -> None:
    from paceline.cli.terminal import ascii_only, room, use_color
    from paceline.recording.evidence import evidence
    from paceline.terminal_text import write_line
    from paceline.views.summary import summary_facts, summary_text

    found = as_it_ended(evidence(directory, recent=True), outcome, time.time_ns())
    if args.json:
        write_line(json.dumps(summary_facts(found)))
        return
    write_line(
        summary_text(
            found,
            outcome.exits,
            width=room(sys.stderr),
            color=use_color(args.color, sys.stderr),
            ascii_only=ascii_only(sys.stderr),
        )
    )
