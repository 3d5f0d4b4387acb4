"""Say whether one run makes its steps faster than another one, by how much, where in the step, and what differs between them."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.cli.output_file import write_output
from paceline.cli.parsing import say_where
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import room
from paceline.diagnosis.run_comparison import compare_runs
from paceline.facts import Evidence
from paceline.option import RUN_DIR, Option, Verb
from paceline.recording.evidence import evidence
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import find_run, read_document
from paceline.views.compare import compare_facts, compare_html, compare_part, compare_text
from paceline.views.documents import json_text
from paceline.views.report.redaction import command_without_secrets

VERB = Verb(
    "compare",
    __doc__ or "",
    (
        ("paceline compare r-7f3a91", "that run and the newest one here"),
        ("paceline compare r-7f3a91 r-37f901 -o compare.html", "two runs, as a page to send"),
    ),
    (
        Option(
            "first",
            "The run to compare with: an id, the beginning of one, or a directory.",
            "FIRST",
            is_positional=True,
        ),
        Option(
            "second",
            "The run that is compared.",
            "SECOND",
            default_text="the newest run here",
            count="?",
            is_positional=True,
        ),
        Option(
            "html", "The file to write; - is standard output.", "FILE", letter="o", default_text="no file, but text"
        ),
        RUN_DIR,
    ),
    page="""\
The steps of the newest attempts are compared, without their warm-up, up to 16,384 of all ranks together. The interval has chance within
the two runs. It does not know how much two runs of the same job differ: run each of them twice before you believe a few percent.
"Cannot tell" is an answer.""",
    notes="`--json` prints `paceline.compare/1`: [its keys](schemas.md#pacelinecompare1).",
)


def run(args: argparse.Namespace) -> int:
    """Compare.

    Raises:  UsageError U09: no such run; U22: the file cannot be written
    """
    root = Path(args.run_dir) if args.run_dir else None
    with ProgressLine("reading both runs", shown=not args.json):
        (before, first_host), (after, second_host) = (_read(text, root) for text in (args.first, args.second))
        found = compare_runs(before, after, (first_host, second_host))
    if args.json:
        print(json_text(compare_facts(found, before, after)))
    elif args.html is None:
        print(compare_text(found, before, after, width=room(sys.stdout)))
    else:
        page = compare_html(found, before, after)
        write_output(args.html, page.encode(), "-o /tmp/compare.html")
    return 0


def compared_html(first: Path, second: Path) -> str:
    """Two recordings compared, as a part of a page."""
    (before, first_host), (after, second_host) = _at(first), _at(second)
    return str(compare_part(compare_runs(before, after, (first_host, second_host)), before, after))


def _read(text: str | None, root: Path | None) -> tuple[Evidence, dict[str, Any]]:
    """A run, and what its first host's documents say."""
    path = find_run(text, root, verb="paceline compare")
    say_where(path, text, root)
    return _at(path)


def _at(path: Path) -> tuple[Evidence, dict[str, Any]]:
    found = evidence(path, recent=True)
    # The page is made to be sent.
    command = tuple(command_without_secrets(list(found.run.command)))
    found = replace(found, run=replace(found.run, command=command))
    host = found.run.first_host or next(iter(found.hosts), "")
    directory = RunDirectory(path)
    files = (directory.host_file(host), directory.environment_file(host)) if host else ()
    return found, {name: value for file in files for name, value in read_document(file).items()}
