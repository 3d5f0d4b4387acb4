"""Start a training job here: every option of torchrun, the SageMaker contract around the ranks, and a recording of what they do."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from paceline.cli.job.option_tables import CompletionAsked
from paceline.cli.job.options import VERB as VERB
from paceline.cli.job.options import parse_run
from paceline.errors import PacelineError, UsageError
from paceline.facts import Evidence, Job
from paceline.part import first_answer, parts

if TYPE_CHECKING:
    from paceline.job_file import JobFile
    from paceline.launch.job.outcome import Outcome
    from paceline.launch.prepare import LaunchConfig


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of `paceline run`, together with the words themselves, for the recording."""
    try:
        args = parse_run(argv, os.environ)
    except CompletionAsked as asked:
        from paceline.cli.completion.script import script

        print(script(asked.shell), end="")
        raise SystemExit(0) from None
    args.argv = tuple(argv)
    return args


def run(args: argparse.Namespace) -> int:
    """Run the job and return its exit code.

    Raises:  UsageError: refused before anything was started
    """
    from paceline.cli.job.job import job_file_of
    from paceline.launch.prepare import prepare

    # Each part may refuse before the first of them acts.
    asked = [part.on_run(args) for part in parts()]
    if elsewhere := first_answer(one.elsewhere for one in asked):
        return elsewhere()
    start_hosts = first_answer(one.start_hosts for one in asked)
    with said_to_sagemaker("/opt/ml" if args.opt_ml and start_hosts is None else args.base_dir):
        with _variables_named(args.argv, os.environ):
            file = job_file_of(args, ("run", *args.argv))
        _say_unknown_keys(args.rdzv_conf)
        job, config = prepare(file, os.environ, starts_hosts=start_hosts is not None)
        if job.is_first and "PYTHON_EXEC" not in os.environ:
            _say_not_tried()
        if args.job is None and start_hosts is None and job.max_hosts > 1 and not args.no_check:
            # Beside the start: a resolver that does not answer takes its time.
            Thread(target=_say_own_name, args=(job, config.gpu_count), daemon=True).start()
        # The submitting process has already checked a job file. Another Python may have another grammar.
        if args.job is None and job.is_first and not args.no_check and "PYTHON_EXEC" not in os.environ:
            by_hand = start_hosts is None and not args.standalone
            if found := _say_source(job, config.gpu_count, by_hand=by_hand):
                checked = {"event": "source_check", "t_ns": time.time_ns(), "findings": list(found)}
                file = replace(file, setup=replace(file.setup, events=(*file.setup.events, checked)))
                config = replace(config, setup=file.setup)
        if start_hosts is not None:
            return start_hosts(file, os.environ)
        beside = [one.beside for one in asked if one.beside]
        if beside and job.is_first:
            from paceline.recording.runs import new_run_id

            config = replace(config, run_id=config.run_id or new_run_id())
            for start in beside:
                start(config.runs_root / str(config.run_id))
        return run_here(job, config, file)


