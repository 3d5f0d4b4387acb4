"""docs/faults.md from the outcomes of trials. Values in, text out."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from scoring import Outcome

_HOW = """\
Every fault of the gallery (`examples/broken`) is injected for real, with other ranks, steps and numbers of ranks and hosts each
time, all on one machine. The cause is right when the first finding of `paceline why` has the right code; the rank is right when
that finding names exactly the broken one. (Of two ranks that issue different collectives nobody can tell which one is wrong:
there, naming both is right.)
"""
WANTED_RANK, WANTED_CAUSE = 0.98, 0.90
WANTED_JUDGED_SECONDS = 10.0


def report(
    outcomes: Sequence[Outcome], titles: Mapping[str, str], *, commit: str, date: str, group_timeout: int
) -> str:
    """The whole page. `titles`: script name -> what is broken in it."""
    faults = [outcome for outcome in outcomes if outcome.kind == "fault"]
    theirs = {outcome.name: outcome for outcome in outcomes if outcome.kind == "torchrun"}
    quiet = [outcome for outcome in outcomes if outcome.kind in ("decoy", "healthy")]
    parts = [
        "# Faults: measured\n",
        f"Written by `make faults` at commit {commit} on {date}; not edited by hand.\n",
        _HOW,
        _summary(faults, quiet),
        "## Each fault\n",
        "Seconds from the injection to the first word (*detected*) and to a cause (*judged*; where the job ended before that, its end,",
        "from which on `paceline why` has the answer): median (largest).",
        f"torchrun was given a process-group timeout of {group_timeout} s; people have 600 or 1800.\n",
        _table(faults, theirs, titles),
        _confusion(faults),
        _quiet(quiet),
        _misses(outcomes),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _summary(faults: Sequence[Outcome], quiet: Sequence[Outcome]) -> str:
    scored = [outcome for outcome in faults if outcome.rank_right is not None]
    judged = [outcome.judged_after_seconds for outcome in faults if outcome.judged_after_seconds is not None]
    hours = sum(outcome.watched_seconds for outcome in quiet) / 3600
    alarms = sum(len(outcome.alarms) for outcome in quiet)
    same = sum(outcome.codes[:1] == outcome.codes_afterwards[:1] for outcome in faults)
    in_time = sum(seconds <= WANTED_JUDGED_SECONDS for seconds in judged)
    scripts, causes = len({outcome.name for outcome in faults}), len({outcome.code for outcome in faults})
    lines = [
        "| | measured | wanted |",
        "|---|---|---|",
        f"| trials | {len(faults)} of {scripts} scripts, {causes} causes | |",
        f"| cause right (first finding) | {_share(sum(bool(o.cause_right) for o in faults), len(faults))} | >= {WANTED_CAUSE:.0%} |",
        f"| the same answer of the stopped job's recording | {_share(same, len(faults))} | all |",
        f"| rank right | {_share(sum(bool(o.rank_right) for o in scored), len(scored))} | >= {WANTED_RANK:.0%} |",
        f"| judged within {WANTED_JUDGED_SECONDS:.0f} s | {_share(in_time, len(faults))} | all but slowness |",
        f"| alarms in healthy and decoy time | {alarms} in {hours:.2f} h | 0 |",
    ]
    return "\n".join(lines) + "\n"


def _table(faults: Sequence[Outcome], theirs: Mapping[str, Outcome], titles: Mapping[str, str]) -> str:
    lines = [
        "| script | what is broken | trials | detected | judged | rank right | cause right "
        "| torchrun: first word | rank right | cause told |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, group in groupby(sorted(faults, key=lambda o: (o.code, o.name)), key=lambda o: o.name):
        rows = list(group)
        scored = [row for row in rows if row.rank_right is not None]
        ranks = f"{sum(bool(row.rank_right) for row in scored)}/{len(scored)}" if scored else "nobody's"
        lines.append(
            f"| {name} | {titles.get(name, '')} | {len(rows)} | {_spread(rows, lambda o: o.detected_after_seconds)} "
            f"| {_spread(rows, lambda o: o.judged_after_seconds)} | {ranks} | {sum(bool(row.cause_right) for row in rows)}/{len(rows)} "
            f"| {_baseline(theirs.get(name))} |"
        )
    return "\n".join(lines) + "\n"


def _baseline(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run | | "
    word = "never" if outcome.detected_after_seconds is None else f"{outcome.detected_after_seconds:.1f} s"
    rank = {None: "nobody's", True: "yes", False: "no"}[outcome.rank_right]
    return f"{word} | {rank} | {'yes' if outcome.cause_right else 'no'}"


def _confusion(faults: Sequence[Outcome]) -> str:
    """Injected cause against the first finding: only the rows in which something else was said."""
    said = Counter((outcome.code, outcome.codes[0] if outcome.codes else "nothing") for outcome in faults)
    lines = []
    for code in sorted({code for code, _ in said}):
        answers = {answer: count for (injected, answer), count in said.items() if injected == code}
        others = ", ".join(f"{answer} {count}" for answer, count in sorted(answers.items()) if answer != code)
        if others:
            lines.append(f"| {code} | {answers.get(code, 0)} | {others} |")
    if not lines:
        return "## What was taken for what\n\nNothing was taken for anything else.\n"
    head = [
        "## What was taken for what\n",
        "| injected | first finding the same | first finding another |",
        "|---|---|---|",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _quiet(quiet: Sequence[Outcome]) -> str:
    lines = ["## Jobs that are not broken\n", "| job | watched | alarms | notices |", "|---|---|---|---|"]
    for name, group in groupby(sorted(quiet, key=lambda o: o.name), key=lambda o: o.name):
        rows = list(group)
        minutes = sum(row.watched_seconds for row in rows) / 60
        alarms, notices = _listed(row.alarms for row in rows), _listed(row.notices for row in rows)
        lines.append(f"| {name} | {minutes:.1f} min | {alarms} | {notices} |")
    return "\n".join(lines) + "\n" if quiet else ""


def _misses(outcomes: Iterable[Outcome]) -> str:
    lines = []
    for outcome in outcomes:
        if outcome.kind != "fault" or (outcome.cause_right and outcome.rank_right is not False and not outcome.problem):
            continue
        said = ", ".join(outcome.codes[:2]) or "nothing"
        where = f"rank {outcome.rank} of {outcome.world_size} on {outcome.hosts} host{'s' * (outcome.hosts > 1)}"
        named = ",".join(map(str, outcome.ranks)) or "none"
        lines.append(
            f"* {outcome.name} ({where}, step {outcome.at_step}): said {said}, ranks {named}. {outcome.problem}".rstrip()
        )
    return "\n".join(["## Misses\n", *lines]) + "\n" if lines else ""


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
