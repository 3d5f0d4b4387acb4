"""K01: the machine type is unknown or does not fit this kind of job."""

import re
from collections.abc import Iterator

from paceline.catalog.compatibility import JobKind, Support, support
from paceline.catalog.lookup import machine_types
from paceline.catalog.names import nearest_types, type_key
from paceline.catalog.types import MachineType
from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.job_facts import BeforeRun
from paceline.rules.ranks_in_source import names_only_gloo

PAGE = """\
A machine type that does not exist, or is not for this job

What it means: One of five things is wrong with the machine type. It is not in the catalogue. SageMaker's
  CreateTrainingJob does not accept it. torch cannot use its accelerators as GPUs. The job asks for a rank on each GPU, the
  type has no GPU, and the script does not name gloo. Or the job asks for smdistributed on a type that AWS's library never
  supported. "saw" has the reason in numbers, "next" the nearest type that works.
Why it matters: A wrong name is refused only after the code was uploaded. Published lists contain names that never
  existed, such as ml.p3dn.48xlarge. A type that cannot run the job fails after it was paid for.
What to do: Use the type under "next", or look types up: `paceline plan --instances TYPE --for smddp`. For smdistributed
  there is only a warning, because paceline does not use AWS's library: its own exchange runs on every type. A type
  whose family is newer than the catalogue also gives only a warning. A machine of your own needs no type.
Source: paceline/catalog/data; botocore, CreateTrainingJob, TrainingInstanceType; SMDDP release notes.
"""

_LOCAL = ("local", "local_gpu")
# These start one rank for each GPU.
_ONE_PER_GPU = ("torch_distributed", "pytorchddp")
_SHAPE = re.compile(r"(ml\.)?([a-z0-9-]+)\.(nano|micro|small|medium|large|(\d+)?xlarge|metal(-\d+xl)?)")


def find(before: BeforeRun) -> Iterator[Finding]:
    """The catalogue's objections to the type, the most serious first."""
    name = before.instance_type
    if name in _LOCAL or (name is None and before.machine is None):
        return
    if before.machine is None:
        yield _no_such_type(str(name), before)
        return
    yield from _not_for_this(before, before.machine, name or before.machine.name)


def _no_such_type(name: str, before: BeforeRun) -> Finding:
    known = [one.name for one in machine_types()]
    if name.lower().replace("-", "_") in _LOCAL:
        near: tuple[str, ...] = (name.lower().replace("-", "_"),)
    else:
        near = nearest_types(name, known)
        near = tuple(f"ml.{one}" for one in near) if name.lower().startswith("ml.") else near
    shape = _SHAPE.fullmatch(name.strip().lower())
    family = type_key(name).partition(".")[0]
    is_new = shape is not None and family not in {one.partition(".")[0] for one in known}
    return Finding(
        code="K01",
        severity=Severity.WARNING if is_new or before.engine != "sagemaker" else Severity.ERROR,
        what=f"there is no machine type {name!r} in the catalogue"
        + (f"; the family {family} may be newer than the catalogue" if is_new else ""),
        saw=f"the nearest are {', '.join(near)}" if near else "the catalogue has no similar name",
        next=f"instance_type={near[0]!r}" if near else "paceline plan --instances",
    )


def _not_for_this(before: BeforeRun, machine: MachineType, name: str) -> Iterator[Finding]:
    if before.engine == "sagemaker":
        taken = support(machine, JobKind.SAGEMAKER_TRAINING)
        if taken.allowed is False:
            what = f"SageMaker does not train on {name}"
            yield _finding(what, taken, name, Severity.ERROR)
            return
        if taken.allowed is None:
            raise Unknown(_words(taken, None))
    if before.launcher == "smdistributed":
        library = support(machine, JobKind.SMDDP)
        if not library.allowed:
            what = f"smdistributed never supported {name}: paceline uses its own exchange"
            yield _finding(what, library, name, Severity.WARNING)
    torch = support(machine, JobKind.DDP_GPU)
    if machine.accelerator is not None:
        if torch.allowed is False:
            yield _finding(f"torch finds no GPU of its own on {name}", torch, name, Severity.WARNING)
    elif before.engine == "sagemaker" and before.launcher in _ONE_PER_GPU and torch.allowed is False:
        if not names_only_gloo(before):
            yield _finding(
                f"{name} has no GPU: DDP can train on its CPUs only, with gloo", torch, name, Severity.WARNING
            )


def _finding(what: str, why: Support, name: str, severity: Severity) -> Finding:
    prefix = "ml." if name.startswith("ml.") else ""
    near = [prefix + one for one in why.nearest]
    return Finding(
        code="K01",
        severity=severity,
        what=what,
        saw=_words(why, True),
        next=f"instance_type={near[0]!r}" + (f", or {' or '.join(near[1:])}" if near[1:] else "")
        if near
        else f"paceline plan --instances {name}",
    )


def _words(why: Support, forbids: bool | None) -> str:
    return "; ".join(reason.text for reason in why.reasons if reason.forbids is forbids)


RULE = Rule(code="K01", page=PAGE, find=find)
