"""Verdicts before a run, as text and for a program; docs/checks.md says what the rules say."""

import msgspec

from paceline.cli.programs.write_docs import checks_text as checks_of_the_docs
from paceline.cli.programs.write_docs import main
from paceline.findings import Finding, Judgement, Rule, Severity, Verdict
from paceline.rules.job_facts import all_checks
from paceline.terminal_text import BOLD_RED, painted
from paceline.views.check_pages import checks_page
from paceline.views.checks import MissingFact, checks_facts, checks_text

VERDICTS = (
    Verdict(
        "K01",
        Judgement.FIRED,
        (Finding(code="K01", severity=Severity.WARNING, what="slow", saw="2 Gbit/s", next="take another"),),
    ),
    Verdict(
        "K03",
        Judgement.FIRED,
        (Finding(code="K03", severity=Severity.ERROR, what="no data for 1 host", saw="1 key", next="more keys"),),
    ),
    Verdict("K04", Judgement.NOT_JUDGED, missing="a plan (paceline plan train.py)"),
    Verdict("K05", Judgement.NOT_JUDGED, missing="a plan (paceline plan train.py)"),
    Verdict("K06", Judgement.SILENT),
    Verdict("K11", Judgement.NOT_JUDGED, missing="the network of the hosts: their machine type"),
)
TEXT = """\
error[K03]: no data for 1 host
  saw       1 key
  next      more keys
  more      paceline help K03
warning[K01]: slow
  saw       2 Gbit/s
  next      take another
  more      paceline help K01
checks: 1 error, 1 warning, 1 of 6 found nothing, not judged: K04, K05 (unknown: a plan (paceline
  plan train.py)); K11 (unknown: the network of the hosts: their machine type)"""


def test_errors_come_first_and_one_line_closes():
    assert checks_text(VERDICTS) == TEXT


def test_before_a_job_a_command_stands_for_the_reasons():
    closing = "checks: 1 of 2 found nothing, not judged: K04 (paceline check train.py says why)"
    assert checks_text([VERDICTS[2], VERDICTS[4]], more="paceline check train.py") == closing


def test_a_job_without_a_finding_is_one_line():
    assert checks_text([Verdict("K06", Judgement.SILENT)]) == "checks: 1 of 1 found nothing"


def test_color_is_for_those_who_ask():
    assert painted(BOLD_RED, "error[K03]") in checks_text(VERDICTS, color=True)


def test_a_program_gets_the_same():
    facts = checks_facts(VERDICTS)
    assert facts.passed is False
    assert facts.counts == {"error": 1, "warning": 1, "notice": 0}
    assert msgspec.to_builtins(facts.findings[0]) == {
        "code": "K03",
        "severity": "error",
        "confidence": "high",
        "what": "no data for 1 host",
        "saw": "1 key",
        "next": "more keys",
        "more": "paceline help K03",
        "file": None,
        "line": None,
    }
    assert facts.silent == ("K06",)
    assert facts.not_judged[2] == MissingFact("K11", "the network of the hosts: their machine type")
    assert checks_facts([Verdict("K06", Judgement.SILENT)]).passed is True


def test_the_page_has_a_row_and_a_section_for_each_check():
    page = "It sleeps\n\nWhat it means: Nothing,\n  for long.\nSource: time.sleep.\n"
    text = checks_page([Rule("K99", page, lambda before: ())])
    assert "| [K99](#k99-it-sleeps) | It sleeps |" in text
    assert "## K99 It sleeps" in text
    assert "**What it means.** Nothing, for long." in text


def test_docs_checks_is_up_to_date(repository):
    assert (repository / "docs/checks.md").read_text() == checks_of_the_docs(), "run `make docs`"


def test_every_check_is_in_it(tmp_path):
    main(tmp_path)
    text = (tmp_path / "checks.md").read_text()
    assert not [check.code for check in all_checks() if f"## {check.code} " not in text]
