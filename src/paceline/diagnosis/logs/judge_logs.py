"""Candidates for the cause from plain logs of a job that ran without paceline: torchrun, Slurm, SageMaker, NCCL, gloo, Python. Pure.

Order decides before wording: the first traceback wins over any summary, and what a victim says is no cause while another candidate exists.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline.diagnosis.case import Level
from paceline.diagnosis.crash.known_exceptions import NOT_OF_THE_SCRIPT, no_line_at_fault, ways_out
from paceline.diagnosis.crash.origins import is_drivers, is_interrupt
from paceline.diagnosis.logs.compare_dumps import judge_dumps
from paceline.diagnosis.logs.flight_recorder_dumps import RecorderDump
from paceline.diagnosis.logs.horovod import judge_stalls
from paceline.diagnosis.logs.launcher import Blame, LoggedEnding, first_ending, read_blame, stubborn
from paceline.diagnosis.logs.lines import Log, RankLine, Traceback, bare_exceptions, tracebacks
from paceline.diagnosis.logs.members import judge_members
from paceline.diagnosis.logs.patterns import SIGNS, TITLES, Sign, is_symptom
from paceline.diagnosis.logs.time_limits import judge_limit, limits
from paceline.diagnosis.logs.timeouts import LoggedWait, follows, judge_waits, waits
from paceline.diagnosis.verdict import SURER, Diagnosis
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.spelling import plural

_LEVELS = {"N": Level.STALL, "M": Level.DIVERGENCE, "C": Level.CRASH, "R": Level.START, "S": Level.SLOW}
_MOST_FINDINGS = 4
_MOST_MATCHES = 200
_LAUNCHERS = ("ChildFailedError", "SignalException", "CalledProcessError")
_MOST_MESSAGE_LINES = 8
# Words before a list of what may have happened.
_GUESSES = re.compile(
    r"(?i)\b(?:may|might|could) (?:have|be|also)\b|potential root causes|possible (?:reasons?|causes?)|"
    r"\bthis (?:usually |often )?(?:indicates|means)\b|most likely because|for example\b|\be\.g\."
)


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
    exit_code: int = 0
    """As in Sign."""
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
    for candidate in candidates.values():
        if _follows_a_refusal(candidate, candidates.values()):
            candidate.confidence = Confidence.UNCLEAR
    weak = [c for c in candidates.values() if c.symptom or _came_after(c, waited)]
    found = [_finding(candidate, titles, blame) for candidate in candidates.values() if candidate not in weak]
    found += judge_stalls(logs) + judge_members(logs)
    frozen = stubborn(blame, logs)
    found += frozen + judge_dumps(dumps)
    ending = first_ending(logs, blame)
    raised = _raised(first, found, blame) or _of_others(first, found, ending)
    if raised and raised.title == NOT_OF_THE_SCRIPT:
        found = [finding for finding in found if not _is_said_by(raised, finding)]
    explained = bool(frozen or raised) or any(f.confidence is Confidence.HIGH and f.code != "C04" for f in found)
    late = [f for f in judge_waits(waited, logs, reached) if not explained or f.code != NO_CODE]
    own = [limit for limit in reached if not follows(limit, waited)]
    ended = judge_limit(own, logs, trouble=weak[0].lines[0] if weak else None)
    found = [*([raised] if raised else []), *ended, *found, *late]
    if not found:
        found = [_finding(candidate, titles, blame) for candidate in weak]
    if not found and ending is not None:
        found = [_without_a_traceback(ending)]
    found = [_with_place(finding, first) for finding in _once_each(found)]
    return Diagnosis(
        findings=tuple(found[:_MOST_FINDINGS]), not_judged=tuple(_not_judged(logs, dumps, found, weak, blame))
    )


def _came_after(candidate: _Candidate, waited: Sequence[LoggedWait]) -> bool:
    """Whether somebody ended the job, but only once a rank had waited in vain: a consequence."""
    return bool(waited) and candidate.code == "C04" and waited[0].place < candidate.place


def _follows_a_refusal(candidate: _Candidate, others: Iterable[_Candidate]) -> bool:
    """Whether native code crashed once something else had failed to start: what does not check a refusal falls over it."""
    return candidate.code == "C05" and any(
        other.code.startswith("R") and other.confidence is not Confidence.UNCLEAR and other.place < candidate.place
        for other in others
    )


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
                if not sign.symptom and _GUESSES.search(
                    log.text, log.text.rfind("\n", 0, match.start()) + 1, match.start()
                ):
                    # A word in a list of guesses is no evidence.
                    continue
                hits.setdefault((place, line.number), []).append((sign, line))
    candidates: dict[str, _Candidate] = {}
    for where in sorted(hits):
        sign, line = min(hits[where], key=lambda hit: (hit[0].symptom, SURER[hit[0].confidence]))
        if "-9" in line.text and _ended_by_launcher(line, blame):
            continue
        line = _with_rank(line, blame)
        for order, code in enumerate(sign.codes):
            confidence = sign.confidence if order == 0 else Confidence.UNCLEAR
            known = candidates.get(code if code != NO_CODE else sign.means)
            if known is None or (known.symptom and not sign.symptom):
                known = _Candidate(code, sign.means, confidence, sign.symptom, where, sign.exit_code)
                candidates[code if code != NO_CODE else sign.means] = known
            known.confidence = min(known.confidence, confidence, key=SURER.__getitem__)
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


def _finding(candidate: _Candidate, titles: Mapping[str, str], blame: Blame) -> CauseFinding:
    ranks = sorted({line.rank for line in candidate.lines if line.rank is not None})
    if not ranks and candidate.exit_code:
        ranks = sorted(rank for rank, code in blame.codes.items() if code == candidate.exit_code)
    hosts = sorted({line.host for line in candidate.lines if line.host})
    shown = list(dict.fromkeys(line.shown() for line in candidate.lines))[:2]
    more = len(candidate.lines) - len(shown)
    return CauseFinding(
        code=candidate.code,
        # What made the process end with this code says more than that the script did.
        title=candidate.means if candidate.exit_code else titles.get(candidate.code, candidate.means),
        level=_LEVELS.get(candidate.code[:1], Level.CRASH),
        # A victim's line names the victim, never the culprit.
        ranks=() if candidate.symptom else tuple(ranks),
        hosts=() if candidate.symptom else tuple(hosts),
        confidence=candidate.confidence,
        saw=(
            *shown,
            *([f"and {more} more such {plural(more, 'line')}"] if more > 0 else []),
            *([] if candidate.exit_code else [candidate.means]),
        ),
        next=tuple(candidate.decides[:2]),
    )


# ------------------------------------------------------------------------------------------------------------ tracebacks


def _first_tracebacks(logs: Sequence[Log]) -> list[Traceback]:
    """Those of the ranks in the order in which they were raised, as far as stamps and places tell; the launcher's own left out."""
    found = [
        (traceback.at or (), place, traceback.line.number, traceback)
        for place, log in enumerate(logs)
        for traceback in (*tracebacks(log), *bare_exceptions(log))
        if not traceback.type.endswith(_LAUNCHERS)
    ]
    stamped = all(at for at, *_ in found) and len({place for _, place, *_ in found}) > 1
    return [found_one[-1] for found_one in sorted(found, key=lambda f: (f[0] if stamped else (), f[1], f[2]))]


