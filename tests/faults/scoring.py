"""From what a run recorded to whether it explained itself: pure, over the events and the answer of `paceline why --json`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from catalogue import Fault, Trial

from paceline.findings import NO_CODE, Confidence

# Levels that say that a job is broken. A healthy job must never be told one of these.
ALARMS = ("stall", "divergence", "crash", "start")
# What else runs on this machine is not known here: a healthy job that is told of it is told nothing false.
_OF_THE_MACHINE = ("S03", "S04")
_SLACK_NS = 200_000_000


class Told(StrEnum):
    """What a broken job's first finding is worth. Wrong is also to say nothing, unless what is missing for the cause is told."""

    RIGHT = "right"
    UNCLEAR = "unclear"
    NOT_JUDGED = "not judged"
    WRONG = "wrong"


@dataclass(frozen=True)
class Answer:
    """What `paceline why --json` says: its findings, the first one first, and its sentences on causes that could not be looked for."""

    findings: tuple[Mapping[str, Any], ...] = ()
    not_judged: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one trial. Seconds count from the injection, or from the start of the run where the script names no moment.

    `codes`: the findings' codes, the first one first; `codes_afterwards`: once the job was stopped. `ranks`, `level`: of that first
    finding. `rank_right` None: nobody is to be named. `told` None: nothing is broken. `alarms`, `notices`: what was said before the
    injection or of a decoy, as "stall ranks 1" or "S03"; `false_highs`: those of confidence *high* that are not true of it. `place`: the
    script's line in the first finding, where it has one. `attempt_count`: how often the ranks were started. `problem`: why a trial is
    not worth its judgement.
    """

    kind: str
    name: str
    code: str
    rank: int
    world_size: int
    hosts: int
    at_step: int
    number: int = 0
    codes: tuple[str, ...] = ()
    codes_afterwards: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    level: str = ""
    confidence: str = ""
    detected_after_seconds: float | None = None
    judged_after_seconds: float | None = None
    rank_right: bool | None = None
    cause_right: bool | None = None
    told: str | None = None
    alarms: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    false_highs: tuple[str, ...] = ()
    watched_seconds: float = 0.0
    exit_code: int | None = None
    place: str = ""
    attempt_count: int = 1
    problem: str = ""

    def __str__(self) -> str:
        said = f"{', '.join(self.codes) or 'nothing'} (first: {self.level or 'no level'}, ranks {list(self.ranks)})"
        times = f"detected after {self.detected_after_seconds} s, judged after {self.judged_after_seconds} s"
        heard = "".join(
            f"; {name} {', '.join(texts)}"
            for name, texts in (("alarms", self.alarms), ("notices", self.notices), ("falsely high", self.false_highs))
            if texts
        )
        return f"{self.name}, rank {self.rank} broken: said {said}; {times}{heard}; exit {self.exit_code} {self.problem}".rstrip()

    @property
    def was_ended(self) -> bool:
        """Whether a job in which nothing is broken did not come to its end by itself."""
        return self.kind in ("decoy", "healthy") and self.exit_code not in (0, None)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def score(
    fault: Fault,
    trial: Trial,
    *,
    number: int = 0,
    kind: str = "fault",
    events: Sequence[Mapping[str, Any]],
    answer: Answer | None,
    afterwards: Answer | None = None,
    started_ns: int,
    injected_ns: int | None,
    ended_ns: int,
    exit_code: int | None,
    problem: str = "",
) -> Outcome:
    """Compare what was said with what should have been. `answer` None: `why` gave none, so the live findings count."""
    since_ns = injected_ns or started_ns
    after = [event for event in events if int(event.get("t_ns") or 0) >= since_ns - _SLACK_NS]
    live = [event["finding"] for event in after if event.get("event") == "cause" and event.get("finding")]
    said = answer.findings if answer is not None else tuple(reversed(live))
    best = said[0] if said else {}
    ranks = tuple(sorted(best.get("ranks") or ()))
    right = fault.right_ranks(trial)
    healthy = events if fault.is_decoy else [event for event in events if event not in after]
    alarms, notices = spoken(healthy)
    told = None if fault.is_decoy else worth(fault, said, answer.not_judged if answer is not None else ())
    return Outcome(
        kind=kind,
        name=fault.name,
        code=fault.code,
        number=number,
        rank=trial.rank,
        world_size=trial.world_size,
        hosts=trial.hosts,
        at_step=trial.at_step,
        codes=tuple(str(finding.get("code")) for finding in said),
        codes_afterwards=tuple(str(finding.get("code")) for finding in (afterwards or Answer()).findings),
        ranks=ranks,
        level=str(best.get("level") or ""),
        confidence=str(best.get("confidence") or ""),
        detected_after_seconds=None if fault.is_decoy else _seconds(since_ns, first(after, is_detection)),
        judged_after_seconds=None if fault.is_decoy else _seconds(since_ns, _judged_ns(fault, after, said)),
        rank_right=None if right is None else frozenset(ranks) in right,
        cause_right=None if told is None else told == Told.RIGHT,
        told=told,
        alarms=alarms,
        notices=notices,
        false_highs=false_highs(fault, [*live, *said]) if fault.is_decoy else (),
        watched_seconds=round((ended_ns - started_ns) / 1e9, 1),
        exit_code=exit_code,
        place=next((text for text in best.get("saw") or () if text.startswith("at ")), ""),
        attempt_count=sum(event.get("event") == "attempt_started" for event in events),
        problem=problem,
    )


def worth(fault: Fault, findings: Sequence[Mapping[str, Any]], not_judged: Iterable[str]) -> Told:
    """What the first finding is worth; without any, whether `why` says that the cause could not be looked for ("N01 deadlock: ...")."""
    if not findings:
        lacking = {text.partition(" ")[0] for text in not_judged}
        return Told.NOT_JUDGED if fault.expected & lacking else Told.WRONG
    if findings[0].get("code") in fault.expected:
        return Told.RIGHT
    unclear = findings[0].get("code") == NO_CODE or findings[0].get("confidence") == Confidence.UNCLEAR
    return Told.UNCLEAR if unclear else Told.WRONG


def false_highs(fault: Fault, findings: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Codes that a job in which nothing is broken was told with confidence *high*, though they are not true of it, each once."""
    true = {*fault.expected, *_OF_THE_MACHINE}
    sure = (str(finding.get("code")) for finding in findings if finding.get("confidence") == Confidence.HIGH)
    return tuple(dict.fromkeys(code for code in sure if code not in true))


