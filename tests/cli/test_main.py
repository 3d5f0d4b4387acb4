"""The command finds the verb, refuses in four parts, and chooses the exit code."""

import json

import pytest

from paceline.cli import all_verbs, main, wants_json

READERS = ("ps", "logs", "top", "stop", "help")


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


def test_help_begins_with_two_examples_and_names_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(line.startswith("  paceline ") for line in text.splitlines()[:2])
    assert all(f"\n  {verb} " in text for verb in all_verbs())


def test_the_help_fits_80_columns(capsys):
    assert main(["--help"]) == 0
    assert not [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]


@pytest.mark.parametrize("word", ["help", "-h", "--help"])
def test_help_before_a_verb_is_the_help_of_the_verb_and_no_other_word_is_ignored(word, capsys):
    assert main([word, "logs"]) == main(["logs", "--help"]) == 0
    text = capsys.readouterr().out
    assert text == text[: len(text) // 2] * 2 and "usage: paceline logs" in text
    assert main([word, "lgos"]) == main([word, "x"]) == 2
    refused = capsys.readouterr().err
    assert "'lgos' is no verb, and no code that has a page" in refused and "next      paceline help logs" in refused
    assert "next      paceline help\n" in refused


@pytest.mark.parametrize("verb", READERS)
def test_the_help_of_a_verb_begins_with_two_examples(verb, capsys):
    assert main([verb, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"  paceline {verb}") for line in lines[:2])
    assert any("--json" in line for line in lines)


def test_without_a_verb_the_help_goes_to_stderr(capsys):
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "usage: paceline" in captured.err


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("paceline 0.")


@pytest.mark.parametrize(
    ("argv", "what", "next_"),
    [
        (["pss"], "unknown verb 'pss'", "paceline ps"),
        (["lgos", "--rank", "3"], "unknown verb 'lgos'", "paceline logs --rank 3"),
        (["--jsom"], "unknown option '--jsom'", "paceline --json"),
        (["train.py"], "'train.py' is no verb", "paceline run train.py"),
        (["logs", "--rnak=3"], "unknown option --rnak", "paceline logs --rank=3"),
        (["ps", "--alll"], "unknown option --alll", "paceline ps --all"),
        (
            ["help", "U01", "extra"],
            "paceline help does not know what to do with 'extra'",
            "paceline help U01",
        ),
    ],
)
def test_what_is_misspelled_is_refused_with_the_nearest_spelling(argv, what, next_, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0] == f"error[U01]: {what}"
    parts = dict(line.split(maxsplit=1) for line in lines[1:])
    assert set(parts) <= {"saw", "next", "more"} and parts["next"] == next_


@pytest.mark.parametrize(
    "argv", [["logs", "--attempt", "x"], ["ps", "--color", "blue"], ["logs", "--stdout", "--stderr"]]
)
def test_a_value_that_an_option_cannot_take_is_refused(argv, capsys):
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error[U03]: ")


def test_with_json_a_refusal_is_one_object_on_stdout(capsys):
    assert main(["top", "r-ffffff", "--json"]) == 2
    captured = capsys.readouterr()
    refusal = json.loads(captured.out)
    assert captured.err == ""
    assert (refusal["schema"], refusal["code"], refusal["exit_code"]) == ("paceline.error/1", "U09", 2)


def test_a_json_option_of_the_users_script_is_not_ours():
    assert wants_json(["ps", "--json"])
    assert not wants_json(["run", "train.py", "--json"])
    assert not wants_json(["run", "--", "program", "--json"])


def test_colour_is_for_terminals_and_for_who_asks(capsys, monkeypatch):
    main(["pss"])
    assert "\x1b" not in capsys.readouterr().err
    main(["--color=always", "pss"])
    assert "\x1b[1;31merror[U01]" in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    main(["pss"])
    assert "\x1b" not in capsys.readouterr().err
