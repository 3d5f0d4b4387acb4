"""Why a job hangs, failed, computes wrong numbers or is slow: one page, or one object for a program."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from paceline.diagnosis.case import Case, Level, Stall
from paceline.diagnosis.restart_costs import totals
from paceline.diagnosis.run_state import how_it_ended, run_state
from paceline.diagnosis.time_limit import forecast_text, will_be_cut
from paceline.diagnosis.verdict import Diagnosis
from paceline.facts import SecondaryStatus
from paceline.findings import NO_CODE, CauseFinding, Confidence
from paceline.part import GoesOn
from paceline.recording.fact_json import fact_or_none
from paceline.recording.rank_sets import named_ranks, spell_ranks
from paceline.spelling import plural
from paceline.terminal_text import BOLD, BOLD_RED, BOLD_YELLOW, painted
from paceline.views.documents import RunDocument
from paceline.views.restarts import restart_lines, restarts_facts
from paceline.views.table import crop
from paceline.views.units import count, counted, duration, percent

_COLORS: dict[str, str] = {Level.WAITING: BOLD_YELLOW, Level.SLOW: BOLD_YELLOW, Level.QUALITY: BOLD_YELLOW}
# As diagnosis.verdict words it: the code, the cause's title, the fact that was missing.
_CAUSE_THAT_LACKS = re.compile(r"(?P<code>[NMCRS]\d\d) [^:]*: (?P<fact>.+)")
_LABEL = 10
_MOST_NOT_JUDGED = 8
_MOST_CHECKED = 8
_OLD_SNAPSHOT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyPage:
    """How the page is shown, and what it has besides the diagnosis."""

    width: int | None = 100
    """Columns of a line; None: no limit."""
    color: bool = False
    """With colours."""
    ascii_only: bool = False
    """Without characters beyond ASCII."""
    all_not_judged: bool = False
    """Show the whole list of what was not judged, not only its beginning."""
    time_spent: Sequence[tuple[str, float | None]] = ()
    """Where the time went: (name, seconds); None: not judged."""
    goes_on: GoesOn | None = None
    """The step that is saved, and the command that goes on from it; None: nothing is saved, or the run did not break off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierFinding(CauseFinding):
    """A finding that was reported while the job ran and does not hold any more."""

    attempt: int
    """The attempt, from 0."""
    after_seconds: float | None = None
    """Time from the start of the run; None: not known, or of an earlier attempt."""
    reason: str = ""
    """Why it does not hold; empty: it is of an earlier attempt."""


def why_text(diagnosis: Diagnosis, case: Case, page: WhyPage) -> str:
    """State of the run, each finding in its four parts, then what could not be judged."""
    blocks = ["\n".join(_head(diagnosis, case, page))]
    blocks += ["\n".join(finding_lines(finding, page)) for finding in diagnosis.findings]
    if lines := [*_earlier_lines(diagnosis, case)]:
        blocks.append("\n".join(_rows("earlier", lines)))
    if lines := restart_lines(totals(case.events)):
        blocks.append("\n".join(_rows("restarts", lines)))
    if lines := [*_checked_lines(case)]:
        blocks.append("\n".join(_rows("checked", lines)))
    if page.time_spent:
        blocks.append("\n".join(_time(page.time_spent)))
    if diagnosis.not_judged:
        blocks.append("\n".join(_not_judged(diagnosis.not_judged, page)))
    return "\n\n".join(blocks)


class CheckedDocument(msgspec.Struct, frozen=True):
    """What `paceline check` found before the run."""

    code: str
    """A code with a page: `paceline help CODE`."""
    place: str
    """FILE:LINE; empty: it is about the command line."""
    what: str
    """What happened, with the name of the thing."""


class WhyDocument(RunDocument, frozen=True, kw_only=True, tag_field="schema", tag="paceline.why/2"):
    """Why a run is in trouble, for programs."""

    exit_code: int | None
    """Exit code of `paceline run`; None while it lasts, or if nobody saw its end."""
    finished_ns: int | None
    """When it ended, Unix time in ns; None: it lasts, or its agent left no word."""
    findings: tuple[CauseFinding, ...]
    """The causes, the surest first."""
    earlier: tuple[EarlierFinding, ...]
    """Findings that were reported while the run lasted and do not hold now."""
    checked: tuple[CheckedDocument, ...]
    """What paceline check found before the run."""
    not_judged: tuple[str, ...]
    """What could not be looked at, and why."""


