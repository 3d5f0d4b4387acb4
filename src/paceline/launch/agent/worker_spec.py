"""Makes the argv, the environment and the output destinations of each rank of a host."""

import socket
from collections.abc import Sequence
from pathlib import Path
from string import Template

from paceline.contract.entry import command, first_line_of, is_shell_script, located
from paceline.facts import Console
from paceline.launch.agent.environment import rank_environment, substitute_local_rank
from paceline.launch.agent.host_attempt import HostAttempt
from paceline.launch.agent.output import Destination
from paceline.launch.agent.workers import WorkerSpec
from paceline.recording.layout import RunDirectory

STDOUT, STDERR = 1, 2
EVERY_LOCAL_RANK = -1
_TORCHRUN_NAMES = {"out": "stdout", "err": "stderr"}


def destinations(
    console: Console,
    directory: RunDirectory,
    host: str,
    attempt: int,
    rank: int,
    local_rank: int,
    role: str,
    run: str,
    hostname: str,
) -> tuple[Destination, Destination]:
    """The destinations of one rank's stdout and stderr.

    Every rank has complete logs in the recording. A redirected stream is not shown on the terminal. A teed stream has a prefix on the
    terminal. The filter of local ranks applies to the terminal only. `--log-dir` adds torchrun's files:
    DIR/RUN/attempt_N/LOCAL_RANK/stdout.log. `hostname`: what ${hostname} of a prefix stands for.

    Source:  torch 2.13 torch/distributed/elastic/multiprocessing/api.py, `DefaultLogsSpecs.reify`
    """

    def one(name: str, bit: int, fd: int, filters: tuple[str, ...]) -> Destination:
        redirected = _bits(console.redirects, local_rank) & bit
        teed = _bits(console.tee, local_rank) & bit
        shown = teed or not redirected
        if console.local_ranks_filter is not None and local_rank not in console.local_ranks_filter:
            shown = False
        log_file = directory.log_file(host, attempt, rank, name)
        torchrun = None
        if console.log_dir is not None:
            torchrun = _torchrun_directory(console.log_dir, run, attempt)
        return Destination(
            log_file=log_file,
            console_fd=fd if shown else None,
            prefix=_prefix(console, hostname, role, rank, local_rank) if teed else b"",
            extra_file=torchrun / str(local_rank) / f"{_TORCHRUN_NAMES[name]}.log"
            if torchrun is not None and (redirected or teed)
            else None,
            filtered_file=(torchrun or log_file.parent) / f"filtered_{_TORCHRUN_NAMES[name]}.log" if filters else None,
            filters=filters,
        )

    return one("out", STDOUT, 1, console.stdout_filters), one("err", STDERR, 2, console.stderr_filters)


def _prefix(console: Console, hostname: str, role: str, rank: int, local_rank: int) -> bytes:
    template = console.line_prefix_template or "[${role_name}${local_rank}]:"
    values = {"role_name": role, "rank": rank, "local_rank": local_rank, "hostname": hostname}
    return Template(template).safe_substitute(values).encode()


def _torchrun_directory(log_dir: str, run: str, attempt: int) -> Path:
    return Path(log_dir) / run / f"attempt_{attempt}"


def _bits(chosen: dict[int, int], local_rank: int) -> int:
    return chosen.get(local_rank, chosen.get(EVERY_LOCAL_RANK, 0))


def worker_specs(attempt: HostAttempt) -> list[WorkerSpec]:
    """One WorkerSpec per rank of the attempt's host, in order of local rank."""
    program = located(attempt.job.program, attempt.job.contract.code_dir)
    argv = command(
        program,
        python=attempt.identity.python,
        arguments=attempt.prepared.script_arguments,
        first_line=first_line_of(program.target) if is_shell_script(program) else "",
    )
    return [_spec(attempt, argv, local_rank) for local_rank in range(attempt.placement.ranks)]


def _spec(attempt: HostAttempt, argv: Sequence[str], local_rank: int) -> WorkerSpec:
    identity, message = attempt.identity, attempt.message
    rank = attempt.placement.first_rank + local_rank
    out, err = destinations(
        attempt.job.console,
        attempt.directory,
        identity.name,
        message.attempt,
        rank,
        local_rank,
        attempt.job.role,
        attempt.rendezvous_id,
        # Hosts that share a machine would all have its name.
        identity.name if identity.shares_machine else socket.gethostname(),
    )
    environment = rank_environment(attempt, local_rank)
    own_argv: Sequence[str] = substitute_local_rank(argv, local_rank)
    new_argv = own_argv
    for part in attempt.parts:
        environment |= part.variables(message.placements, rank)
        new_argv = part.argv(new_argv)
    return WorkerSpec(
        rank=rank,
        local_rank=local_rank,
        argv=own_argv,
        environment=environment,
        out=out,
        err=err,
        working_directory=attempt.prepared.working_directory,
        cpus=attempt.cpus_by_local_rank[local_rank] if attempt.cpus_by_local_rank else None,
        state=attempt.state.descriptor(local_rank) if attempt.state is not None else None,
        new_argv=new_argv,
    )
