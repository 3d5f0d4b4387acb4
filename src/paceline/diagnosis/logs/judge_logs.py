"""Candidates for the cause from plain logs of a job that ran without paceline: torchrun, Slurm, SageMaker, NCCL, gloo, Python. Pure.

Order decides before wording: the first traceback wins over any summary, and what a victim says is no cause while another candidate exists.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.compare_dumps import judge_dumps
from paceline.diagnosis.logs.flight_recorder_dumps import RecorderDump
from paceline.diagnosis.logs.launcher import Blame, read_blame, stubborn
from paceline.diagnosis.logs.lines import Log, RankLine, Traceback, tracebacks
from paceline.diagnosis.logs.patterns import SIGNS, TITLES, Sign, is_symptom
from paceline.diagnosis.logs.time_limits import judge_limit, limits
from paceline.diagnosis.logs.timeouts import LoggedWait, follows, judge_waits, waits
from paceline.diagnosis.verdict import Diagnosis
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.spelling import plural

_LEVELS = {"N": Level.STALL, "M": Level.DIVERGENCE, "C": Level.CRASH, "R": Level.START, "S": Level.SLOW}
_SURE = {Confidence.HIGH: 0, Confidence.LIKELY: 1, Confidence.UNCLEAR: 2}
_MOST_FINDINGS = 4
_MOST_MATCHES = 200
_LAUNCHERS = ("ChildFailedError", "SignalException", "CalledProcessError")


@dataclass(slots=True)
class _Candidate:
    """One code and all lines of the logs that indicate it."""

    code: str
    """The cause."""
    means: str
    """What the lines mean."""
    confidence: Confidence
    """Confidence of the cause."""
    symptom: bool
    """The lines only report that another rank is gone."""
    place: tuple[int, int]
    """Number of the file and of the first line."""
    lines: list[RankLine] = field(default_factory=list)
    """The lines."""
    decides: list[str] = field(default_factory=list)
    """Commands or measurements that would decide."""


def judge_logs(
    logs: Sequence[Log], dumps: Sequence[RecorderDump] = (), titles: Mapping[str, str] | None = None
) -> Diagnosis:
    """Candidates, the likeliest first, each with the lines that point at it and what would decide.

    `titles`: code -> title of the causes that have a page.

    Holds:   a log with nothing in it that is known gives no finding
    """
    titles = TITLES | dict(titles or {})
    blame = read_blame(logs)
    first = _first_tracebacks(logs)
    reached, waited = limits(logs), waits(logs)
    candidates = _candidates(logs, blame)
    weak = [c for c in candidates.values() if c.symptom or _came_after(c, waited)]
    found = [_finding(candidate, titles) for candidate in candidates.values() if candidate not in weak]
    frozen = stubborn(blame, logs)
    found += frozen + judge_dumps(dumps)
    raised = _raised(first, found, blame)
    explained = bool(frozen or raised) or any(f.confidence is Confidence.HIGH and f.code != "C04" for f in found)
    late = [f for f in judge_waits(waited, logs, reached) if not explained or f.code != NO_CODE]
    own = [limit for limit in reached if not follows(limit, waited)]
    ended = judge_limit(own, logs, trouble=weak[0].lines[0] if weak else None)
    found = [*([raised] if raised else []), *ended, *found, *late]
    if not found:
        found = [_finding(candidate, titles) for candidate in weak]
    found = _once_each(found)
    return Diagnosis(
        findings=tuple(found[:_MOST_FINDINGS]), not_judged=tuple(_not_judged(logs, dumps, found, weak, blame))
    )


def _came_after(candidate: _Candidate, waited: Sequence[LoggedWait]) -> bool:
    """Whether somebody ended the job, but only once a rank had waited in vain: a consequence."""
    return bool(waited) and candidate.code == "C04" and waited[0].place < candidate.place


def _candidates(logs: Sequence[Log], blame: Blame) -> dict[str, _Candidate]:
    """Code -> candidate. On one line only the surest sign counts; a rank that the launcher killed itself is none."""
    hits: dict[tuple[int, int], list[tuple[Sign, RankLine]]] = {}
    for place, log in enumerate(logs):
        for sign in SIGNS:
            if not sign.may_be_in(log.text):
                continue
            for count, match in enumerate(sign.pattern.finditer(log.text)):
                if count == _MOST_MATCHES:
                    break
                line = _about(log.line_at(match.start()), match)
                hits.setdefault((place, line.number), []).append((sign, line))
    candidates: dict[str, _Candidate] = {}
    for where in sorted(hits):
        sign, line = min(hits[where], key=lambda hit: (hit[0].symptom, _SURE[hit[0].confidence]))
        if "-9" in line.text and _ended_by_launcher(line, blame):
            continue
        line = _with_rank(line, blame)
        for order, code in enumerate(sign.codes):
            confidence = sign.confidence if order == 0 else Confidence.UNCLEAR
            known = candidates.get(code if code != NO_CODE else sign.means)
            if known is None or (known.symptom and not sign.symptom):
                known = _Candidate(code, sign.means, confidence, sign.symptom, where)
                candidates[code if code != NO_CODE else sign.means] = known
            known.confidence = min(known.confidence, confidence, key=_SURE.__getitem__)
            known.lines.append(line)
            if sign.decides not in known.decides:
                known.decides.append(sign.decides)
    return candidates


def _about(line: RankLine, match: re.Match[str]) -> RankLine:
    """The line as one about the rank that has not come, where its writer only waited: of several, as about nobody."""
    named = match.groupdict()
    if "absent" not in named:
        return line
    absent = re.findall(r"\d+", named["absent"] or named.get("other") or "")
    return replace(line, rank=int(absent[0]) if len(absent) == 1 else None)


def _with_rank(line: RankLine, blame: Blame) -> RankLine:
    """A line of torchrun names a pid; its closing block says whose that was."""
    named = next((rank for rank, pid in blame.pids.items() if f"pid: {pid})" in line.text), None)
    return line if line.rank is not None or named is None else replace(line, rank=named)


def _ended_by_launcher(line: RankLine, blame: Blame) -> bool:
    return any(f"pid: {pid})" in line.text for pid in blame.own_kills)


def _finding(candidate: _Candidate, titles: Mapping[str, str]) -> CauseFinding:
    ranks = sorted({line.rank for line in candidate.lines if line.rank is not None})
    hosts = sorted({line.host for line in candidate.lines if line.host})
    shown = list(dict.fromkeys(line.shown() for line in candidate.lines))[:2]
    more = len(candidate.lines) - len(shown)
    return CauseFinding(
        code=candidate.code,
        title=titles.get(candidate.code, candidate.means),
        level=_LEVELS.get(candidate.code[:1], Level.CRASH),
        # A victim's line names the victim, never the culprit.
        ranks=() if candidate.symptom else tuple(ranks),
        hosts=() if candidate.symptom else tuple(hosts),
        confidence=candidate.confidence,
        saw=(
            *shown,
            *([f"and {more} more such {plural(more, 'line')}"] if more > 0 else []),
            candidate.means,
        ),
        next=tuple(candidate.decides[:2]),
    )


# ------------------------------------------------------------------------------------------------------------ tracebacks


def _first_tracebacks(logs: Sequence[Log]) -> list[Traceback]:
    """Those of the ranks in the order in which they were raised, as far as stamps and places tell; the launcher's own left out."""
    found = [
        (traceback.at or (), place, traceback.line.number, traceback)
        for place, log in enumerate(logs)
        for traceback in tracebacks(log)
        if not traceback.type.endswith(_LAUNCHERS)
    ]
    stamped = all(at for at, *_ in found) and len({place for _, place, *_ in found}) > 1
    return [found_one[-1] for found_one in sorted(found, key=lambda f: (f[0] if stamped else (), f[1], f[2]))]