def why_json(diagnosis: Diagnosis, case: Case | None) -> WhyDocument:
    """The same for a program; `case` None: plain logs were read."""
    run = None if case is None else case.run
    known = None if run is None or case is None or case.attached or how_it_ended(run) == "unknown" else run
    return WhyDocument(
        run_id=None if run is None else run.id,
        status=None if known is None else known.status,
        secondary_status=None if known is None else known.secondary_status,
        exit_code=None if known is None else known.exit_code,
        finished_ns=None if known is None else known.finished_ns,
        findings=tuple(diagnosis.findings),
        earlier=() if case is None else tuple(earlier(diagnosis, case)),
        checked=() if case is None else tuple(checked(case.events)),
        **restarts_facts(None if case is None else totals(case.events)),
        not_judged=tuple(diagnosis.not_judged),
    )


def checked(events: Iterable[Mapping[str, Any]]) -> list[CheckedDocument]:
    """What `paceline check` found before the run."""
    found = (event.get("findings") for event in events if event.get("event") == "source_check")
    return [
        CheckedDocument(*(str(one.get(key, "")) for key in CheckedDocument.__struct_fields__))
        for findings in found
        for one in (findings if isinstance(findings, list) else ())
        if isinstance(one, Mapping)
    ]


def finding_lines(finding: CauseFinding, page: WhyPage, *, more: bool = True) -> list[str]:
    """What happened and to whom on the first line; below it saw, what it is not, next and, unless the code has no page, more."""
    head = f"{finding.level}[{finding.code}]"
    if page.color:
        head = painted(_COLORS.get(finding.level, BOLD_RED), head)
    who = who_text(finding)
    parts = [f"{head}: {finding.title}" + (f": {who}" if who else "")]
    if finding.since_step is not None:
        parts.append(f"since step {count(finding.since_step)}")
    lines = [f"{', '.join(parts)} ({finding.confidence})"]
    lines += _rows("saw", finding.saw)
    if finding.detected_after_seconds is not None:
        lines += _rows("", [f"noticed {duration(finding.detected_after_seconds)} after it began"])
    lines += _rows("not", finding.ruled_out)
    lines += _rows("next", finding.next)
    return lines + (_rows("more", [f"paceline help {finding.code}"]) if more and finding.code != NO_CODE else [])


def earlier(diagnosis: Diagnosis, case: Case) -> Iterator[EarlierFinding]:
    """Findings of earlier attempts, and findings of this attempt that were reported while it ran and do not hold now."""
    told = {(case.attempt, finding.code, finding.ranks) for finding in diagnosis.findings}
    for place, event in enumerate(case.events):
        attempt = event.get("attempt")
        if event.get("event") != "cause" or not isinstance(attempt, int) or attempt > case.attempt:
            continue
        finding = fact_or_none(CauseFinding, event.get("finding"))
        if finding is None:
            continue
        claim = attempt, finding.code, finding.ranks
        if attempt < case.attempt:
            yield EarlierFinding(**_fields(finding), attempt=attempt)
        elif claim not in told:
            told.add(claim)
            reason = _why_not_now(finding, diagnosis, case, place)
            after_seconds = _into_the_run(event, case)
            yield EarlierFinding(**_fields(finding), attempt=attempt, after_seconds=after_seconds, reason=reason)


def _fields(finding: CauseFinding) -> dict[str, Any]:
    return {field.name: getattr(finding, field.name) for field in fields(finding)}


def _checked_lines(case: Case) -> Iterator[str]:
    found = checked(case.events)
    shown = found if len(found) <= _MOST_CHECKED else found[: _MOST_CHECKED - 1]
    for one in shown:
        place = f" {one.place}" if one.place else ""
        yield f"before the run: {one.code}{place}: {one.what}"
    if len(shown) < len(found):
        yield f"and {len(found) - len(shown)} more, with --json"


def _earlier_lines(diagnosis: Diagnosis, case: Case) -> Iterator[str]:
    for told in earlier(diagnosis, case):
        short = finding_short(told)
        if told.attempt < case.attempt:
            yield f"attempt {told.attempt}: {short}"
        else:
            when = "" if told.after_seconds is None else f"{duration(told.after_seconds)} into the run: "
            yield f"{when}{short}; {told.reason}"


def _into_the_run(event: Mapping[str, Any], case: Case) -> float | None:
    at_ns = event.get("t_ns")
    if not isinstance(at_ns, int) or not case.run.started_ns:
        return None
    return max(at_ns - case.run.started_ns, 0) / 1e9


