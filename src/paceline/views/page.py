"""The page behind a code, as `paceline help` prints it."""

from collections.abc import Mapping

from paceline.terminal_text import BOLD, painted
from paceline.views.table import crop


def page_text(code: str, page: str, *, color: bool = False) -> str:
    """The code and its title on the first line, then the page as it was written."""
    title, _, body = page.strip().partition("\n")
    head = f"{code}  {title}"
    return f"{painted(BOLD, head) if color else head}\n{body}"


def page_sections(page: str) -> dict[str, str]:
    """The page's title and sections for a program, keyed by heading in snake_case.

    Holds: a section begins at a line "Heading: text" that is not indented; a line "  - text" begins a line "- text" of its section
    """
    title, _, body = page.strip().partition("\n")
    sections = {"title": title.strip()}
    name = ""
    for line in body.splitlines():
        heading, colon, rest = line.partition(":")
        if colon and heading[:1].isupper() and heading.count(" ") < 6 and not line.startswith(" "):
            name = heading.strip().lower().replace(" ", "_")
            sections[name] = rest.strip()
        elif name and line.startswith("  - "):
            sections[name] += f"\n{line.strip()}"
        elif name and line.strip():
            sections[name] = f"{sections[name]} {line.strip()}".strip()
    return sections


def code_list(pages: Mapping[str, str], *, width: int | None = 100, ascii_only: bool = False) -> str:
    """Every code with the title of its page, one a line."""
    return "\n".join(
        crop(f"{code:<5} {pages[code].strip().splitlines()[0]}", width, ascii_only=ascii_only) for code in sorted(pages)
    )


def heading_anchor(heading: str) -> str:
    """The anchor that code hosts and the documentation site give to a heading: small letters, dashes for spaces, no punctuation."""
    kept = "".join(char for char in heading.lower() if char.isalnum() or char in " -_")
    return kept.strip().replace(" ", "-")
