"""docs/faults.md from the outcomes of trials. Values in, text out."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scoring import Outcome, Told

_HOW = """\
Every fault of the gallery (`examples/broken`) is injected for real, with other ranks, steps and numbers of ranks and hosts each
time, all on one machine, on several versions of torch. The cause is right when the first finding of `paceline why` has the right
code; the rank is right when that finding names exactly the broken one. (Of two ranks that issue different collectives nobody can
tell which one is wrong: there, naming both is right.) An answer that is not right is *unclear* when it says so itself, *not judged*
when it lists the cause as one that could not be looked for, and otherwise wrong, also where nothing was said.

A column *nccl* is the same torch's CUDA build with `--backend nccl`, on two cores: torch's own ProcessGroupNCCL, watchdog and flight
recorder, over a library that stands in for the GPU and for NCCL itself (`tests/torches/build_fake_gpu.py`). It shows what torch and
paceline make of a job that hangs or ends; it shows nothing of a driver, of NCCL's own service, of times, and of values that are computed.

Healthy jobs and decoys run with `--on-hang stop`: one counts as ended when it left with another code than 0 before its time was over.
"""
_ANSWERS = """\
Right answers of all trials. Where some are not right: ? unclear, - not judged, ! wrong. An empty cell was not tried.
"""
WANTED_RANK = 0.98
# On the versions with three trials of each fault, and on those with one.
WANTED_CAUSE, WANTED_CAUSE_ONCE = 0.95, 0.85
WANTED_JUDGED_SECONDS = 10.0
WANTED_IN_TIME, WANTED_IN_TIME_NCCL = 0.95, 0.9


@dataclass(frozen=True)
class Measured:
    """The outcomes on one torch, by kind."""

    version: str
    outcomes: Sequence[Outcome]

    @property
    def faults(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.kind == "fault"]

    @property
    def quiet(self) -> list[Outcome]:
        """Jobs in which nothing is broken."""
        return [outcome for outcome in self.outcomes if outcome.kind in ("decoy", "healthy")]

    def count(self, told: Told) -> int:
        return sum(outcome.told == told for outcome in self.faults)

    def of(self, name: str) -> list[Outcome]:
        return [outcome for outcome in self.faults if outcome.name == name]


def report(
    outcomes: Mapping[str, Sequence[Outcome]],
    titles: Mapping[str, str],
    left_out: Mapping[str, str],
    *,
    own: str,
    commit: str,
    date: str,
    group_timeout: int,
) -> str:
    """The whole page.

    `outcomes`: by the version of torch; `own`: the one whose seconds are shown; `titles`: script -> what is broken; `left_out`: script
    -> why it is not tried with NCCL.
    """
    measured = [Measured(version, rows) for version, rows in outcomes.items() if rows]
    here = next((one for one in measured if one.version == own), Measured(own, ()))
    parts = [
        "# Faults: measured\n",
        f"Written by `make faults` at commit {commit} on {date}; not edited by hand.\n",
        _HOW,
        _summary(measured),
        "## Each fault on each torch\n",
        _ANSWERS,
        _answers(measured, titles),
        _left_out(left_out),
        f"## How soon, on torch {own}\n",
        "Seconds from the injection to the first word (*detected*) and to a cause (*judged*; where the job ended before that, its end,",
        "from which on `paceline why` has the answer): median (largest).",
        f"torchrun was given a process-group timeout of {group_timeout} s; people have 600 or 1800.\n",
        _seconds(here),
        _confusion(measured),
        _quiet(measured),
        _misses(measured),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _summary(measured: Sequence[Measured]) -> str:
    rows: list[tuple[str, Callable[[Measured], str], str]] = [
        ("trials", lambda one: f"{len(one.faults)} of {len({o.name for o in one.faults})} scripts", ""),
        (
            "cause right (first finding)",
            lambda one: _share(one.count(Told.RIGHT), len(one.faults)),
            f">= {WANTED_CAUSE:.0%}; >= {WANTED_CAUSE_ONCE:.0%} with one trial each",
        ),
        ("wrong", lambda one: str(one.count(Told.WRONG)), "0"),
        ("unclear or not judged", lambda one: str(one.count(Told.UNCLEAR) + one.count(Told.NOT_JUDGED)), "the others"),
        ("rank right", _ranks, f">= {WANTED_RANK:.0%}"),
        (
            "the same answer of the stopped job's recording",
            lambda one: _share(sum(o.codes[:1] == o.codes_afterwards[:1] for o in one.faults), len(one.faults)),
            "all",
        ),
        (f"judged within {WANTED_JUDGED_SECONDS:.0f} s", lambda one: _in_time(one.faults), ""),
        (
            "the same without slowness (S)",
            lambda one: _in_time([outcome for outcome in one.faults if not outcome.code.startswith("S")]),
            f">= {WANTED_IN_TIME:.0%}; >= {WANTED_IN_TIME_NCCL:.0%} with NCCL",
        ),
        ("healthy and decoy time", lambda one: f"{_hours(one.quiet):.2f} h", "4 h together"),
        ("alarms in it", lambda one: str(sum(len(o.alarms) for o in one.quiet)), "0"),
        ("false findings of confidence *high* in it", lambda one: str(sum(len(o.false_highs) for o in one.quiet)), "0"),
        ("jobs ended in it", lambda one: str(sum(o.was_ended for o in one.quiet)), "0"),
    ]
    lines = [
        f"| torch | {' | '.join(one.version for one in measured)} | wanted |",
        "|---|" + "---|" * len(measured) + "---|",
        *(f"| {name} | {' | '.join(cell(one) for one in measured)} | {wanted} |" for name, cell, wanted in rows),
    ]
    return "\n".join(lines) + "\n"


def _ranks(one: Measured) -> str:
    scored = [outcome for outcome in one.faults if outcome.rank_right is not None]
    return _share(sum(bool(outcome.rank_right) for outcome in scored), len(scored))


def _in_time(outcomes: Sequence[Outcome]) -> str:
    judged = [outcome.judged_after_seconds for outcome in outcomes if outcome.judged_after_seconds is not None]
    return _share(sum(seconds <= WANTED_JUDGED_SECONDS for seconds in judged), len(outcomes))


def _hours(outcomes: Iterable[Outcome]) -> float:
    return sum(outcome.watched_seconds for outcome in outcomes) / 3600


def _answers(measured: Sequence[Measured], titles: Mapping[str, str]) -> str:
    lines = [
        f"| script | what is broken | {' | '.join(one.version for one in measured)} |",
        "|---|---|" + "---|" * len(measured),
    ]
    for name in _names(measured):
        cells = " | ".join(_answer(one.of(name)) for one in measured)
        lines.append(f"| {name} | {titles.get(name, '')} | {cells} |")
    return "\n".join(lines) + "\n"


def _left_out(reasons: Mapping[str, str]) -> str:
    """The scripts without NCCL's column."""
    return "\n".join(["Not tried with NCCL:\n", *(f"* {name}: {reason}." for name, reason in reasons.items())]) + "\n"


