"""The user's own files that a script imports, and comments that switch a check off at a line."""

import zipapp

import pytest

from paceline.facts import Program, ProgramKind
from paceline.findings import Judgement, Severity
from paceline.rules.collect import before_of
from paceline.rules.job_facts import checks_of
from paceline.rules.script import parse

WRONG = 'import os\nn = int(os.environ["SM_HOSTS"])\n'


@pytest.fixture
def imported(tmp_path):
    """The files that a script imports, and what K07 says of all of them."""

    def of(script, **files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "train.py").write_text(script)
        program = Program(kind=ProgramKind.SCRIPT, target="train.py")
        return before_of(engine="local", ranks_per_host=2, program=program, directory=tmp_path)

    return of


def said(before, code="K07"):
    return next(verdict for verdict in checks_of(before) if verdict.code == code)


@pytest.mark.parametrize(
    ("script", "files", "expected"),
    [
        ("import helper", {"helper": WRONG}, ["helper.py"]),
        ("from helper import main", {"helper": "import deeper", "deeper": WRONG}, ["helper.py", "deeper.py"]),
        ("import pkg.data", {"pkg__init": "", "pkg__data": WRONG}, ["pkg/data.py"]),
        ("from pkg import data", {"pkg__data": "from . import more", "pkg__more": ""}, ["pkg/data.py", "pkg/more.py"]),
        (
            "from pkg.data import *",
            {"pkg__data": "from .more import x", "pkg__more": ""},
            ["pkg/data.py", "pkg/more.py"],
        ),
        ("import a", {"a": "import train", "b": ""}, ["a.py"]),
        ("import a", {"a": "import b", "b": "import a"}, ["a.py", "b.py"]),
    ],
)
def test_imports_are_followed_below_the_directory(imported, script, files, expected):
    assert [file.path for file in imported(script, **files).imported] == expected


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    import helper\nexcept ImportError:\n    helper = None",
        "if x:\n    import helper",
        "def go():\n    import helper",
        "import torch, os.path, helpers",
        "import (",
    ],
)
def test_an_import_that_may_never_happen_is_not_followed(imported, script):
    assert imported(script, helper=WRONG).imported == ()


def test_what_lies_outside_of_the_directory_is_not_read(imported, tmp_path):
    (tmp_path.parent / "outside.py").write_text(WRONG)
    assert imported("from .. import outside").imported == ()


def test_a_finding_in_an_imported_file_stops_nothing_but_one_that_is_no_python_does(imported):
    (finding,) = said(imported("import helper", helper=WRONG)).findings
    assert (finding.severity, finding.file, finding.line) == (Severity.WARNING, "helper.py", 2)
    (broken,) = said(imported("import helper", helper="def (:\n"), "K06").findings
    assert (broken.severity, broken.file, broken.line) == (Severity.ERROR, "helper.py", 1)


@pytest.mark.parametrize(
    "text",
    [
        'import os\nn = int(os.environ["SM_HOSTS"])  # paceline: ignore[K07] one host only\n',
        'import os\n# paceline: ignore[K06, K07]\nn = int(os.environ["SM_HOSTS"])\n',
    ],
)
def test_a_comment_switches_a_check_off_at_its_line(imported, text):
    verdict = said(imported(text))
    assert verdict.judgement is Judgement.SILENT and not verdict.findings
    assert [finding.code for finding in verdict.ignored] == ["K07"]
    assert len(said(imported("import helper", helper=text)).ignored) == 1


@pytest.mark.parametrize(
    "text",
    [
        'import os\nn = int(os.environ["SM_HOSTS"])  # paceline: ignore[K08]\n',
        'import os\nn = int(os.environ["SM_HOSTS"])  # paceline: ignore\n',
        'import os  # paceline: ignore[K07]\nn = int(os.environ["SM_HOSTS"])\n',
    ],
)
def test_another_code_no_code_or_another_line_switches_nothing_off(imported, text):
    verdict = said(imported(text))
    assert len(verdict.findings) == 1 and not verdict.ignored


def test_a_module_finds_its_imports_where_the_job_starts_and_not_beside_itself(imported, tmp_path):
    """`python -m pkg.train` has the directory it starts in on its path, so `import helper` is not `pkg/helper.py`."""
    imported("", helper="x = 1", pkg__helper="import (", pkg__train="import helper")
    program = Program(kind=ProgramKind.MODULE, target="pkg.train")
    before = before_of(engine="local", ranks_per_host=2, program=program, directory=tmp_path)
    assert [file.path for file in before.imported] == ["helper.py"]
    assert said(before, "K06").judgement is Judgement.SILENT


def test_each_file_is_parsed_once_for_all_checks(imported):
    parse.cache_clear()
    before = imported("import helper", helper=WRONG)
    list(checks_of(before))
    assert parse.cache_info().misses == 2


def test_a_zip_application_is_no_text_to_be_judged(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__main__.py").write_text(WRONG)
    zipapp.create_archive(tmp_path / "app", tmp_path / "train.pyz", interpreter="/usr/bin/env python3")
    program = Program(kind=ProgramKind.SCRIPT, target="train.pyz")
    before = before_of(engine="local", ranks_per_host=2, program=program, directory=tmp_path)
    assert before.script is None and said(before, "K06").judgement is Judgement.NOT_JUDGED
