"""A verb is its rows: what is made of them, of every verb."""

import pytest

from paceline import cli
from paceline.cli.help_text import help_text
from paceline.cli.parsing import VerbParser, parted, split_at_script
from paceline.errors import UsageError
from paceline.option import Option, Verb, section

VERB = Verb(
    "try",
    "Try it.",
    (("paceline try", "once"), ("paceline try --count 2 -q", "twice, quietly")),
    (
        Option("where", "A place.", "PLACE", count="?", is_positional=True, default_text="here"),
        *section(
            "how",
            Option("count", "How often.", "N", default=1, kind=int, variable="TRY_COUNT", has_underscores=True),
            Option("step-size", "How far.", "METERS", default_text="as far as it goes", has_underscores=True),
            Option("quiet", "Say nothing.", letter="q", variable="TRY_QUIET"),
            Option("left", "Turn left.", stored_as="turn", const="l"),
            Option("right", "Turn right.", stored_as="turn", const="r"),
            Option("tag", "A tag. May be repeated.", "TAG", default=(), repeatable=True),
            Option("secret", "Nothing to see.", hidden=True),
        ),
    ),
)

HELP = """\
  paceline try                once
  paceline try --count 2 -q   twice, quietly

usage: paceline try [OPTIONS] [PLACE]

Try it.

arguments:
  PLACE                   A place. [default: here]

how:
  --count N               How often. [default: 1, or TRY_COUNT]
  --step-size METERS      How far. [default: as far as it goes]
  -q, --quiet             Say nothing. [TRY_QUIET]
  --left                  Turn left.
  --right                 Turn right.
  --tag TAG               A tag. May be repeated.

options:
  --json                  Print JSON instead of text.
  --color auto|always|never
                          Colour of the text. [default: auto]
  -h, --help              Print this help.
"""


def parsed(*argv, **environ):
    return vars(VerbParser(VERB, environ).parse_args(argv))


def test_the_help_has_each_option_once_with_its_default():
    assert help_text(VERB) == HELP


def test_rows_become_arguments():
    assert parsed() == {
        "where": None,
        "count": 1,
        "step_size": None,
        "quiet": False,
        "turn": None,
        "tag": [],
        "secret": False,
        "json": False,
        "color": "auto",
    }
    there = parsed("x", "--count=3", "--step_size", "2", "-q", "--right", "--tag", "a", "--tag", "b", "--secret")
    assert (there["where"], there["count"], there["step_size"], there["quiet"]) == ("x", 3, "2", True)
    assert (there["turn"], there["tag"], there["secret"]) == ("r", ["a", "b"], True)


def test_two_parses_share_no_list():
    parsed("--tag", "a")["tag"].append("b")
    parsed()["tag"].append("c")
    assert parsed()["tag"] == []


def test_a_variable_gives_the_default_and_the_command_line_wins():
    assert parsed(TRY_COUNT="4", TRY_QUIET="1")["count"] == 4
    assert parsed(TRY_COUNT="4", TRY_QUIET="1")["quiet"] is True
    assert parsed("--count", "2", TRY_COUNT="4")["count"] == 2
    with pytest.raises(UsageError) as refused:
        parsed(TRY_QUIET="yes")
    assert refused.value.code == "U03"


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["--cuont", "2"], "U01"), (["x", "y"], "U01"), (["--left", "--right"], "U03"), (["--count", "x"], "U03")],
)
def test_what_a_row_does_not_take_is_refused(argv, code):
    with pytest.raises(UsageError) as refused:
        parsed(*argv)
    assert refused.value.code == code


def test_the_nearest_spelling_is_named_with_the_whole_command():
    with pytest.raises(UsageError) as refused:
        parsed("x", "--cuont=2")
    assert refused.value.next == "--count=2 instead of --cuont=2"


def test_a_script_begins_at_the_first_word_that_belongs_to_no_option():
    assert split_at_script(VERB.rows, ["--count", "2", "-q", "s.py", "--count", "3"]) == (
        ["--count", "2", "-q"],
        ["s.py", "--count", "3"],
    )
    assert split_at_script(VERB.rows, ["-q", "--", "--count"]) == (["-q"], ["--count"])


def test_the_options_of_some_rows_are_parted_from_the_other_words():
    argv = ["--count", "2", "--lr", "3", "-q", "--step_size=1", "x"]
    assert parted(VERB.rows, argv) == (["--count", "2", "-q", "--step_size=1"], ["--lr", "3", "x"])


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_no_line_of_a_help_is_wider_than_80_columns(verb):
    text = help_text(cli.verb_module(verb).VERB)
    assert not [line for line in text.splitlines() if len(line) > 80]
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_a_help_has_every_option_in_one_spelling(verb):
    shown = cli.verb_module(verb).VERB
    heads = [line.strip().split("  ")[0] for line in help_text(shown).splitlines() if line.startswith("  -")]
    for row in shown.rows:
        if not row.hidden and not row.is_positional:
            assert len([head for head in heads if f"--{row.name}" in head.replace(",", "").split()]) == 1, row.name
    assert not [head for head in heads if "_" in head.partition("--")[2].split()[0]]


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_the_examples_in_a_help_can_be_copied(verb):
    shown = cli.verb_module(verb).VERB
    text = " ".join(help_text(shown).partition("usage:")[0].replace("\\\n", "").split())
    assert all(command in text for command, _ in shown.examples)


@pytest.mark.parametrize("verb", cli.all_verbs())
def test_a_row_says_what_it_does_in_sentences(verb):
    for row in cli.verb_module(verb).VERB.rows:
        assert row.hidden or row.help.endswith("."), row.name
