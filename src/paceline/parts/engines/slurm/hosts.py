"""Starts the remote program on the nodes which a job would get from Slurm, for a look at them before the job runs.

salloc waits for the nodes, with the job's own options. Its command only reads our pipe: when this process ends for any reason, the pipe
ends, and salloc gives the nodes back. Inside an allocation, the programs run on its nodes, and nothing is asked of the queue.
"""

import asyncio
import os
import re
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from paceline.errors import PacelineError, UsageError
from paceline.parts.engines.host_check import StartedHost, nodes_in_use
from paceline.parts.engines.remote_program import ConnectionLost, RemoteProgram, boot_command, kill
from paceline.parts.engines.slurm import script
from paceline.parts.engines.slurm.errors import absent, refused
from paceline.parts.engines.slurm.states import expand, unreadable
from paceline.parts.engines.submission import Submission

# The nodes go back after seconds. This is the limit if that fails.
_MOST_MINUTES = 5
# salloc itself stops waiting after --immediate.
_LATE_SECONDS, _LEAVE_SECONDS = 15.0, 10.0
_ASKED = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null'
_PENDING = re.compile(rb"job allocation (\d+)")
# The options of a job that choose its nodes. sbatch has others that salloc does not take.
_OF_NODES = frozenset(script.SAME_AS_SBATCH) - {"array", "time"} | {
    "clusters", "contiguous", "cores-per-socket", "exclude", "gpus", "gpus-per-task", "mem-per-cpu", "mem-per-gpu", "mincpus",
    "prefer", "sockets-per-node", "switches", "threads-per-core", "tmp", "wckey",
}  # fmt: skip


@asynccontextmanager
async def started_on_nodes(
    job: Submission,
    options: Mapping[str, str],
    python: str,
    directory: str,
    environ: Mapping[str, str],
    wait_seconds: float,
) -> AsyncIterator[Sequence[StartedHost]]:
    """The nodes of this allocation, or those which the job would get. `python`: the interpreter there; `directory`: that of recordings.

    Raises:  Unknown: no nodes were free within `wait_seconds`; UsageError E01, E10, E33, E34: Slurm is missing, or refuses the job
    """
    async with AsyncExitStack() as stack:
        if (own := _own_allocation(environ)) is not None:
            number, nodes = own
        else:
            number, nodes = await stack.enter_async_context(_allocated(job, options, environ, wait_seconds))
        command = boot_command(python)
        if setup := options.get("setup"):
            command = f"{{ {setup}\n}} </dev/null >&2; {command}"
        programs = [RemoteProgram(node) for node in nodes]
        try:
            for one in programs:
                await one.begin(*_step(number, one.host), "sh", "-c", command, env=dict(environ))
            yield [
                StartedHost(
                    name=one.host,
                    program=one,
                    address=one.host,
                    directory=directory,
                    why_lost=partial(_not_started, one.host),
                )
                for one in programs
            ]
        except FileNotFoundError as error:
            raise absent("srun", environ.get("PATH", os.defpath)) from error
        finally:
            await asyncio.gather(*(one.close() for one in programs))


def salloc_argv(job: Submission, options: Mapping[str, str], wait_seconds: float) -> tuple[str, ...]:
    """The command that waits for the job's nodes: those of its options that choose nodes, and a time limit of minutes.

    Holds:   an option that chooses no nodes, such as time= or array=, is left out
    """
    argv = ["salloc", "--job-name=paceline-check", f"--nodes={job.hosts}", "--ntasks-per-node=1"]
    argv += [f"--immediate={max(1, round(wait_seconds))}", f"--time={_MOST_MINUTES}"]
    if (cpus := script.cpus_per_task(job, options)) is not None:
        argv.append(f"--cpus-per-task={cpus}")
    named = {name.removeprefix("sbatch."): value for name, value in options.items()}
    argv += [
        f"--{name}={value}" if value else f"--{name}" for name, value in sorted(named.items()) if name in _OF_NODES
    ]
    return (*argv, "sh", "-c", _ASKED)


