"""A table of the refusals of Slurm's commands, and what to do about each. Pure."""

import re
from dataclasses import dataclass

from paceline.errors import UsageError


@dataclass(frozen=True, slots=True)
class SlurmRefusal:
    """One refusal of Slurm, and its meaning for a job."""

    pattern: re.Pattern[str]
    """Finds the refusal in a command's output."""
    code: str
    """Code of the error page."""
    what: str
    """What happened."""
    next: str
    """What to do."""


def _says(text: str, code: str, what: str, next: str) -> SlurmRefusal:
    return SlurmRefusal(re.compile(text, re.IGNORECASE), code, what, next)


_ALLOWED = "sacctmgr show assoc user=$USER format=account,partition,qos"

UNREACHABLE = _says(
    r"unable to contact slurm controller|slurm controller .{0,40}(?:not respond|unreachable)"
    r"|connection refused|communication connection failure"
    r"|socket timed out|zero bytes were transmitted|backup controller in standby|could not establish a configuration",
    "E10",
    "slurmctld cannot be reached",
    "scontrol ping",
)

REFUSALS = (
    UNREACHABLE,
    _says(
        r"process configuration file|slurm\.conf|cannot stat file",
        "E10",
        "Slurm's configuration cannot be read here",
        "ls -l $SLURM_CONF",
    ),
    _says(
        r"munge|authentication|security violation|invalid credential",
        "E10",
        "Slurm does not know who asks",
        "munge -n | unmunge",
    ),
    # These rows come before the rows for accounts and partitions, whose texts are part of these.
    _says(r"account or account/partition", "E34", "Slurm does not take this account here", _ALLOWED),
    _says(r"invalid qos", "E34", "Slurm does not take this QOS", _ALLOWED),
    _says(
        r"invalid partition|partition .{0,80}(?:not exist|invalid)|no partition specified",
        "E34",
        "there is no such partition",
        "sinfo -s",
    ),
    _says(
        r"not permitted to use this partition|access/permission denied|user not (?:in|permitted)",
        "E34",
        "this user may not do that in Slurm",
        _ALLOWED,
    ),
    _says(
        r"accounting/qos policy|assoc(?:iation)?.{0,80}limit|qosmax|qosmin|max(?:imum)? .{0,80}jobs",
        "E34",
        "the limits of the account or QOS do not allow it",
        _ALLOWED,
    ),
    _says(r"reservation", "E34", "there is no such reservation for this user", "scontrol show reservation"),
    _says(
        r"partition is (?:down|inactive)|partition.{0,80}not available",
        "E34",
        "the partition takes no jobs",
        "sinfo -s",
    ),
    _says(
        r"time limit|invalid --time",
        "E33",
        "the time limit is more than the partition gives, or no time",
        "--option time=MINUTES, at most that of sinfo -s",
    ),
    _says(r"node count", "E33", "the partition has not so many nodes", "sinfo -o '%P %D'"),
    _says(r"memory", "E33", "no node has so much memory", "sinfo -N -o '%N %m'"),
    _says(
        r"more processors|cpu count|invalid number of cpus", "E33", "no node has so many CPUs", "sinfo -N -o '%N %c'"
    ),
    _says(r"generic resource|\bgres\b|\bgpus?\b|\btres\b", "E33", "no node has such devices", "sinfo -N -o '%N %G'"),
    _says(r"feature", "E33", "no node has this feature", "sinfo -N -o '%N %f'"),
    _says(
        r"invalid node name|nodes? .{0,80}not (?:exist|in)|node configuration",
        "E33",
        "no such nodes are to be had",
        "sinfo -N -l",
    ),
    _says(r"licen[sc]e", "E33", "there is no such licence", "scontrol show licenses"),
    _says(r"job array", "E34", "Slurm does not take this array", "scontrol show config | grep MaxArraySize"),
    _says(r"dependency", "E34", "the dependency names no job", "squeue --me"),
    _says(
        r"unrecognized option|option .{0,80}requires an argument|ambiguous|invalid --",
        "E34",
        "sbatch does not take one of the options",
        "sbatch --help",
    ),
)
"""The first row that matches counts. Source: slurm_errno.c of Slurm 22.05, and sbatch's output on a real cluster."""


def refused(command: str, said: str, exit_code: int) -> UsageError:
    """The error for a Slurm command's output; E34 with Slurm's own words if no row of the table matches.

    Holds:   `saw` ends with Slurm's own words for every row
    """
    own = [line.strip() for line in said.splitlines() if line.strip()] or [
        f"{command} ended with {exit_code} and said nothing"
    ]
    saw = "; ".join(own[:3])
    for row in REFUSALS:
        if row.pattern.search(said):
            return UsageError(row.code, row.what, saw=saw, next=row.next)
    return UsageError(
        "E34",
        f"Slurm did not take it ({command} ended with {exit_code})",
        saw=saw,
        next="paceline submit --dry-run ...",
    )


def absent(command: str, path: str) -> UsageError:
    """The error E01: Slurm's commands are not on this machine."""
    return UsageError(
        "E01",
        f"there is no {command} here",
        saw=f"PATH is {path}",
        next="ssh to a login node of the cluster and submit there",
    )
