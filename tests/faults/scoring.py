"""From what a run recorded to whether it explained itself: pure, over the events and the answer of `paceline why --json`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from catalogue import Fault, Trial

# Levels that say that a job is broken. A healthy job must never be told one of these.
ALARMS = ("stall", "divergence", "crash", "start")
_SLACK_NS = 200_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one trial. Seconds count from the injection, or from the start of the run where the script names no moment.

    `codes`: the findings' codes, the first one first; `codes_afterwards`: once the job was stopped. `ranks`, `level`: of that first
    finding. `rank_right` None: nobody is to be named. `alarms`, `notices`: what was said before the injection or of a decoy, as
    "stall ranks 1" or "S03". `problem`: why a trial is not worth its judgement.
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
    alarms: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    watched_seconds: float = 0.0
    exit_code: int | None = None
    problem: str = ""

    def __str__(self) -> str:
        said = f"{', '.join(self.codes) or 'nothing'} (first: {self.level or 'no level'}, ranks {list(self.ranks)})"
        times = f"detected after {self.detected_after_seconds} s, judged after {self.judged_after_seconds} s"
        heard = "".join(
            f"; {name} {', '.join(texts)}"
            for name, texts in (("alarms", self.alarms), ("notices", self.notices))
            if texts
        )
        return f"{self.name}, rank {self.rank} broken: said {said}; {times}{heard}; exit {self.exit_code} {self.problem}".rstrip()

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def score(
    fault: Fault,
    trial: Trial,
    *,
    number: int = 0,
    kind: str = "fault",
    events: Sequence[Mapping[str, Any]],
    findings: Sequence[Mapping[str, Any]] | None,
    afterwards: Sequence[Mapping[str, Any]] | None = None,
    started_ns: int,
    injected_ns: int | None,
    ended_ns: int,
    exit_code: int | None,
    problem: str = "",
) -> Outcome:
    """Compare what was said with what should have been. `findings` None: `why` gave no answer, so the live findings count."""
    since_ns = injected_ns or started_ns
    after = [event for event in events if int(event.get("t_ns") or 0) >= since_ns - _SLACK_NS]
    live = [event["finding"] for event in after if event.get("event") == "cause" and event.get("finding")]
    said = list(findings) if findings is not None else list(reversed(live))
    best = said[0] if said else {}
    ranks = tuple(sorted(best.get("ranks") or ()))
    right = fault.right_ranks(trial)
    healthy = events if fault.is_decoy else [event for event in events if event not in after]
    alarms, notices = spoken(healthy)
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
        codes_afterwards=tuple(str(finding.get("code")) for finding in afterwards or ()),
        ranks=ranks,
        level=str(best.get("level") or ""),
        confidence=str(best.get("confidence") or ""),
        detected_after_seconds=None if fault.is_decoy else _seconds(since_ns, first(after, is_detection)),
        judged_after_seconds=None if fault.is_decoy else _seconds(since_ns, _judged_ns(fault, after, said)),
        rank_right=None if right is None else frozenset(ranks) in right,
        cause_right=None if fault.is_decoy else best.get("code") in fault.expected,
        alarms=alarms,
        notices=notices,
        watched_seconds=round((ended_ns - started_ns) / 1e9, 1),
        exit_code=exit_code,
        problem=problem,
    )


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
    if event.get("event") != "cause" or not isinstance(finding, Mapping):
        return False
    return finding.get("code") in fault.expected or finding.get("level") in ALARMS


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