def _why_not_now(finding: CauseFinding, diagnosis: Diagnosis, case: Case, place: int) -> str:
    """Why a finding of this attempt, the event at `place`, does not hold for the whole recording."""
    if finding.level == Level.SLOW:
        return _why_no_longer(case)
    if finding.level in (Level.STALL, Level.WAITING):
        over = next((event for event in case.events[place:] if event.get("event") == "standstill_over"), None)
        if over is not None:
            return stall_over_text(over)
    return "another cause explains it now" if diagnosis.findings else "the whole recording does not show it"


def stall_over_text(event: Mapping[str, Any]) -> str:
    """How a stall ended: the ranks continued, or the ranks that the others waited for ended."""
    seconds, ended = event.get("after_seconds"), event.get("ended")
    lasted = duration(seconds if isinstance(seconds, int | float) else None)
    if isinstance(ended, (list, tuple)) and ended and all(isinstance(rank, int) for rank in ended):
        return f"{named_ranks(ended)} ended, after {lasted} in which others waited for {'it' if len(ended) == 1 else 'them'}"
    return f"the ranks continued after {lasted}"


def _why_no_longer(case: Case) -> str:
    if case.timing is None:
        return "the recording has no window of steady steps to judge it by again"
    return f"not so in the latest {case.timing.window_seconds:.0f} s that are recorded, up to step {count(case.timing.to_step)}"


def finding_short(finding: CauseFinding) -> str:
    """One line: code, title, the named ranks, and the first observation that says more."""
    who = who_text(finding)
    text = f"{finding.code} {finding.title}" + (f": {who}" if who else "")
    seen = next((seen for seen in finding.saw if not who or not seen.startswith(who)), "")
    return f"{text}; {seen}" if seen else text


def who_text(finding: CauseFinding) -> str:
    """ "rank 1 on algo-1", "ranks 0-3 on 2 hosts"; empty if the finding names no rank."""
    hosts = "" if not finding.hosts else finding.hosts[0] if len(finding.hosts) == 1 else f"{len(finding.hosts)} hosts"
    if not finding.ranks:
        return hosts
    ranks = named_ranks(finding.ranks)
    return f"{ranks} on {hosts}" if hosts else ranks


def stall_text(still: Stall, now_ns: int) -> str:
    """Which ranks wait for which, in what, for how long: "ranks 0,2 wait for rank 1 in all_reduce 37, for 4.1 s"."""
    return f"{_waiting(still)}, for {duration((now_ns - still.since_ns) / 1e9)}"


def _waiting(still: Stall) -> str:
    where = ""
    if still.operation:
        where = f" in {still.operation}" + (f" {still.index}" if still.index is not None else "")
        where += f" of group {still.group}" if still.group else ""
    elif still.since_step is not None:
        where = f" after step {count(still.since_step)}"
    if not still.late:
        # Not of devices whose ranks could not all be compared.
        is_known = still.waiting and (still.together or still.recorder in ("", "gloo"))
        return f"no rank makes progress{where}" + (", and none is behind the others" if is_known else "")
    late = named_ranks(still.late)
    if not still.waiting:
        return f"{late} makes no progress{where}" if len(still.late) == 1 else f"{late} make no progress{where}"
    waits = "wait" if len(still.waiting) > 1 else "waits"
    return f"{named_ranks(still.waiting)} {waits} for {late}{where}"


# ------------------------------------------------------------------------------------------------------------------ head


def _head(diagnosis: Diagnosis, case: Case, page: WhyPage) -> Iterator[str]:
    run = case.run
    state = run_state(run, case.events).word
    word = painted(BOLD, state) if page.color else state
    parts = [f"{run.id}  {word}"]
    if run.secondary_status in (SecondaryStatus.MAX_RUNTIME_EXCEEDED, SecondaryStatus.INTERRUPTED):
        parts.append(str(run.secondary_status))
    if run.exit_code is not None:
        parts.append(f"exit {run.exit_code}")
    if diagnosis.findings:
        parts.append(_looked_at(case))
    if case.attempt:
        parts.append(f"attempt {case.attempt}")
    yield "  ".join(parts)
    if run.reason and state in ("failed", "dead", "stopped"):
        yield from _rows("because", [_fitting(_reason(run.reason, diagnosis), page)])
    if page.goes_on is not None:
        yield from _rows("next", [page.goes_on.command])
        yield from _rows("", [f"goes on at step {page.goes_on.step}, whose state is saved"])
    yield from _now(case)
    if case.lasts and case.forecast is not None:
        if case.forecast.limit_seconds is None:
            yield from _rows("end", [forecast_text(case.forecast)])
        elif will_be_cut(case.forecast) is not False:
            yield from _rows("limit", [forecast_text(case.forecast)])
    if not diagnosis.findings:
        yield f"nothing found; {_looked_at(case)}"