def _raised(found: Sequence[Traceback], others: Sequence[CauseFinding], blame: Blame) -> CauseFinding | None:
    """The first exception that is not the echo of another rank's fall, unless a sign has already said what it means."""
    own = [traceback for traceback in found if not is_symptom(traceback.said())]
    if not own or _is_explained(own[0], others):
        return None
    first = own[0]
    same = sorted({t.line.rank for t in own if t.said() == first.said() and t.line.rank is not None})
    later = len(found) - 1
    not_it = []
    if later and len(same) < 2:
        not_it.append(
            "the other traceback: it came later" if later == 1 else f"{later} other tracebacks: they came later"
        )
    wrong = [rank for rank in blame.roots if first.line.rank is not None and rank not in same]
    if wrong:
        not_it.append(f"rank {wrong[0]}, torchrun's root cause: what it wrote only says that a peer was gone or late")
    where = first.users_frame()
    alone = len({t.line.log for t in found}) == 1 or first.at is not None
    return CauseFinding(
        code="C01",
        title="exception in the script",
        level=Level.CRASH,
        ranks=tuple(same),
        hosts=(first.line.host,) if first.line.host else (),
        confidence=Confidence.HIGH if alone else Confidence.LIKELY,
        saw=(first.said(), *([where] if where else []), f"{first.line.log}:{first.line.number}: the first traceback"),
        ruled_out=tuple(not_it),
        next=(f"repair {where}" if where else "read the first traceback",),
    )


