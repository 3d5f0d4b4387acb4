"""K36: a GPU that somebody uses, or that has lost data."""

from collections.abc import Iterator

from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.host_facts import HostsBefore

PAGE = """\
A GPU that is in use, or that has lost data

What it means: Before the job starts, a GPU has more than a tenth of its memory in use, or its driver has counted memory errors that ECC
  could not correct.
Why it matters: Memory that somebody holds is missing to this job (C07), and a busy GPU makes its rank the slow one that all others wait
  for. A GPU with uncorrected errors ends its rank (Xid 48, 94, 95) or should be taken out before it does.
What to do: `nvidia-smi` shows who uses it; `export CUDA_VISIBLE_DEVICES=...` leaves it out. After uncorrected errors: reset the GPU, or
  ask for another machine.
Source: NVIDIA, "Xid Errors"; nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total.
"""

_IDLE_FRACTION = 0.1


def find(before: HostsBefore) -> Iterator[Finding]:
    """Each such GPU."""
    asked = [host for host in before.hosts if host.gpus is not None]
    for host in asked:
        for gpu in host.gpus or ():
            used, memory = gpu.used_bytes, gpu.memory_bytes
            if used is not None and memory and used > _IDLE_FRACTION * memory:
                yield Finding(
                    code="K36",
                    severity=Severity.WARNING,
                    what=f"GPU {gpu.index} of {host.name} is in use: {used >> 20} of {memory >> 20} MiB",
                    saw=f"{gpu.name}, before the job starts",
                    next="nvidia-smi says who; export CUDA_VISIBLE_DEVICES=... leaves it out",
                )
            if gpu.uncorrected_errors:
                yield Finding(
                    code="K36",
                    severity=Severity.WARNING,
                    what=f"GPU {gpu.index} of {host.name} has {gpu.uncorrected_errors} memory errors that were not corrected",
                    saw=f"{gpu.name}, since its driver was loaded",
                    next=f"nvidia-smi -q -d ECC -i {gpu.index}",
                )
    if not asked:
        raise Unknown("the GPUs of the hosts: NVML could not be asked")


RULE = Rule(code="K36", page=PAGE, find=find)
