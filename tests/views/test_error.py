"""Four parts, always in the same order."""

import traceback
from pathlib import Path

import msgspec
import pytest

import paceline
from paceline.errors import UsageError
from paceline.findings import Finding, Severity
from paceline.terminal_text import BOLD_RED, painted
from paceline.views.error import error_json, error_text

IN_USE = UsageError(
    "U04",
    "port 29500 on 127.0.0.1 is in use",
    saw="held by pid 4711 (python train.py)",
    next="paceline run --master-port 29501 ...",
)


def test_an_error_has_four_parts():
    assert error_text(IN_USE) == (
        "error[U04]: port 29500 on 127.0.0.1 is in use\n"
        "  saw       held by pid 4711 (python train.py)\n"
        "  next      paceline run --master-port 29501 ...\n"
        "  more      paceline help U04"
    )


def test_an_unknown_part_is_left_out():
    assert (
        error_text(UsageError("U01", "unknown verb 'x'"))
        == "error[U01]: unknown verb 'x'\n  more      paceline help U01"
    )


def test_further_lines_of_a_part_are_aligned():
    assert error_text(UsageError("E01", "pip failed", saw="one\ntwo\n")).splitlines()[1:3] == [
        "  saw       one",
        "            two",
    ]


def test_a_finding_names_its_severity():
    finding = Finding(code="U15", severity=Severity.WARNING, what="uneven", saw="3 files", next="add one")
    assert error_text(finding).startswith("warning[U15]: uneven\n")
    assert error_text(finding).endswith("more      paceline help U15")


def test_colour_is_only_there_when_asked_for():
    assert "\x1b" not in error_text(IN_USE)
    assert error_text(IN_USE, color=True).startswith(f"{painted(BOLD_RED, 'error[U04]')}: port")


def test_a_program_gets_the_same_parts():
    assert msgspec.to_builtins(error_json(IN_USE)) == {
        "schema": "paceline.error/1",
        "code": "U04",
        "exit_code": 2,
        "what": "port 29500 on 127.0.0.1 is in use",
        "saw": "held by pid 4711 (python train.py)",
        "next": "paceline run --master-port 29501 ...",
        "more": "paceline help U04",
    }


def test_a_traceback_has_the_parts_and_a_notebook_shows_them_alone():
    error = UsageError("U02", "there is no script x.py", saw="nothing of that name", next="ls")
    assert error.__notes__ == [
        "  saw       nothing of that name",
        "  next      ls",
        "  more      [U02] paceline help U02",
    ]
    assert error._render_traceback_() == ["error[U02]: there is no script x.py", *error.__notes__]
    bare = UsageError("U02", "there is no script x.py")
    assert bare.__notes__ == ["  more      [U02] paceline help U02"]


@pytest.mark.parametrize("call", [lambda: paceline.run("nosuch.py"), lambda: paceline.run_function(lambda: 1)])
def test_in_a_script_a_refusal_has_one_frame_of_ours(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        call()
    shown = "".join(traceback.format_exception(refused.value))
    assert (
        shown.count(str(Path(paceline.__file__).parent)) == 1 and "During handling" not in shown and "  more " in shown
    )