def _is_explained(first: Traceback, others: Sequence[CauseFinding]) -> bool:
    said = first.said()
    return any(
        sign.pattern.search(said)
        and not sign.symptom
        and finding.code == sign.codes[0]
        and finding.confidence != Confidence.UNCLEAR
        for sign in SIGNS
        for finding in others
    )


# ------------------------------------------------------------------------------------------------------------------ page


def _once_each(found: Sequence[CauseFinding]) -> list[CauseFinding]:
    """The surest first, each code once; what comes after a sure one is at most likely, for it may follow from it."""
    kept: dict[str, CauseFinding] = {}
    for finding in sorted(found, key=lambda f: _SURE[f.confidence]):
        kept.setdefault(finding.code if finding.code != NO_CODE else finding.title, finding)
    ordered = list(kept.values())
    if ordered and ordered[0].confidence is not Confidence.UNCLEAR:
        unclear = [f for f in ordered if f.confidence is Confidence.UNCLEAR]
        ordered = [f for f in ordered if f not in unclear] + unclear[:1]
    return [
        replace(f, confidence=Confidence.LIKELY) if place and f.confidence is Confidence.HIGH else f
        for place, f in enumerate(ordered)
    ]


def _not_judged(
    logs: Sequence[Log],
    dumps: Sequence[RecorderDump],
    found: Sequence[CauseFinding],
    weak: Sequence[_Candidate],
    blame: Blame,
) -> list[str]:
    texts = [f"{log.name}: {log.note}" for log in logs if log.note]
    texts += [f"{dump.name}: {dump.note}" for dump in dumps if dump.note]
    if found and weak and not all(f.code in {c.code for c in weak} for f in found):
        lines = {(line.log, line.number) for candidate in weak for line in candidate.lines}
        one = len(lines) == 1
        texts.append(
            f"{'one line' if one else f'{len(lines)} lines'} that only {'says' if one else 'say'} that a peer was gone or late: "
            f"{'a consequence' if one else 'consequences'}, no cause"
        )
    if len(blame.roots) > 1:
        named = ", ".join(str(rank) for rank in blame.roots)
        texts.append(f"torchrun's root cause: its agents name different ranks ({named})")
    if found and found[0].confidence is not Confidence.HIGH:
        texts.append("which candidate it is: the text does not decide; see next")
    if not found:
        texts.append("the cause: no line in these files is known to indicate one; run the job under paceline run")
    return texts
