"""Every code that paceline prints has a page."""

import re
from pathlib import Path

import pytest

import paceline
from paceline.rules import discover, page_of, pages
from paceline.views.page import code_list, page_sections, page_text

SOURCE = Path(paceline.__file__).parent
SECTIONS = {"what_it_means", "why_it_matters", "what_to_do", "source"}


# Data types of the safetensors format look like codes, and the table of gone codes names them.
NO_CODES_IN = {SOURCE / "parts/resume/recording/state_piece.py", SOURCE / "rules/gone_codes.py"}


def codes_in_the_source():
    files = set(SOURCE.rglob("*.py")) - NO_CODES_IN
    return sorted({code for path in files for code in re.findall(r"\"([UEXPF]\d\d)\"", path.read_text())})


@pytest.mark.parametrize("code", codes_in_the_source())
def test_a_code_that_is_raised_has_a_page(code):
    assert code in pages()


@pytest.mark.parametrize("code", sorted(pages()))
def test_a_page_has_a_title_and_four_sections(code):
    sections = page_sections(pages()[code])
    assert sections["title"] and not sections["title"].endswith(".")
    assert set(sections) >= SECTIONS
    assert all(sections.values())


def test_a_page_is_printed_under_its_code():
    assert page_text("U09", pages()["U09"]).splitlines()[0] == "U09  There is no such run"


def test_the_list_has_one_line_for_each_code():
    assert [line.split()[0] for line in code_list(pages()).splitlines()] == sorted(pages())


def test_one_page_is_found_without_the_others():
    assert {code: page_of(code) for code in pages()} == pages()
    assert page_of("Z99") is None and page_of("../pages/U01") is None and page_of("") is None


@pytest.mark.parametrize("folder", ["checks", "source", "hosts", "causes"])
def test_rules_are_found_in_their_folder(folder):
    codes = [rule.code for rule in discover(folder)]
    assert codes == sorted(set(codes))
