"""What is known about a job before anything is uploaded or started, and the checks for it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paceline.errors import UsageError
from paceline.findings import Finding, Judgement, Rule, Severity, Verdict, judge
from paceline.rules import checks_of_parts, discover

if TYPE_CHECKING:  # a run asks the checks of source, which need neither
    from paceline.catalog.types import MachineType
    from paceline.part import ExpectedLength


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelKeys:
    """A channel as a check sees it: how its keys are distributed, and how many there are."""

    name: str
    """The channel's name."""
    distribution: str = "FullyReplicated"
    """FullyReplicated or ShardedByS3Key."""
    key_count: int | None = None
    """Number of keys; None: not counted."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the user's own that the script imports, directly or through others."""

    path: str
    """As messages name it: below the directory of the code."""
    text: str
    """Its text as Python would decode it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeRun:
    """One job before it starts. None is unknown, never "none"; a check that needs it then says that it could not look."""

    engine: str = "local"
    """Where the job is to run."""
    instance_type: str | None = None
    """As the job names it; None: it names none."""
    machine: "MachineType | None" = None
    """What the catalogue or the user's own file has under that name."""
    hosts: int = 1
    """Number of hosts."""
    ranks_per_host: int | None = None
    """None: decided on the host ('gpu', 'auto')."""
    gpus_per_host: int | None = None
    """0: the hosts have none."""
    cpus_per_host: int | None = None
    """CPUs of a host that certainly has no GPU; None: not known, or `machine` has them."""
    master_addr: str | None = None
    """Where the hosts meet; None: the engine says it."""
    has_opt_ml: bool = False
    """The real /opt/ml is the job's tree."""
    launcher: str = "plain"
    """plain, torch_distributed, smdistributed, pytorchddp, mpi, parameter_server or multi_worker_mirrored_strategy."""
    framework: str | None = None
    """Such as pytorch."""
    framework_version: str | None = None
    """Such as 2.6.0."""
    torch_version: str | None = None
    """Of the interpreter that the ranks get; None: not known."""
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
    imported: tuple[SourceFile, ...] = ()
    """The user's own files beside the script: those that it imports, and where one of these is judged, the script and the other ones."""
    requirements: str | None = None
    """The text of requirements.txt; None: there is none."""
    plan: "ExpectedLength | None" = None
    """The plan of the job on these machines; None: there is none."""

    @property
    def rank_count(self) -> int:
        """Ranks of all hosts; two for each host that decides their number itself."""
        return self.hosts * (self.ranks_per_host or 2)

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of the script and of the user's own files beside it; empty where the script was not read."""
        return (self.script or "", *(file.text for file in self.imported))


def all_checks() -> tuple[Rule, ...]:
    """Every check that a job passes before it is submitted, in order of code."""
    return tuple(sorted((*discover("checks"), *checks_of_parts(), *discover("source")), key=lambda rule: rule.code))


def checks_of(before: BeforeRun) -> tuple[Verdict, ...]:
    """One verdict per check, in order of code. Runs nothing of the job's: the script and what it imports are only parsed."""
    verdicts = (*judge((*discover("checks"), *checks_of_parts()), before), *source_verdicts(before))
    return tuple(sorted(verdicts, key=lambda verdict: verdict.code))


def source_verdicts(before: BeforeRun) -> tuple[Verdict, ...]:
    """One verdict per check of source, asked of the script and of each file that it imports; what a line ignores stands apart."""
    rules = discover("source")
    ignored = ignored_lines([SourceFile(before.script_path, before.script or ""), *before.imported])
    return tuple(
        without_ignored(_with_imported(rule, verdict, before), ignored)
        for rule, verdict in zip(rules, judge(rules, before), strict=True)
    )


def _with_imported(rule: Rule, verdict: Verdict, before: BeforeRun) -> Verdict:
    """What the rule says of the script, and of each file that it imports."""
    if verdict.judgement is Judgement.NOT_JUDGED:
        return verdict
    findings = list(verdict.findings)
    files = (SourceFile(before.script_path, before.script or ""), *before.imported)
    for file in before.imported:
        others = tuple(other for other in files if other is not file)
        (of_file,) = judge((rule,), replace(before, script=file.text, script_path=file.path, imported=others))
        findings += (_milder(finding) if finding.code != "K06" else finding for finding in of_file.findings)
    return Verdict(verdict.code, Judgement.FIRED if findings else Judgement.SILENT, tuple(findings))


def _milder(finding: Finding) -> Finding:
    """What an imported file holds may never be called: it is said, and stops nothing."""
    return replace(finding, severity=Severity.WARNING) if finding.severity is Severity.ERROR else finding


_IGNORES = re.compile(r"#\s*paceline:\s*ignore\[([A-Z0-9,\s]+)\]")


def ignored_lines(files: Iterable[SourceFile]) -> dict[tuple[str, int], frozenset[str]]:
    """(file, line) -> the codes that a comment `# paceline: ignore[K07] reason` there switches off.

    A comment that has a line to itself is about the line below it.
    """
    found: dict[tuple[str, int], frozenset[str]] = {}
    for file in files:
        if "paceline:" not in file.text:
            continue
        for number, line in enumerate(file.text.split("\n"), 1):
            if match := _IGNORES.search(line):
                below = number + 1 if line.lstrip().startswith("#") else number
                found[file.path, below] = frozenset(code.strip() for code in match[1].split(","))
    return found


def without_ignored(verdict: Verdict, ignored: Mapping[tuple[str, int], frozenset[str]]) -> Verdict:
    """The verdict without the findings that their own line ignores; those are kept beside it."""
    off = tuple(one for one in verdict.findings if one.code in ignored.get((one.file or "", one.line or 0), ()))
    if not off:
        return verdict
    left = tuple(one for one in verdict.findings if one not in off)
    return replace(verdict, judgement=Judgement.FIRED if left else Judgement.SILENT, findings=left, ignored=off)


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
