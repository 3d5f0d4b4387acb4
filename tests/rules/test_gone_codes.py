"""A code that has gone has an answer, is printed by nothing, and is never used again."""

import json
import re
from pathlib import Path

import pytest

import paceline
from paceline.cli import main
from paceline.rules import pages
from paceline.rules.gone_codes import SAID_NOW

SOURCE = Path(paceline.__file__).parent
# Data types of the safetensors format look like codes.
NOT_CODES = {SOURCE / "parts/resume/recording/state_piece.py"}
NOT_TEXT = {SOURCE / "rules/gone_codes.py"}


def words(path):
    return set(re.findall(r"\b[UEXPF]\d\d\b", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("code", sorted(SAID_NOW))
def test_a_gone_code_is_answered_with_the_page_of_the_one_that_says_it_now(code, capsys):
    assert main(["help", code.lower()]) == 0
    first, _, page = capsys.readouterr().out.split("\n", 2)
    assert first == f"{code} is no longer used: {SAID_NOW[code]} says it now."
    assert page.startswith(f"{SAID_NOW[code]}  ")


def test_a_program_learns_which_code_says_it_now(capsys):
    assert main(["help", "E56", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["code"] == "U22" and facts["gone"] == "E56" and facts["what_to_do"]
    assert main(["help", "U22", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**facts, "gone": None}


def test_the_code_that_says_it_now_has_a_page_and_has_not_gone_itself():
    assert set(SAID_NOW.values()) <= set(pages()) - set(SAID_NOW)
    assert not set(SAID_NOW) & set(pages())


def test_the_list_of_the_surface_names_the_same_codes():
    lines = (Path(__file__).parents[1] / "house/surface.txt").read_text().splitlines()
    assert {line.removeprefix("gone ") for line in lines if line.startswith("gone ")} == set(SAID_NOW)


def test_nothing_says_a_code_that_has_gone():
    files = set(SOURCE.rglob("*.py")) | set(SOURCE.rglob("*.txt")) | set(SOURCE.rglob("*.md"))
    said = {path: gone for path in files - NOT_CODES - NOT_TEXT if (gone := words(path) & set(SAID_NOW))}
    assert not said


def test_every_page_that_is_there_is_said_by_something():
    own = {code for code in pages() if code[0] in "UEXPF"}
    said = set().union(*(words(path) for path in SOURCE.rglob("*.py")))
    assert not own - said
