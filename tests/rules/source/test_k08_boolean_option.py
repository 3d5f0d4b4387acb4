"""K08: booleans on their way through argparse."""

import argparse

import pytest

from paceline.findings import Severity

BOOL = 'parser.add_argument("--augment", type=bool, default=True)\nargs = parser.parse_args()\n'
FLAG = 'parser.add_argument("--augment", action="store_true")\n'


@pytest.mark.parametrize("value", [False, "no", 0])
def test_a_value_that_arrives_as_its_opposite_stops_the_job(found, job, value):
    (finding,) = found("K08", job(BOOL, hyperparameters={"augment": value}))
    assert finding.severity is Severity.ERROR
    assert f"--augment {value} arrives as True" in finding.what
    assert finding.next == "train.py:1: type=lambda text: text.lower() == 'true' in place of type=bool"


def test_what_it_advises_is_right():
    parser = argparse.ArgumentParser()
    parser.add_argument("--augment", type=lambda text: text.lower() == "true")
    assert [parser.parse_args(["--augment", text]).augment for text in ("True", "true", "False", "false")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_value_that_happens_to_be_right_is_a_warning(found, job):
    (finding,) = found("K08", job(BOOL, hyperparameters={"augment": True}))
    assert finding.severity is Severity.WARNING
    assert finding.what.endswith("False would too")


def test_a_text_that_is_neither_yes_nor_no_is_not_shown(found, job):
    (finding,) = found("K08", job(BOOL, hyperparameters={"augment": "hunter2"}))
    assert "hunter2" not in finding.what + finding.saw + finding.next


def test_values_among_the_arguments_count(found, job):
    assert found("K08", job(BOOL, arguments=("--lr", "0.1", "--augment", "False")))
    assert found("K08", job(BOOL, arguments=("--augment=False",)))


@pytest.mark.parametrize("profile", ["v2", "v3"])
def test_both_spellings_of_the_sdks_are_read(found, job, profile):
    assert found("K08", job(BOOL, profile=profile, hyperparameters={"augment": False}))


def test_an_option_without_a_value_that_gets_one_stops_the_job(found, job):
    text = FLAG + "args = parser.parse_args()\n"
    (finding,) = found("K08", job(text, hyperparameters={"augment": True}))
    assert finding.severity is Severity.ERROR
    assert "argparse ends the script with code 2" in finding.what


def test_a_lenient_parser_drops_the_value(found, job):
    text = FLAG + "args, _ = parser.parse_known_args()\n"
    (finding,) = found("K08", job(text, hyperparameters={"augment": False}))
    assert "the value is not read" in finding.what
    assert not found("K08", job(text, hyperparameters={"augment": True}))


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        (BOOL, {}),
        (BOOL, {"lr": 0.1}),
        (BOOL, {"augment": None}),
        ('parser.add_argument("--augment", type=str2bool)\nparser.parse_args()\n', {"augment": False}),
        (f'parser.register("type", bool, lambda text: text == "True")\n{BOOL}', {"augment": False}),
        (f"def bool(text): return text == 'True'\n{BOOL}", {"augment": False}),
        (f'parser.add_argument("rest", nargs="*")\n{FLAG}parser.parse_args()\n', {"augment": True}),
    ],
)
def test_what_is_read_rightly_draws_nothing(found, job, text, passed):
    assert not found("K08", job(text, hyperparameters=passed))