def _is_own(traceback: Traceback) -> bool:
    """Whether it is a failure of the script, and not what somebody says of another process, or an interruption."""
    is_of_others = is_symptom(traceback.said()) or is_drivers(traceback.type) or is_interrupt(traceback.type)
    return not is_of_others and bool(traceback.users_frame() or not traceback.frames)


def _raised(found: Sequence[Traceback], others: Sequence[CauseFinding], blame: Blame) -> CauseFinding | None:
    """The first exception of the script itself, unless a sign has already said what it means."""
    own = [traceback for traceback in found if _is_own(traceback)]
    if not own or _is_explained(own[0], others):
        return None
    first = own[0]
    # A text may have the rank, a path or a size in it: one failure is one type at one line.
    alike = [t for t in own if (t.type, t.users_frame()) == (first.type, first.users_frame())]
    same = sorted({t.line.rank for t in alike if t.line.rank is not None})
    later = len(found) - len(alike)
    not_it = []
    if later:
        not_it.append(
            "the other traceback: it came later" if later == 1 else f"{later} other tracebacks: they came later"
        )
    wrong = [rank for rank in blame.roots if first.line.rank is not None and rank not in same]
    if wrong:
        not_it.append(f"rank {wrong[0]}, torchrun's root cause: what it wrote only says that a peer was gone or late")
    where = first.users_frame()
    is_elsewhere = no_line_at_fault(first.said())
    repair = f"repair {where}" if where and not is_elsewhere else ""
    alone = not is_elsewhere and bool(where) and (len({t.line.log for t in found}) == 1 or first.at is not None)
    return CauseFinding(
        code="C01",
        title=NOT_OF_THE_SCRIPT if is_elsewhere else "exception in the script",
        level=Level.CRASH,
        ranks=tuple(same),
        hosts=(first.line.host,) if first.line.host else (),
        confidence=Confidence.HIGH if alone else Confidence.LIKELY,
        saw=(
            *_message(first),
            *([where] if where else []),
            f"{first.line.log}:{first.line.number}: the first traceback",
        ),
        ruled_out=tuple(not_it),
        next=tuple(filter(None, (*ways_out(first.said()), repair))) or ("read what stands above that line",),
    )


