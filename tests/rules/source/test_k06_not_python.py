"""K06: scripts that Python refuses to read."""

import sys
import warnings

import pytest

from paceline.findings import Severity

ARTICLE = """\
import torch.distributed as dist

try:
    dist.init_process_group("mpi")
except Exception as error:
    print(error)
train()
finally:
    dist.destroy_process_group()
"""


def test_the_line_and_its_text_are_named(found, job):
    (finding,) = found("K06", job(ARTICLE))
    assert finding.severity is Severity.ERROR
    assert finding.what.startswith("train.py:8 is not valid Python")
    assert finding.saw.splitlines()[0] == "finally:"
    assert "edit train.py:8" in finding.next


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\nreturn x\n", 2),
        ("def f(a, a):\n    pass\n", 1),
        ("x = 1\n  y = 2\n", 2),
        ("print 'hello'\n", 1),
        ("x = '\udcff'\n", 1),
    ],
)
def test_what_compiling_would_refuse_is_found_too(found, job, text, line):
    (finding,) = found("K06", job(text))
    assert f"train.py:{line} is not" in finding.what
    finding.saw.encode()


@pytest.mark.parametrize("text", ["x = \0", "(" * 500 + ")" * 500])
def test_what_breaks_the_parser_itself_is_a_finding(found, job, text):
    (finding,) = found("K06", job(text))
    assert finding.severity is Severity.ERROR


def test_a_caret_stands_below_the_place(found, job):
    (finding,) = found("K06", job("def f():\n    x = = 1\n"))
    assert finding.saw == "x = = 1\n    ^"


def test_a_good_script_draws_nothing_and_no_warning(found, job):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not found("K06", job('x = "\\d"\nif x is 1: pass\n'))


def test_nothing_of_the_script_runs(found, job, tmp_path):
    assert not found("K06", job(f"open({str(tmp_path / 'ran')!r}, 'w')\n"))
    assert not (tmp_path / "ran").exists()


def test_the_grammar_is_that_of_the_python_which_runs_it(found, missing, job):
    matching = "match x:\n    case 1:\n        pass\n"
    assert found("K06", job(matching, engine="sagemaker", py_version="py38"))
    assert not found("K06", job(matching, engine="sagemaker", py_version="py310"))
    assert not found("K06", job(matching, engine="local", py_version="py38"))
    newer = f"py{sys.version_info[0]}{sys.version_info[1] + 1}"
    assert "grammar" in missing("K06", job("type X = int\n", engine="sagemaker", py_version=newer))


def test_what_is_no_python_is_not_judged(missing, job):
    assert missing("K06", job(script_path="train.sh")) == "the text of the script"


@pytest.mark.parametrize("code", ["K07", "K10"])
def test_the_other_checks_do_not_judge_a_script_that_cannot_be_read(missing, job, code):
    assert "K06" in missing(code, job(ARTICLE))