def _reason(reason: str, diagnosis: Diagnosis) -> str:
    """The agent's reason. It names who fell first; a finding that names others says whom that one followed."""
    first = next(iter(diagnosis.findings), None)
    named = _OF_ONE_RANK.match(reason)
    if first is None or named is None or not first.ranks or int(named[1]) in first.ranks:
        return reason
    return reason if first.confidence is Confidence.UNCLEAR else f"{who_text(first)}: {first.title}; then {reason}"


_OF_ONE_RANK = re.compile(r"rank (\d{1,6})\b")


def _now(case: Case) -> Iterator[str]:
    """The stall of a running run, its age, and the age of the newest snapshot of its ranks."""
    if case.stall is None or not case.lasts:
        return
    yield from _rows("now", [stall_text(case.stall, case.now_ns)])
    newest = max((snapshot.at_ns for snapshot in case.snapshots.values()), default=None)
    if newest is None:
        yield from _rows("", ["no snapshot of the late ranks yet"])
    elif (age := (case.now_ns - newest) / 1e9) > _OLD_SNAPSHOT_SECONDS:
        yield from _rows(
            "", [f"the newest snapshot of them is {duration(age)} old; paceline stack {case.run.id} takes a new one"]
        )


def _looked_at(case: Case) -> str:
    hosts = f"{len(case.hosts)} {plural(len(case.hosts), 'host')}"
    return f"{_counted(case)} on {hosts}" if case.hosts else _counted(case)


def _counted(case: Case) -> str:
    ranks = len(case.ranks) or len(case.heartbeats) or case.world_size or 0
    if case.attached:
        # Nobody has counted its steps.
        return f"{ranks} {plural(ranks, 'rank')}"
    steps = max((record.step_count or 0 for record in case.ranks.values()), default=0)
    return f"{ranks} {plural(ranks, 'rank')}, {counted(steps, 'step')}"


def _time(spent: Sequence[tuple[str, float | None]]) -> Iterator[str]:
    yield "where the time went"
    whole = sum(seconds for _, seconds in spent if seconds is not None)
    for name, seconds in spent:
        share = (
            f"{percent(seconds / whole, 1):>6}  {duration(seconds)}" if seconds is not None and whole else "not judged"
        )
        yield f"  {name:<22}  {share}"


def _not_judged(texts: Sequence[str], page: WhyPage) -> Iterator[str]:
    yield "not judged"
    texts = _by_fact(texts)
    shown = texts if page.all_not_judged or len(texts) <= _MOST_NOT_JUDGED else texts[: _MOST_NOT_JUDGED - 1]
    for text in shown:
        yield crop(f"  {text}", page.width, ascii_only=page.ascii_only)
    if len(shown) < len(texts):
        yield f"  and {len(texts) - len(shown)} more, with --json"


def _by_fact(texts: Sequence[str]) -> list[str]:
    """Causes that lack the same fact in one line: "how the job steps: S01, S05"."""
    codes: dict[str, list[str]] = {}
    for text in texts:
        match = _CAUSE_THAT_LACKS.match(text)
        codes.setdefault(match["fact"] if match else text, []).append(match["code"] if match else "")
    whole = {match["fact"]: text for text in texts if (match := _CAUSE_THAT_LACKS.match(text))}
    return [
        f"{fact}: {_codes(named)}" if len(named) > 1 and named[0] else whole.get(fact, fact)
        for fact, named in codes.items()
    ]


def _codes(named: Sequence[str]) -> str:
    """ "S01-S09, S11"."""
    spelled = []
    for letter in dict.fromkeys(code[0] for code in named):
        numbers = spell_ranks(int(code[1:]) for code in named if code[0] == letter)
        spelled += ["-".join(f"{letter}{int(end):02}" for end in part.split("-")) for part in numbers.split(",")]
    return ", ".join(spelled)


def _fitting(text: str, page: WhyPage) -> str:
    """Behind a label."""
    return crop(text, None if page.width is None else page.width - _LABEL - 4, ascii_only=page.ascii_only)


def _rows(label: str, texts: Sequence[str]) -> list[str]:
    """The label before the first text only; a text of several lines is indented as a whole."""
    lines = [line for text in texts for line in (text.splitlines() or [""])]
    return [f"  {label if place == 0 else '':<{_LABEL}}{line}".rstrip() for place, line in enumerate(lines)]