@contextmanager
def _variables_named(argv: Sequence[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Name the variable in place of an option that was not typed and has its value from it.

    Raises:  UsageError: what the block raises
    """
    from paceline.cli.job.option_tables import TORCHRUN

    try:
        yield
    except UsageError as error:
        typed = {word.partition("=")[0].replace("_", "-") for word in argv}
        for option in TORCHRUN:
            flag, value = f"--{option.name}", environ.get(option.variable or "")
            if value is not None and flag not in typed and error.what.startswith(f"{flag} {value}"):
                what = error.what.replace(f"{flag} {value}", f"{option.variable}={value}", 1)
                next_step = f"unset {option.variable}, or {error.next}"
                raise UsageError(error.code, what, saw=error.saw or f"{flag} was not typed", next=next_step) from None
        raise


def _say_unknown_keys(rdzv_conf: str) -> None:
    from paceline.cli.values import unknown_rendezvous_keys
    from paceline.terminal_text import write_line

    if keys := unknown_rendezvous_keys(rdzv_conf):
        write_line(f"--rdzv-conf: no rendezvous of torch reads {', '.join(keys)}; ignored, as torchrun does silently")


def _say_not_tried() -> None:
    """Print a line about a torch that nobody has run paceline on."""
    from paceline.probes.torch_version import not_tried, read_torch
    from paceline.terminal_text import write_line

    if text := not_tried(read_torch().version):
        write_line(f"paceline  {text}: paceline env --torch")


def _say_source(job: Job, gpu_count: int | None, *, by_hand: bool) -> tuple[Mapping[str, str], ...]:
    """Print a line about mistakes in the script and the command line; all of them for the recording.

    `by_hand`: the command line says where the hosts meet.

    Raises:  UsageError K06: Python cannot parse the script
    """
    from paceline.cli.run.source_check import check_source
    from paceline.terminal_text import write_line

    directory = Path(job.contract.code_dir or Path.cwd())
    found = check_source(job, gpu_count, directory, master_addr=job.master_addr if by_hand else None)
    if found.text:
        write_line(found.text)
    return found.findings


def _say_own_name(job: Job, gpu_count: int | None) -> None:
    """Print a line about this host where the ranks of the others will not find it. Each host says it of itself."""
    from paceline.cli.run.source_check import own_name_text
    from paceline.probes.host_before import own_address
    from paceline.terminal_text import write_line

    if text := own_name_text(job, gpu_count, os.environ, own_address):
        write_line(text)


def would_run(argv: Sequence[str], environ: Mapping[str, str]) -> Job:
    """The job of a command line of `paceline run`, checked as that command checks it. Nothing is started.

    Raises:  UsageError: as `paceline run`
    """
    from paceline.cli.job.job import job_file_of
    from paceline.launch.prepare import prepare

    return prepare(job_file_of(parse(argv)), environ)[0]


def run_here(job: Job, config: "LaunchConfig", file: "JobFile") -> int:
    """Run as this host's agent until the job has ended, then report how it ended."""
    from paceline.cli.run.terminal import RunTerminal
    from paceline.launch.run import run_job
    from paceline.terminal_text import write_line
    from paceline.views.live import end_text

    quiet = file.setup.quiet
    terminal = RunTerminal(
        mode=file.progress, color=file.color, environ=config.environ, quiet=quiet, command=file.command
    )
    ended = run_job(job, config, terminal)
    contract = file.job.contract
    _leave_failure(
        "/opt/ml" if contract.opt_ml else contract.base_dir,
        ended.outcome.failure_text() if ended.outcome.exit_code else "",
    )
    if ended.first:
        _say_summary(ended.directory.path, ended.outcome, file)
    elif not quiet:
        write_line(end_text(ended.directory.path.name, ended.outcome.exit_code, ended.outcome.reason))
    return int(ended.outcome.exit_code)


@contextmanager
def said_to_sagemaker(base: str | None) -> Iterator[None]:
    """Inside a container, write a refusal to the file from which SageMaker takes the reason of a failed job."""
    try:
        yield
    except PacelineError as error:
        _leave_failure(base, f"error[{error.code}]: {error.what}\n  saw   {error.saw}\n  next  {error.next}")
        raise


def _leave_failure(base: str | None, reason: str) -> None:
    """Write `reason` to output/failure of a container's tree, unless the host's agent or the script has already written the file."""
    from paceline.contract.failure import write_failure
    from paceline.contract.tree import Tree, is_delivered

    if reason and base and is_delivered(tree := Tree(Path(base))):
        tree.output.mkdir(exist_ok=True)
        write_failure(tree, reason)


def as_it_ended(found: Evidence, outcome: "Outcome", now_ns: int) -> Evidence:
    """The recording, with the run's end added if a full disk prevented its recording. This process knows the end.

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


def _say_summary(directory: Path, outcome: "Outcome", file: "JobFile") -> None:
    from paceline.cli.terminal import ascii_only, room, use_color
    from paceline.recording.evidence import evidence
    from paceline.terminal_text import write_line
    from paceline.views.documents import json_text
    from paceline.views.summary import summary_facts, summary_text

    found = as_it_ended(evidence(directory, recent=True), outcome, time.time_ns())
    if file.json_file is not None:
        from paceline.cli.job.json_file import write_answer

        write_answer(file.json_file, found)
    if file.json:
        write_line(json_text(summary_facts(found)))
        return
    if not found.ranks and any(event["event"] == "refused" for event in found.events):
        # The error was printed when it happened. No rank started, so there is nothing to sum up.
        return
    write_line(
        summary_text(
            found,
            outcome.exits,
            width=room(sys.stderr),
            color=use_color(file.color, sys.stderr),
            ascii_only=ascii_only(sys.stderr),
        )
    )
