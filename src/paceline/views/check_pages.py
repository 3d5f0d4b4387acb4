"""docs/checks.md: a table of all checks and the page of each, made from the rules, so it cannot differ from them."""

from collections.abc import Iterator, Sequence

from paceline.findings import Rule
from paceline.views.page import heading_anchor, page_sections


def checks_page(checks: Sequence[Rule]) -> str:
    """The whole file."""
    lines = [
        "# Checks",
        "",
        "Made by `make docs` from `src/paceline/rules/checks/`; `paceline explain CODE` prints the same pages.",
        "Every job is checked before anything is uploaded or started. An error stops the job; a warning is printed. If a check needs an",
        "unknown fact, it is listed as *not judged*, which never means fine. paceline does not run the script: it parses the entry point,",
        "but not the modules that it imports.",
        "",
        "| Code | Check |",
        "|---|---|",
        *(f"| [{check.code}](#{check_anchor(check)}) | {_title(check)} |" for check in checks),
    ]
    return "\n".join([*lines, *(line for check in checks for line in _page(check))]) + "\n"


def _page(check: Rule) -> Iterator[str]:
    yield ""
    yield f"## {check.code} {_title(check)}"
    for name, text in page_sections(check.page).items():
        if name != "title":
            yield ""
            yield f"**{name.replace('_', ' ').capitalize()}.** {text}"


def _title(check: Rule) -> str:
    return page_sections(check.page)["title"]


def check_anchor(check: Rule) -> str:
    """The anchor of a check's page within the file."""
    return heading_anchor(f"{check.code} {_title(check)}")
