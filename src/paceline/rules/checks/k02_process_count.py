"""K02: a host should have as many ranks as GPUs, and no more ranks than CPUs."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import names_only_gloo
from paceline.spelling import plural

PAGE = """\
Ranks of a host and its GPUs do not agree

What it means: A host has more ranks than GPUs (8 ranks on 4 GPUs), fewer ranks than GPUs (1 rank on 8 GPUs: seven are
  paid for and idle), or more ranks than CPUs.
Why it matters: NCCL refuses two ranks on one GPU, minutes after the start. With gloo the two ranks take turns on it.
  An idle GPU costs as much as a busy one. Ranks without a CPU of their own wait for each other in every step.
What to do: Start one rank for each GPU: `--nproc-per-node gpu`, processes_per_host= of `mpi`, or no number under
  `torch_distributed`. A single process that drives all GPUs itself (spawn, DataParallel, device_map) is not reported
  if the script shows it.
Source: the catalogue's GPU counts, or the host's own; aws/amazon-sagemaker-examples issue 2023; paceline help R08.
"""

# Under these, one process drives all GPUs of a host.
_ONE_FOR_ALL = ("parameter_server", "multi_worker_mirrored_strategy")
# Names in a script whose single process uses several GPUs.
_DRIVES_ALL = (
    "spawn",
    "DataParallel(",
    "device_map",
    "MirroredStrategy",
    "Process(",
    "subprocess",
    "os.system",
    "Trainer(",
    "notebook_launcher",
    "import ray",
    "deepspeed",
)


def find(before: BeforeRun) -> Iterator[Finding]:
    """Too many or too few ranks for the GPUs, or too many for the CPUs."""
    ranks = before.ranks_per_host
    if ranks is None:
        raise Unknown("the number of ranks of a host, which the host itself decides")
    gpus = before.gpus_per_host if before.cpus_per_host is None else 0
    if gpus is None:
        raise Unknown("how many GPUs a host has")
    if gpus == 0:
        yield from _on_cpus(before, ranks)
    elif ranks > gpus:
        yield _too_many(before, ranks, gpus)
    elif ranks < gpus and not _drives_all(before, ranks):
        idle = gpus - ranks
        yield Finding(
            code="K02",
            severity=Severity.WARNING,
            what=f"{idle} of {gpus} GPUs of each host would be idle",
            saw=f"{_ranks(ranks)} on a host with {_gpus(before, gpus)}",
            next=f"start {gpus} ranks on each host: {_how(before, gpus)}",
        )


def _too_many(before: BeforeRun, ranks: int, gpus: int) -> Finding:
    on_cpus = names_only_gloo(before)
    return Finding(
        code="K02",
        severity=Severity.WARNING if on_cpus else Severity.ERROR,
        what=f"{_ranks(ranks)} on each host share {_gpus(before, gpus)}"
        + ("" if on_cpus else "; NCCL refuses two ranks on one GPU"),
        saw=f"{_ranks(ranks)} on a host with {_gpus(before, gpus)}" + (", backend gloo" if on_cpus else ""),
        next=f"start {_ranks(gpus)} on each host: {_how(before, gpus)}",
    )


def _on_cpus(before: BeforeRun, ranks: int) -> Iterator[Finding]:
    cpus = before.machine.vcpu_count if before.machine is not None else before.cpus_per_host
    if cpus is None:
        raise Unknown("how many CPUs a host has")
    if ranks > cpus:
        yield Finding(
            code="K02",
            severity=Severity.WARNING,
            what=f"{_ranks(ranks)} on each host share {cpus} CPUs: each waits for a CPU and delays the others",
            saw=f"{before.instance_type or before.machine.name if before.machine else 'this machine'} has {cpus} CPUs and no GPU",
            next=f"start {_ranks(cpus)} at most on each host: {_how(before, cpus)}",
        )


def _drives_all(before: BeforeRun, ranks: int) -> bool:
    """Whether one process may use every GPU.

    Raises:  Unknown: only the script tells, and it was not read
    """
    if before.launcher in _ONE_FOR_ALL:
        return True
    if ranks > 1:
        return False
    if before.script is None:
        raise Unknown("whether the script's one process drives all GPUs (the script was not read)")
    return any(word in before.script for word in _DRIVES_ALL)


def _ranks(count: int) -> str:
    return f"{count} {plural(count, 'rank')}"


def _gpus(before: BeforeRun, count: int) -> str:
    gpus = f"{count} {plural(count, 'GPU')}"
    kind = before.machine.accelerator if before.machine is not None else None
    return f"{gpus} ({kind})" if kind else gpus


def _how(before: BeforeRun, count: int) -> str:
    if before.launcher == "mpi":
        return f"processes_per_host={count}"
    if before.launcher == "plain" and before.engine == "sagemaker":
        return 'distribution={"torch_distributed": {"enabled": True}}'
    return f"--nproc-per-node {count}"


RULE = Rule(code="K02", page=PAGE, find=find)
