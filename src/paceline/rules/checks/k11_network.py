"""K11: the network of several hosts is only a burst rate, or many accelerators share it."""

import shlex
from collections.abc import Iterator

from paceline.catalog.compatibility import JobKind, Support, support
from paceline.findings import Finding, Rule, Severity, Unknown
from paceline.rules.job_facts import BeforeRun

PAGE = """\
Several hosts of a type whose network is not made for that

What it means: The job runs on more than one host, and the network of the type is weak in one of three ways. Its
  advertised rate is a burst of minutes, its accelerators share the rate so that each has less than 10 Gbit/s, or its
  CPUs run on credits.
Why it matters: All hosts exchange every gradient in every step. A job that was fast in a short test slows down after
  5 to 60 minutes, or two hosts are slower than one. No error reports it.
What to do: Compare with `paceline plan --instance TYPE --host-counts 1,2,4 SCRIPT`, which shows the efficiency by number
  of hosts; for a type without a GPU add `--for ddp-cpu --from-run RUN` of a short run. One larger host is often faster
  than two small ones. If you keep the network, `--gradients auto` looks for the exchange that suits it.
Source: EC2 user guide, "Amazon EC2 instance network bandwidth"; paceline/catalog/compatibility.py.
"""

_WEIGHTY = ("burst_gbps", "gbps_each")


def find(before: BeforeRun) -> Iterator[Finding]:
    """The catalogue's serious reasons against several hosts of this type."""
    machine = before.machine
    if before.hosts == 1 or (machine is None and before.engine == "local"):
        return
    if machine is None:
        raise Unknown("the network of the hosts: their machine type")
    network, processors = support(machine, JobKind.MULTI_HOST), support(machine, JobKind.DDP_CPU, nearest=False)
    weighty = [reason.text for reason in network.reasons if any(key in reason.numbers for key in _WEIGHTY)]
    metered = [reason.text for reason in processors.reasons if "credits" in reason.text and not machine.accelerator]
    if network.allowed is None and not metered:
        raise Unknown("; ".join(reason.text for reason in network.reasons if reason.forbids is None))
    if not weighty and not metered:
        return
    name = before.instance_type or machine.name
    on_cpus = "" if machine.accelerator else " --for ddp-cpu"
    besides = [reason.text for reason in network.reasons if reason.text not in weighty]
    yield Finding(
        code="K11",
        severity=Severity.WARNING,
        what=f"{before.hosts} hosts exchange every gradient over the network of {name}",
        saw="; ".join((*weighty, *metered, *besides, *_better(network, name))),
        next=f"paceline plan --instance {name} --host-counts 1,2,4{on_cpus} {shlex.quote(before.script_path or 'SCRIPT')}",
    )


def _better(network: Support, name: str) -> tuple[str, ...]:
    prefix = "ml." if name.startswith("ml.") else ""
    near = [prefix + one for one in network.nearest]
    return (f"types with a suitable network: {', '.join(near)}",) if near else ()


RULE = Rule(code="K11", page=PAGE, find=find)