def is_detection(event: Mapping[str, Any]) -> bool:
    """Whether this event tells a person that something is wrong with the job."""
    match event.get("event"):
        case "standstill" | "divergence" | "cause":
            return True
        case "rank_exited":
            return bool(event.get("code")) or bool(event.get("error"))
        case "waiting" | "host_lost":
            return True
        case "run_finished":
            return bool(event.get("exit_code"))
        case _:
            return False


def is_judgement(event: Mapping[str, Any], fault: Fault) -> bool:
    """Whether this event gives a cause that ends the matter. A notice of something else (a rank that is late at the start) does not."""
    finding = event.get("finding")
    # After a death that the job goes on from, it goes on.
    if event.get("event") != "cause" or not isinstance(finding, Mapping) or event.get("resumed"):
        return False
    # One that is unclear may be followed by the cause as long as the job lasts.
    return finding.get("code") in fault.expected or (finding.get("level") in ALARMS and finding.get("code") != NO_CODE)


def first(events: Iterable[Mapping[str, Any]], condition: Any) -> int | None:
    """The stamp of the first event that meets a condition."""
    return next((int(event["t_ns"]) for event in events if condition(event)), None)


def spoken(events: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Alarms and notices that a job was given, each once."""
    alarms: dict[str, None] = {}
    notices: dict[str, None] = {}
    for event in events:
        body = event.get("standstill") or event.get("finding") or {}
        if event.get("event") in ("standstill", "cause") and body:
            level = str(body.get("level"))
            ranks = ",".join(str(rank) for rank in body.get("ranks") or body.get("late") or ())
            text = f"{body.get('code') or level}" + (f" ranks {ranks}" if ranks else "")
            (alarms if level in ALARMS else notices)[text] = None
        elif event.get("event") == "divergence":
            alarms["divergence"] = None
    return tuple(alarms), tuple(notices)


def _judged_ns(fault: Fault, events: Sequence[Mapping[str, Any]], said: Sequence[Any]) -> int | None:
    """When the cause was told; of a job that ended before that, its end, from which on `why` has the answer."""
    told = first(events, lambda event: is_judgement(event, fault))
    asked = [event for event in events if event.get("event") == "stop_asked"]
    return told or (first(events, lambda event: event.get("event") == "run_finished") if said and not asked else None)


def _seconds(since_ns: int, then_ns: int | None) -> float | None:
    return None if then_ns is None else round(max(0, then_ns - since_ns) / 1e9, 2)
