"""Judges a case: asks every cause, and keeps the better one of several that name the same ranks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.grounds import not_surer_than_its_grounds
from paceline.diagnosis.hang.unexplained import unexplained
from paceline.diagnosis.unexplained_time import unexplained_time
from paceline.facts import host_order
from paceline.findings import Cause, CauseFinding, Confidence, Unknown
from paceline.recording.fact_json import fact_or_none

SURER = {Confidence.HIGH: 0, Confidence.LIKELY: 1, Confidence.UNCLEAR: 2}
_ORDER: dict[str, int] = {level: place for place, level in enumerate((
    Level.DIVERGENCE, Level.CRASH, Level.LIMIT, Level.START, Level.STALL, Level.WAITING, Level.QUALITY, Level.SLOW,
))}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The answer for one case."""

    findings: tuple[CauseFinding, ...]
    """The causes that were found."""
    not_judged: tuple[str, ...] = ()
    """Causes that could not be examined, each with the missing fact."""


def diagnose(case: Case, causes: Sequence[Cause]) -> Diagnosis:
    """Ask every cause, and choose between those that name the same ranks.

    Holds:   a finding that is kept is displaced by no other; two faults of different ranks give two findings
    """
    found: list[CauseFinding] = []
    missing: list[str] = []
    for cause in causes:
        try:
            # One by one: what a rule found before it missed a fact counts.
            for finding in cause.find(case):
                found.append(not_surer_than_its_grounds(case, cause, finding))
        except Unknown as unknown:
            missing.append(f"{cause.code} {cause.title}: {unknown}")
        except Exception as error:
            # A failing rule must not hide the answers of the others from a job in trouble; it is listed as failed.
            missing.append(f"{cause.code} {cause.title}: its rule failed ({type(error).__name__}: {error})")
    beats = {cause.code: frozenset(cause.beats) for cause in causes}
    kept = _best_of_each_claim([finding for finding in found if not _is_displaced(finding, found, beats)])
    if (
        all(finding.level in (Level.SLOW, Level.QUALITY) for finding in kept)
        and (stall := unexplained(case)) is not None
    ):
        kept.append(stall)
    kept = sorted(kept, key=reading_order)
    detected = _detected_after(case)
    return Diagnosis(
        findings=tuple(
            replace(f, detected_after_seconds=detected)
            if detected is not None and f.level in (Level.STALL, Level.WAITING)
            else f
            for f in (_with_hosts(finding, case) for finding in kept)
        ),
        not_judged=(*case.not_judged, *missing, *unexplained_time(case, kept)),
    )


def reading_order(finding: CauseFinding) -> tuple[Any, ...]:
    """Sorts findings as they are to be read: by level, then the surest first."""
    return _ORDER.get(finding.level, 9), SURER[finding.confidence], finding.code, finding.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJudgement:
    """What was told of a finding while the run lasted, if it differs from what the recording says now."""

    code: str
    """A code with a page: `paceline help CODE`."""
    ranks: tuple[int, ...]
    """Global ranks."""
    live: str
    """What was told first: confidence, and since which step; empty: it was not told."""
    now: str
    """The same as the recording is judged now; empty: it is not found."""


def told_otherwise(
    findings: Iterable[CauseFinding], events: Iterable[Mapping[str, Any]], attempt: int
) -> tuple[LiveJudgement, ...]:
    """Where the judgement of the recording differs from the `cause` events of this attempt. A live run judges with less at hand."""
    told: dict[tuple[str, tuple[int, ...]], str] = {}
    for event in events:
        if event.get("event") == "cause" and event.get("attempt", 0) == attempt:
            if (finding := fact_or_none(CauseFinding, event.get("finding"))) is not None:
                told.setdefault((finding.code, finding.ranks), _how_sure(finding))
    now = {(finding.code, finding.ranks): _how_sure(finding) for finding in findings}
    return tuple(
        LiveJudgement(code=code, ranks=ranks, live=told.get((code, ranks), ""), now=now.get((code, ranks), ""))
        for code, ranks in dict.fromkeys((*now, *told))
        if told.get((code, ranks)) != now.get((code, ranks))
    )


def _how_sure(finding: CauseFinding) -> str:
    since = "" if finding.since_step is None else f", since step {finding.since_step}"
    return f"{finding.confidence}{since}"


def _with_hosts(finding: CauseFinding, case: Case) -> CauseFinding:
    """Adds the hosts of the ranks if a rule names ranks only."""
    if finding.hosts or not finding.ranks:
        return finding
    return replace(finding, hosts=host_order(host for rank in finding.ranks if (host := case.host_of(rank)) != "?"))


def _is_displaced(finding: CauseFinding, found: Iterable[CauseFinding], beats: dict[str, frozenset[str]]) -> bool:
    return any(
        finding.code in beats.get(other.code, ())
        and _same_claim(finding, other)
        and SURER[other.confidence] <= max(SURER[finding.confidence], SURER[Confidence.LIKELY])
        for other in found
        if other is not finding
    )


def _same_claim(one: CauseFinding, other: CauseFinding) -> bool:
    """Whether two findings explain the same trouble: they name a common rank, or one of them names no rank."""
    if one.ranks and other.ranks:
        return bool(set(one.ranks) & set(other.ranks))
    return not one.hosts or not other.hosts or bool(set(one.hosts) & set(other.hosts))


def _best_of_each_claim(found: Sequence[CauseFinding]) -> list[CauseFinding]:
    """Of findings of one level about the same ranks the most certain; if none is certain, the two best."""
    kept: list[CauseFinding] = []
    for finding in sorted(found, key=lambda f: (SURER[f.confidence], f.code)):
        rivals = [
            k for k in kept if _kind(k) == _kind(finding) and k.ranks and finding.ranks and _same_claim(k, finding)
        ]
        surest = min((SURER[rival.confidence] for rival in rivals), default=3)
        if not rivals or (surest == SURER[Confidence.UNCLEAR] and len(rivals) < 2):
            kept.append(finding)
    return kept


def _kind(finding: CauseFinding) -> str:
    return Level.STALL if finding.level == Level.WAITING else finding.level


def _detected_after(case: Case) -> float | None:
    still = case.stall
    return None if still is None else round((still.detected_ns - still.since_ns) / 1e9, 1)
