"""A block of a page that has its label in a column of its own."""

from collections.abc import Iterable
from textwrap import wrap

LABEL_WIDTH = 12


def labelled(label: str, texts: Iterable[str], width: int) -> list[str]:
    """One block with the label beside the first text and each text wrapped beside that column; none without texts."""
    lines: list[str] = []
    for text in texts:
        head = f"{'' if lines else label:<{LABEL_WIDTH}}"
        lines += wrap(text, width, initial_indent=head, subsequent_indent=" " * LABEL_WIDTH)
    return ["\n".join(lines)] if lines else []
