"""Two runs side by side: text for people, JSON for programs, a page of HTML."""

from collections.abc import Sequence

import msgspec

from paceline.diagnosis.run_comparison import PaceAnswer, PartChange, RunComparison
from paceline.diagnosis.run_state import run_state
from paceline.facts import Evidence
from paceline.views.report.markup import Markup, document, element
from paceline.views.table import table
from paceline.views.units import UNKNOWN, count, counted, milliseconds

_HEADERS = ("", "FIRST", "SECOND", "DIFFERENCE", "BETWEEN")
_NO_STEPS = "it has no steps after its warm-up"


def compare_text(found: RunComparison, before: Evidence, after: Evidence, *, width: int | None = 100) -> str:
    """The answer, the parts of a step, and what else differs."""
    blocks = [_answer(found, before, after), table(_HEADERS, _rows(found), right=frozenset(_HEADERS[1:]), width=width)]
    if found.differences:
        lines = [f"  {name}: {first} -> {second}" for name, first, second in _differences(found)]
        blocks.append("\n".join(["what differs besides", *lines]))
    else:
        blocks.append("the recordings show nothing else that differs")
    return "\n\n".join(blocks)


class CompareDocument(RunComparison, frozen=True, kw_only=True, tag_field="schema", tag="paceline.compare/1"):
    """The same for programs; None is unknown."""

    first_run_id: str
    """Id of the run that is compared with."""
    second_run_id: str
    """Id of the run that is compared."""
    first_state: str
    """Its state, as in [paceline.ps/2](#pacelineps2)."""
    second_state: str
    """That of the other one."""
    answer_text: str
    """The answer as a sentence."""


def compare_facts(found: RunComparison, before: Evidence, after: Evidence) -> CompareDocument:
    """The same for a program."""
    return CompareDocument(
        **msgspec.structs.asdict(found),
        first_run_id=before.run.id,
        second_run_id=after.run.id,
        first_state=run_state(before.run, before.events).word,
        second_state=run_state(after.run, after.events).word,
        answer_text=_answer(found, before, after),
    )


def compare_html(found: RunComparison, before: Evidence, after: Evidence) -> str:
    """The same as a page that loads nothing and has no script."""
    title = f"{before.run.id} and {after.run.id}"
    head = element("header", element("h1", title))
    return document(title, head, element("main", *_parts(found, before, after)))


def compare_part(found: RunComparison, before: Evidence, after: Evidence) -> Markup:
    """The same as a part of another page."""
    return element("div", *_parts(found, before, after), id="compare")


def _parts(found: RunComparison, before: Evidence, after: Evidence) -> list[object]:
    answer, *more = _answer(found, before, after).split("\n")
    differences = [("", "first", "second"), *_differences(found)]
    return [
        element("h2", "Is the second run slower?"),
        element("p", element("b", answer)),
        *(element("p", line) for line in more),
        element("h2", "A mean step"),
        _table("Seconds of a mean step and of its parts", [_HEADERS, *_rows(found)]),
        element("h2", "What differs besides"),
        _table("Facts that the recordings have", differences) if found.differences else element("p", "Nothing else."),
    ]


def _answer(found: RunComparison, before: Evidence, after: Evidence) -> str:
    step, first, second = found.step, _named(before), _named(after)
    steps = f"{counted(found.before_steps, 'step')} and {counted(found.after_steps, 'step')}"
    if found.answer is PaceAnswer.CANNOT_TELL:
        return f"cannot tell whether {second} is slower than {first}: {_why_not(found)}"
    if found.answer is PaceAnswer.SAME:
        return f"{second} makes its steps as fast as {first}, within 2 % ({steps})"
    whole = step.before_seconds or 1.0
    share, low, high = (
        abs(value or 0.0) / whole for value in (step.moved_seconds, step.low_seconds, step.high_seconds)
    )
    between = f"{min(low, high):.1%} to {max(low, high):.1%}"
    mostly = f", most of it {found.mostly}" if found.mostly else ", in no part of the step more than in the others"
    return f"{second} is {share:.0%} {found.answer} a step than {first} ({between}){mostly} ({steps})"


def _named(evidence: Evidence) -> str:
    """ "r-7f3a91 train (failed, N01)": how a run ended is to be known before its pace is believed."""
    run, state = evidence.run, run_state(evidence.run, evidence.events)
    ended = state.word if state.finding is None else f"{state.word}, {state.finding.code}"
    return " ".join(filter(None, (run.id, run.name))) + f" ({ended})"


def _why_not(found: RunComparison) -> str:
    for which, steps in (("first", found.before_steps), ("second", found.after_steps)):
        if not steps:
            return f"of the {which} run, {_NO_STEPS}"
    if found.step.low_seconds is None or found.step.high_seconds is None:
        return f"too few steps ({count(found.before_steps)} and {count(found.after_steps)})"
    whole = found.step.before_seconds or 1.0
    low, high = found.step.low_seconds / whole, found.step.high_seconds / whole
    return f"the difference is between {low:+.1%} and {high:+.1%}"


def _rows(found: RunComparison) -> list[tuple[str, ...]]:
    return [_row(change) for change in (found.step, *found.parts)]


def _row(change: PartChange) -> tuple[str, ...]:
    values = [milliseconds(value) for value in (change.before_seconds, change.after_seconds)]
    if change.low_seconds is None or change.high_seconds is None:
        return change.name, *values, UNKNOWN, UNKNOWN
    between = f"{_signed(change.low_seconds)} to {_signed(change.high_seconds)}"
    return change.name, *values, _signed(change.moved_seconds), between


def _signed(seconds: float) -> str:
    return f"{1000 * seconds:+.2f} ms"


def _differences(found: RunComparison) -> list[tuple[str, str, str]]:
    return [(one.name, one.before or UNKNOWN, one.after or UNKNOWN) for one in found.differences]


def _table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element(
                "thead", element("tr", *(element("th", cell, scope="col") if cell else element("td") for cell in head))
            ),
            element("tbody", *(element("tr", *(element("td", cell, class_="wide") for cell in row)) for row in body)),
        ),
        class_="box",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
