"""What a run answers in Python: values with the text of the verb, and a table or that text in a notebook."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.findings import CauseFinding


class Answer:
    """An answer of a verb."""

    def facts(self) -> dict[str, Any]:
        """The object that the verb prints with --json."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        # Long lines are broken by the notebook, at its own width.
        return f'<pre style="white-space: pre-wrap">{html.escape(str(self))}</pre>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


@dataclass(frozen=True, slots=True, eq=False)
class Why(Answer):
    """Why a run hangs, failed, computes wrong numbers or is slow. `print` shows the page of `paceline why`."""

    run_id: str
    """Id of the run."""
    state: str
    """running, done, failed, stopped, dead or unknown, as `paceline why` prints it."""
    findings: tuple[CauseFinding, ...]
    """The causes that were found, the most certain first; empty: none was found."""
    not_judged: tuple[str, ...]
    """What could not be looked at. No finding says nothing about these."""
    text: str
    """The page."""
    document: dict[str, Any]
    """The object of `facts`."""

    def __str__(self) -> str:
        return self.text

    def facts(self) -> dict[str, Any]:
        """The object of `paceline why --json`."""
        return self.document


@dataclass(frozen=True, slots=True, eq=False)
class Logs(Answer, Sequence[str]):
    """Lines that the ranks wrote, each without its line break. `print` shows them as `paceline logs` does."""

    lines: tuple[str, ...]
    """The text of each line."""
    records: tuple[dict[str, Any], ...]
    """The object of each line, as `paceline logs --json` prints it."""
    text: str
    """All lines with the rank in front."""

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, place: Any) -> Any:
        return self.lines[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def facts(self) -> dict[str, Any]:
        """All lines as `paceline logs --json` prints them, under `lines`."""
        return {"lines": list(self.records)}