def _with_place(finding: CauseFinding, found: Sequence[Traceback]) -> CauseFinding:
    """Where the GPU memory ran out: the script's line; while a file was loaded, what keeps that off GPU 0."""
    own = next((t for t in found if finding.code == "C07" and _NO_MEMORY.search(t.said()) and t.users_frame()), None)
    if own is None:
        return finding
    loads = any(file.endswith("torch/serialization.py") for file, *_ in own.frames)
    way_out = (_LOADED_TO_ONE_GPU,) if loads else ()
    return replace(finding, saw=(*finding.saw, own.users_frame()), next=(*way_out, *finding.next))


_NO_MEMORY = re.compile(r"out of memory", re.IGNORECASE)
_LOADED_TO_ONE_GPU = "torch.load(..., map_location='cpu'), or the rank's own device: without it every rank loads to GPU 0 what GPU 0 saved"


def _of_others(
    found: Sequence[Traceback], others: Sequence[CauseFinding], ending: LoggedEnding | None
) -> CauseFinding | None:
    """What is known where no exception is the script's own: an interruption, a library's, or what a driver says of a process elsewhere."""
    if others or not found:
        return None
    rest = [traceback for traceback in found if not is_symptom(traceback.said())]
    if not rest:
        return None
    first = next((traceback for traceback in rest if not is_drivers(traceback.type)), rest[0])
    ranks = tuple(sorted({t.line.rank for t in rest if t.type == first.type and t.line.rank is not None}))
    line = f"{first.line.log}:{first.line.number}"
    if is_interrupt(first.type):
        where = first.users_frame() or first.innermost()
        return CauseFinding(
            code="C04", title="interrupted from outside", level=Level.CRASH, ranks=ranks, confidence=Confidence.LIKELY,
            saw=(f"{line}: KeyboardInterrupt", *([f"it was at {where}, which is no fault of that line"] if where else [])),
            next=("who pressed Ctrl-C or sent SIGINT: a person, a scheduler, a notebook's stop button",),
        )  # fmt: skip
    if is_drivers(first.type):
        return None if ending is not None else CauseFinding(
            code=NO_CODE, title="a process ended elsewhere", level=Level.CRASH, ranks=ranks, confidence=Confidence.UNCLEAR,
            saw=(*_message(first), f"{line}: the driver's exception, an echo"),
            next=("the log of that process, or the lines above this one: the first traceback there is the cause",),
        )  # fmt: skip
    return CauseFinding(
        code="C01", title="a program refused what it was asked", level=Level.CRASH, ranks=ranks, confidence=Confidence.LIKELY,
        saw=(*_message(first), f"{line}: raised at {first.innermost()}, with no line of a script above it"),
        next=(*ways_out(first.said()), "what that message names: the launcher's command line, or a configuration file"),
    )  # fmt: skip


def _message(traceback: Traceback) -> tuple[str, ...]:
    """What was raised, whole: a line each, of a long one the beginning."""
    lines = traceback.said().splitlines()
    more = len(lines) - _MOST_MESSAGE_LINES
    return (*lines[:_MOST_MESSAGE_LINES], *([f"and {more} more lines"] if more > 0 else []))


def _without_a_traceback(ending: LoggedEnding) -> CauseFinding:
    """A process that ended with an error, of which no known line says why."""
    return CauseFinding(
        code="C01",
        title=f"a process ended with code {ending.code} and wrote no traceback",
        level=Level.CRASH,
        ranks=() if ending.rank is None else (ending.rank,),
        confidence=Confidence.UNCLEAR,
        saw=(ending.line.shown(), *(f"before it: {line.shown()}" for line in ending.last_lines)),
        next=(
            "the last lines of that process, above: its own message, or a usage; paceline run keeps them apart for each rank",
        ),
    )


def _is_said_by(raised: CauseFinding, other: CauseFinding) -> bool:
    """Whether trouble without a code is what the exception itself says."""
    said = "\n".join(raised.saw)
    return other.code == NO_CODE and any(sign.means == other.title and sign.pattern.search(said) for sign in SIGNS)


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
    for finding in sorted(found, key=lambda f: SURER[f.confidence]):
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
