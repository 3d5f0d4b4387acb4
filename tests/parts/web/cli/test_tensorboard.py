"""`paceline report --format tensorboard`."""

from pathlib import Path

import pytest

from paceline.cli import main

ASLEEP = str(Path(__file__).parents[3] / "recording/data/before/asleep")


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_run_and_each_host_have_a_file(tmp_path, capsys):
    assert main(["report", ASLEEP, "--format", "tensorboard", "-o", str(tmp_path / "logs")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'logs' / 'r-4ff4d0'}\n"
    made = files(tmp_path / "logs")
    assert sorted(made) == [
        "r-4ff4d0/localhost/events.out.tfevents.1795404451.paceline",
        "r-4ff4d0/run/events.out.tfevents.1795404451.paceline",
    ]
    assert all(b"brain.Event:2" in content for content in made.values())


def test_a_second_call_writes_the_same_and_leaves_other_files_alone(tmp_path):
    other = tmp_path / "events.out.tfevents.1.mine"
    other.write_bytes(b"mine")
    main(["report", ASLEEP, "--format", "tensorboard", "-o", str(tmp_path)])
    before = files(tmp_path)
    main(["report", ASLEEP, "--format", "tensorboard", "-o", str(tmp_path)])
    assert files(tmp_path) == before and other.read_bytes() == b"mine"


def test_following_a_run_that_has_ended_ends(tmp_path):
    assert main(["report", ASLEEP, "--format", "tensorboard", "-o", str(tmp_path), "--follow"]) == 0
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--follow",), "U03"),
        (("--format", "tensorboard", "-o", "/proc/no"), "U22"),
        (("--format", "tensorboard", "-o", __file__), "U22"),
    ],
)
def test_what_cannot_be_is_an_error_in_four_parts(capsys, words, code):
    assert main(["report", ASLEEP, *words]) == 2
    error = capsys.readouterr().err
    assert f"error[{code}]" in error and "next" in error
