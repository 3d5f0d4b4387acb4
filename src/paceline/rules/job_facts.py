"""What is known of a job before anything is uploaded or started, and the checks that it passes then."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.catalog.types import MachineType
from paceline.errors import UsageError
from paceline.findings import Finding, Rule, Severity, Verdict, judge
from paceline.planner.answer import Row
from paceline.rules import discover

LAUNCHERS = (
    "plain",
    "torch_distributed",
    "smdistributed",
    "pytorchddp",
    "mpi",
    "parameter_server",
    "multi_worker_mirrored_strategy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKeys:
    """A channel as a check sees it: how it is dealt out, and how many keys there are to deal. `key_count` None: not counted."""

    name: str
    distribution: str = "FullyReplicated"
    key_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeRun:
    """One job before it starts. None is unknown, never "none"; a check that needs it then says that it could not look.

    `instance_type`: as the job names it, None where it names none; `machine`: what the catalogue or the user's own file has under that
    name. `ranks_per_host` None: decided on the host ('gpu', 'auto'). `gpus_per_host` 0: the hosts have none. `launcher`: one of LAUNCHERS.
    `max_run_seconds` None: no limit. `arguments`: the script's own, before the hyperparameters, which reach it as `profile` says.
    `script`: the text of the entry point where that is Python, None where it is not, or was not read; `script_path`: as messages name
    it. `requirements`: the text of requirements.txt, None without one. `plan`: the planner's row for these machines, these hosts.
    """

    engine: str = "local"
    instance_type: str | None = None
    machine: MachineType | None = None
    hosts: int = 1
    ranks_per_host: int | None = None
    gpus_per_host: int | None = None
    launcher: str = "plain"
    framework: str | None = None
    framework_version: str | None = None
    py_version: str | None = None
    image_uri: str | None = None
    max_run_seconds: float | None = None
    use_spot: bool = False
    checkpoint_url: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    profile: str = "v2"
    arguments: tuple[str, ...] = ()
    channels: tuple[ChannelKeys, ...] = ()
    script: str | None = None
    script_path: str = ""
    requirements: str | None = None
    plan: Row | None = None


def all_checks() -> tuple[Rule, ...]:
    """Every check that a job passes before it is submitted."""
    return discover("checks")


def checks_of(before: BeforeRun) -> tuple[Verdict, ...]:
    """One verdict per check, in order of code. Runs nothing of the job's: the script is only parsed."""
    return tuple(judge(all_checks(), before))


def findings_of(verdicts: Iterable[Verdict]) -> tuple[Finding, ...]:
    """Everything found, what stops the job first."""
    found = [finding for verdict in verdicts for finding in verdict.findings]
    order = tuple(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def refusal(verdicts: Iterable[Verdict]) -> UsageError | None:
    """The error that stops the job, in the first finding's four parts; None where nothing stops it."""
    errors = [finding for finding in findings_of(verdicts) if finding.severity is Severity.ERROR]
    if not errors:
        return None
    first = errors[0]
    besides = (
        f" (and {len(errors) - 1} more errors)" if len(errors) > 2 else " (and 1 more error)" if errors[1:] else ""
    )
    return UsageError(first.code, first.what + besides, saw=first.saw, next=first.next, more=first.more)
