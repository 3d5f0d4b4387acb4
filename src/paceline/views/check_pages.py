"""docs/checks.md: a table of all checks and the page of each, made from the rules, so it cannot differ from them."""

from collections.abc import Iterator, Sequence

from paceline.findings import Rule
from paceline.views.page import heading_anchor, page_sections


def checks_page(checks: Sequence[Rule]) -> str:
    """The whole file."""
    lines = [
        "# Checks",
        "",
        "Made by `make docs` from `rules/checks/` and `rules/source/` of the package; `paceline help CODE` prints the same pages.",
        "`paceline check` and `paceline submit` ask all of them, and an error stops the job. `paceline run` asks those that read the",
        "script: it stops where Python cannot parse a file (K06), and names the rest in one line; `--set no_check=true` leaves them out.",
        "What a check needs and nobody knows is listed as *not judged*, never taken for fine. Nothing of the script is executed: the",
        "script, and the files below its directory that it imports for certain, are parsed. What is found in an imported file is a",
        "warning. A comment `# paceline: ignore[K07] why` behind a line, or on the line above it, switches a check off there.",
        "",
        "K30 to K39 look at the hosts of the job: this machine, `--hosts a,b` over ssh, or with `--engine slurm` and `--engine ray` the",
        "nodes that the job would get: see [engines.md](engines.md#a-look-at-the-hosts-before-the-job). Where no host could be looked",
        "at, all of them are listed as not judged, with the reason.",
        "",
        "In 569 published training scripts of 34 repositories the checks of source found 50 things, each of which the script does, and",
        "no false one: `bench/checks.py` and `bench/data/script_alarms.csv`.",
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
