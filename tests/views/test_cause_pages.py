"""docs/causes.md says what the rules say."""

from paceline.cli.programs.write_docs import causes_text, main
from paceline.findings import Cause, Level
from paceline.rules import all_causes
from paceline.views.cause_pages import causes_page

PAGE = """\
A rank sleeps

What it means: It does nothing,
  for long.
Not to be confused with: N02.
Source: time.sleep.
"""


def rule(code, **fields):
    return Cause(code=code, title="rank asleep", page=PAGE, find=lambda case: (), **fields)


def test_the_page_has_a_row_and_a_section_for_each_cause():
    text = causes_page([rule("N01"), rule("N02", beats=("N01",), preview=True)])
    assert "| [N01](#n01-rank-asleep) | rank asleep | stall |  |  |" in text
    assert "| [N02](#n02-rank-asleep) | rank asleep | stall | preview | N01 |" in text
    assert "**What it means.** It does nothing, for long." in text
    assert "**Not to be confused with.** N02." in text


def test_a_cause_whose_level_is_not_that_of_its_letter_shows_its_own():
    text = causes_page([rule("M18", levels=(Level.QUALITY,)), rule("N03", levels=(Level.STALL, Level.WAITING))])
    assert "| rank asleep | quality |  |  |" in text and "| rank asleep | stall, waiting |  |  |" in text


def test_docs_causes_is_up_to_date(repository):
    assert (repository / "docs/causes.md").read_text() == causes_text(), "run `make docs`"


def test_every_cause_is_in_it(tmp_path):
    main(tmp_path)
    text = (tmp_path / "causes.md").read_text()
    codes = [cause.code for cause in all_causes()]
    assert len(codes) == 81
    assert not [code for code in codes if f"### {code} " not in text]
