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

What it means: The job's environment sets a variable that says which rank a process is, where the ranks meet, or what
  the contract contains: RANK, WORLD_SIZE, MASTER_ADDR, SM_HOSTS and similar. paceline sets these itself for every
  rank and ignores the job's values.
Why it matters: Only the launcher knows rank and size. If two sources disagree, ranks wait for others that do not
  exist, or two ranks have the same number. A silently overwritten value would hide that the setting has no effect.
What to do: Remove the variable from `environment`. Set the number of hosts and ranks with instance_count and
  distribution, or with --nnodes and --nproc-per-node, and a port with --master-port. The job may set SM_MODEL_DIR and
  SM_OUTPUT_DATA_DIR; they are not reported.
Source: torch.distributed.run, "Environment Variables"; docs/contract.md; paceline help R06.
"""

# Variables that differ per rank or say how ranks meet.
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
# Variables of the contract that a job may set itself.
_OF_THE_USER = ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR")
_PREFIXES = ("SM_HP_", "SM_CHANNEL_")
_HARMLESS = re.compile(r"[0-9]{1,6}|localhost|127\.0\.0\.1|algo-[0-9]+")


def find(before: BeforeRun) -> Iterator[Finding]:
    """One finding for all such variables, without those that agree with the job."""
    agreed = _agreed(before)
    names = [name for name, value in before.environment.items() if _is_owned(name) and agreed.get(name) != value]
    if not names:
        return
    shown = [f"{name}={_shown(str(before.environment[name]))}" for name in names]
    them = "it" if len(names) == 1 else "them"
    yield Finding(
        code="K09",
        severity=Severity.WARNING,
        what=f"the environment sets {_listed(names)}, which the launcher sets for every rank: the job's values are ignored",
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
    """The known values that the launcher will set equally for all ranks."""
    known = {"GROUP_WORLD_SIZE": str(before.hosts), "SM_HOST_COUNT": str(before.hosts)}
    if before.ranks_per_host is not None:
        known["WORLD_SIZE"] = known["ROLE_WORLD_SIZE"] = str(before.hosts * before.ranks_per_host)
        known["LOCAL_WORLD_SIZE"] = str(before.ranks_per_host)
    return known


def _job(agreed: dict[str, str]) -> str:
    ranks = f", {agreed['WORLD_SIZE']} ranks" if "WORLD_SIZE" in agreed else ""
    return f"hosts: {agreed['GROUP_WORLD_SIZE']}{ranks}"


def _shown(value: str) -> str:
    """The text of a number or of a host of the contract; other text could be a secret and is not printed."""
    return value if _HARMLESS.fullmatch(value) else "***"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


RULE = Rule(code="K09", page=PAGE, find=find)
