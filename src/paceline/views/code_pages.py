"""docs/codes.md: a table of every code, and the pages that are not in docs/causes.md or docs/checks.md."""

from collections.abc import Iterator, Mapping

from paceline.views.page import heading_anchor, page_sections

_SUBJECTS = {
    "U": "Usage and input",
    "P": "Plans",
    "X": "Exchange of gradients and benchmarks",
    "E": "Engines and data",
    "F": "Restarts",
}


def codes_page(pages: Mapping[str, str], elsewhere: Mapping[str, str]) -> str:
    """The whole file. `elsewhere`: code -> the link to its page in another file of the documentation."""
    titles = {code: page_sections(page)["title"] for code, page in pages.items()}
    lines = [
        "# Codes",
        "",
        "Made by `make docs` from `src/paceline/rules/`; `paceline help CODE` prints the same pages. A code is never used twice.",
        "",
        "| Code | Title |",
        "|---|---|",
    ]
    for code, title in sorted(titles.items()):
        link = elsewhere.get(code) or f"#{heading_anchor(f'{code} {title}')}"
        lines.append(f"| [{code}]({link}) | {title} |")
    for letter, subject in _SUBJECTS.items():
        lines += ["", f"## {letter}: {subject}"]
        for code in sorted(set(pages) - set(elsewhere)):
            if code.startswith(letter):
                lines += _page(code, pages[code])
    return "\n".join(lines) + "\n"


def _page(code: str, page: str) -> Iterator[str]:
    for name, text in page_sections(page).items():
        yield ""
        # A list needs an empty line before it.
        text = text.replace("\n- ", "\n\n- ", 1)
        yield f"### {code} {text}" if name == "title" else f"**{name.replace('_', ' ').capitalize()}.** {text}"