def _answer(rows: Sequence[Outcome]) -> str:
    if not rows:
        return ""
    signs = {Told.RIGHT: "", Told.UNCLEAR: "?", Told.NOT_JUDGED: "-", Told.WRONG: "!"}
    others = "".join(signs[Told(row.told)] for row in rows if row.told)
    return f"{sum(row.told == Told.RIGHT for row in rows)}/{len(rows)} {others}".rstrip()


def _names(measured: Iterable[Measured]) -> list[str]:
    """Scripts that were tried on any torch, by code."""
    return [name for _, name in sorted({(outcome.code, outcome.name) for one in measured for outcome in one.faults})]


def _seconds(here: Measured) -> str:
    theirs = {outcome.name: outcome for outcome in here.outcomes if outcome.kind == "torchrun"}
    lines = [
        "| script | detected | judged | rank right | cause right | torchrun: first word | rank right | cause told |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in _names([here]):
        rows = here.of(name)
        scored = [row for row in rows if row.rank_right is not None]
        ranks = f"{sum(bool(row.rank_right) for row in scored)}/{len(scored)}" if scored else "nobody's"
        lines.append(
            f"| {name} | {_spread(rows, lambda o: o.detected_after_seconds)} | {_spread(rows, lambda o: o.judged_after_seconds)} "
            f"| {ranks} | {sum(bool(row.cause_right) for row in rows)}/{len(rows)} | {_baseline(theirs.get(name))} |"
        )
    return "\n".join(lines) + "\n"


def _baseline(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run | | "
    word = "never" if outcome.detected_after_seconds is None else f"{outcome.detected_after_seconds:.1f} s"
    rank = {None: "nobody's", True: "yes", False: "no"}[outcome.rank_right]
    return f"{word} | {rank} | {'yes' if outcome.cause_right else 'no'}"


def _confusion(measured: Sequence[Measured]) -> str:
    """Injected cause against the first finding: only where something else was said."""
    lines = []
    for one in measured:
        said = Counter((outcome.code, outcome.codes[0] if outcome.codes else "nothing") for outcome in one.faults)
        for code in sorted({code for code, _ in said}):
            answers = {answer: count for (injected, answer), count in said.items() if injected == code}
            others = ", ".join(f"{answer} {count}" for answer, count in sorted(answers.items()) if answer != code)
            if others:
                lines.append(f"| {one.version} | {code} | {answers.get(code, 0)} | {others} |")
    if not lines:
        return "## What was taken for what\n\nNothing was taken for anything else.\n"
    head = [
        "## What was taken for what\n",
        "| torch | injected | first finding the same | first finding another |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _quiet(measured: Sequence[Measured]) -> str:
    lines = [
        "## Jobs that are not broken\n",
        "| torch | job | watched | ended | alarms | falsely *high* | notices |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in measured:
        for name in sorted({outcome.name for outcome in one.quiet}):
            rows = [outcome for outcome in one.quiet if outcome.name == name]
            said = (_listed(texts) for texts in zip(*((o.alarms, o.false_highs, o.notices) for o in rows), strict=True))
            cells = [f"{_hours(rows) * 60:.1f} min", str(sum(o.was_ended for o in rows)), *said]
            lines.append(f"| {one.version} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" if len(lines) > 3 else ""


def _misses(measured: Sequence[Measured]) -> str:
    lines = [text for one in measured for text in _misses_on(one)]
    return "\n".join(["## Misses\n", *lines]) + "\n" if lines else ""


def _misses_on(one: Measured) -> Iterator[str]:
    for outcome in one.faults:
        if outcome.cause_right and outcome.rank_right is not False and not outcome.problem:
            continue
        said = ", ".join(outcome.codes[:2]) or "nothing"
        where = f"rank {outcome.rank} of {outcome.world_size} on {outcome.hosts} host{'s' * (outcome.hosts > 1)}"
        named = ",".join(map(str, outcome.ranks)) or "none"
        text = f"* torch {one.version}, {outcome.name} ({where}, step {outcome.at_step}): {outcome.told}; said {said}, ranks {named}."
        yield f"{text} {outcome.problem}".rstrip()


def _spread(rows: Sequence[Outcome], value: Callable[[Outcome], float | None]) -> str:
    numbers = [number for row in rows if (number := value(row)) is not None]
    if not numbers:
        return "never"
    missing = f", {len(rows) - len(numbers)} never" if len(numbers) < len(rows) else ""
    return f"{statistics.median(numbers):.1f} ({max(numbers):.1f}){missing}"


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({count / of:.1%})" if of else "none"


def _listed(groups: Iterable[tuple[str, ...]]) -> str:
    counts = Counter(text for group in groups for text in group)
    return ", ".join(f"{text} ({count}x)" for text, count in sorted(counts.items())) or "none"
