"""K09: the job's environment sets a variable that the launcher sets for every rank."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paceline.contract.environment import HostContract, variables
from paceline.contract.tree import Tree
from paceline.findings import Finding, Rule, Severity
from paceline.rules.job_facts import BeforeRun

PAGE = """\
The environment sets a variable that the launcher owns

What it means: The job's environment has a variable that says who a rank is, where the ranks meet, or what the contract lays out: RANK,
  WORLD_SIZE, MASTER_ADDR, SM_HOSTS and their like. paceline sets these itself for every rank, and what the job says is not used.
Why it matters: Rank and size have one owner. Where two disagree, ranks wait for others that do not exist, or two take the same number.
  A value that is silently overwritten is a wish that nobody answers.
What to do: Leave the variable out of `environment`. How many hosts and ranks there are is said with instance_count and distribution, or
  --nnodes and --nproc-per-node; a port with --master-port. SM_MODEL_DIR and SM_OUTPUT_DATA_DIR are the job's to set, and not reported.
Source: torch.distributed.run, "Environment Variables"; docs/contract.md; paceline explain R06.
"""

# What differs per rank, or says how ranks meet.
OF_A_RANK = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_NAME",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
)
# Of the contract, and left to whoever sets it beforehand.
_OF_THE_USER = ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR")
_PREFIXES = ("SM_HP_", "SM_CHANNEL_")
_HARMLESS = re.compile(r"[0-9]{1,6}|localhost|127\.0\.0\.1|algo-[0-9]+")


def find(before: BeforeRun) -> Iterator[Finding]:
    """One finding for all such variables, those that agree with the job left out."""
    agreed = _agreed(before)
    names = [name for name, value in before.environment.items() if _is_owned(name) and agreed.get(name) != value]
    if not names:
        return
    shown = [f"{name}={_shown(str(before.environment[name]))}" for name in names]
    them = "it" if len(names) == 1 else "them"
    yield Finding(
        code="K09",
        severity=Severity.WARNING,
        what=f"the environment sets {_listed(names)}, which the launcher sets for every rank: what the job says is not used",
        saw=", ".join(shown) + (f"; this job: {_job(agreed)}" if set(names) & set(agreed) else ""),
        next=f"leave {them} out of the job's environment",
    )


@cache
def _of_the_contract() -> frozenset[str]:
    host = HostContract(
        job_name="",
        hosts=("algo-1",),
        current_host="algo-1",
        master_addr="",
        master_port=0,
        tree=Tree(Path("/opt/ml")),
        entry_point="",
        module_dir="",
    )
    return frozenset(variables(host)) - set(_OF_THE_USER)


def _is_owned(name: str) -> bool:
    return name in OF_A_RANK or name in _of_the_contract() or name.startswith(_PREFIXES)


def _agreed(before: BeforeRun) -> dict[str, str]:
    """What the launcher will set to the same for all ranks, as far as it is known."""
    known = {"GROUP_WORLD_SIZE": str(before.hosts), "SM_HOST_COUNT": str(before.hosts)}
    if before.ranks_per_host is not None:
        known["WORLD_SIZE"] = known["ROLE_WORLD_SIZE"] = str(before.hosts * before.ranks_per_host)
        known["LOCAL_WORLD_SIZE"] = str(before.ranks_per_host)
    return known


def _job(agreed: dict[str, str]) -> str:
    ranks = f", {agreed['WORLD_SIZE']} ranks" if "WORLD_SIZE" in agreed else ""
    return f"hosts: {agreed['GROUP_WORLD_SIZE']}{ranks}"


def _shown(value: str) -> str:
    """A number or a host of the contract as it is; anything else could be a secret, and is not printed."""
    return value if _HARMLESS.fullmatch(value) else "***"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


RULE = Rule(code="K09", page=PAGE, find=find)