def _own_allocation(environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """The number and the nodes of the allocation in which this process runs."""
    number, nodes = environ.get("SLURM_JOB_ID"), environ.get("SLURM_JOB_NODELIST")
    return (number, expand(nodes)) if number and nodes else None


def _step(number: str, node: str) -> tuple[str, ...]:
    """The start of one program in an allocation, beside the steps that run there."""
    of_step = (f"--jobid={number}", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap", "--export=ALL")
    return ("srun", *of_step, "--cpu-bind=none", "--mpi=none", "--unbuffered")


@asynccontextmanager
async def _allocated(
    job: Submission, options: Mapping[str, str], environ: Mapping[str, str], wait_seconds: float
) -> AsyncIterator[tuple[str, tuple[str, ...]]]:
    """The number and the nodes of an allocation that ends with the block, also where the block is left while it waits."""
    argv = salloc_argv(job, options, wait_seconds)
    try:
        salloc = await asyncio.create_subprocess_exec(
            *argv, env=dict(environ), stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    except FileNotFoundError as error:
        raise absent("salloc", environ.get("PATH", os.defpath)) from error
    said = bytearray()
    reading = asyncio.get_running_loop().create_task(_read(salloc, said))
    granted = False
    try:
        line = await _granted(salloc, wait_seconds)
        if not line:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(salloc.wait(), reading), _LEAVE_SECONDS)
            raise _not_granted(job, said.decode(errors="replace"), salloc.returncode, wait_seconds)
        granted = True
        number, _, nodes = line.decode().strip().partition(" ")
        if not number.isdigit() or not nodes:
            raise unreadable("salloc", line.decode(errors="replace"))
        yield number, expand(nodes)
    finally:
        await _give_back(salloc, said, environ, granted=granted)
        reading.cancel()


async def _granted(salloc: Process, wait_seconds: float) -> bytes:
    """The line of the command that salloc starts on the granted nodes; empty: nodes were not granted."""
    assert salloc.stdout is not None
    try:
        return await asyncio.wait_for(salloc.stdout.readline(), wait_seconds + _LATE_SECONDS)
    except TimeoutError:
        return b""


async def _give_back(salloc: Process, said: bytearray, environ: Mapping[str, str], *, granted: bool) -> None:
    """End salloc: a pending one by a signal, one with nodes by the end of its command. A signal then lets it run for ever (22.05)."""
    assert salloc.stdin is not None
    salloc.stdin.close()
    if not granted:
        with suppress(ProcessLookupError):
            salloc.terminate()
    try:
        await asyncio.wait_for(salloc.wait(), _LEAVE_SECONDS)
        return
    except TimeoutError:
        kill(salloc)
        await salloc.wait()
    if found := _PENDING.search(said):
        cancel = await asyncio.create_subprocess_exec(
            *("scancel", found[1].decode()), env=dict(environ), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        await cancel.wait()


async def _read(process: Process, into: bytearray) -> None:
    assert process.stderr is not None
    while piece := await process.stderr.read(1 << 12):
        into += piece


def _not_granted(job: Submission, said: str, code: int | None, wait_seconds: float) -> Exception:
    """Why salloc has no nodes: Slurm refused the job, or they are in use."""
    if "queued and waiting" in said or "Connection timed out" in said or code is None:
        return nodes_in_use(job.hosts, wait_seconds)
    return refused("salloc", said, code)


def _not_started(node: str, lost: ConnectionLost) -> PacelineError:
    lines = [line.strip() for line in str(lost).splitlines() if line.strip()]
    # What the node said; srun may add any number of lines on how it ends the step.
    of_the_node = [line for line in lines if not line.startswith("srun: ")] or lines
    return UsageError(
        "E11",
        f"no program could be started on the node {node}",
        saw="; ".join(of_the_node[-3:]) or f"srun ended with {lost.code} and said nothing",
        next=f"srun {shlex.join(('--nodelist', node, '--nodes', '1'))} python3 --version",
    )
