"""What is known about a job before anything is uploaded or started, and the checks for it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.catalog.types import MachineType
from paceline.errors import UsageError
from paceline.findings import Finding, Rule, Severity, Verdict, judge
from paceline.planner.answer import Row
from paceline.rules import discover


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKeys:
    """A channel as a check sees it: how its keys are distributed, and how many there are."""

    name: str
    """The channel's name."""
    distribution: str = "FullyReplicated"
    """FullyReplicated or ShardedByS3Key."""
    key_count: int | None = None
    """Number of keys; None: not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeRun:
    """One job before it starts. None is unknown, never "none"; a check that needs it then says that it could not look."""

    engine: str = "local"
    """Where the job is to run."""
    instance_type: str | None = None
    """As the job names it; None: it names none."""
    machine: MachineType | None = None
    """What the catalogue or the user's own file has under that name."""
    hosts: int = 1
    """Number of hosts."""
    ranks_per_host: int | None = None
    """None: decided on the host ('gpu', 'auto')."""
    gpus_per_host: int | None = None
    """0: the hosts have none."""
    launcher: str = "plain"
    """plain, torch_distributed, smdistributed, pytorchddp, mpi, parameter_server or multi_worker_mirrored_strategy."""
    framework: str | None = None
    """Such as pytorch."""
    framework_version: str | None = None
    """Such as 2.6.0."""
    py_version: str | None = None
    """Such as py311."""
    image_uri: str | None = None
    """The container."""
    max_run_seconds: float | None = None
    """None: no limit."""
    use_spot: bool = False
    """The machines may be taken away."""
    checkpoint_url: str | None = None
    """What the checkpoints directory is kept in step with."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every rank."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """The values, as Python has them."""
    profile: str = "v2"
    """How hyperparameters reach the script: v2 or v3 of the SDK."""
    arguments: tuple[str, ...] = ()
    """The script's own, before the hyperparameters."""
    channels: tuple[ChannelKeys, ...] = ()
    """What is known of each input channel."""
    script: str | None = None
    """The text of the entry point; None: it is not Python, or was not read."""
    script_path: str = ""
    """As messages name the script."""
    requirements: str | None = None
    """The text of requirements.txt; None: there is none."""
    plan: Row | None = None
    """The planner's row for these machines."""


def all_checks() -> tuple[Rule, ...]:
    """Every check of a job before it is submitted."""
    return discover("checks")


def checks_of(before: BeforeRun) -> tuple[Verdict, ...]:
    """One verdict per check, in order of code. Runs nothing of the job's: the script is only parsed."""
    return tuple(judge(all_checks(), before))


def findings_of(verdicts: Iterable[Verdict]) -> tuple[Finding, ...]:
    """All findings, those that stop the job first."""
    found = [finding for verdict in verdicts for finding in verdict.findings]
    order = tuple(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def refusal(verdicts: Iterable[Verdict]) -> UsageError | None:
    """The error that stops the job, with the four parts of the first finding; None if no finding stops it."""
    errors = [finding for finding in findings_of(verdicts) if finding.severity is Severity.ERROR]
    if not errors:
        return None
    first = errors[0]
    besides = (
        f" (and {len(errors) - 1} more errors)" if len(errors) > 2 else " (and 1 more error)" if errors[1:] else ""
    )
    return UsageError(first.code, first.what + besides, saw=first.saw, next=first.next, more=first.more)
