"""--svg of plan and bench."""

import json

import pytest

from paceline.cli import main

STATED = (
    "plan",
    "--instance",
    "p4d.24xlarge",
    "--host-counts",
    "1,2",
    "--gradient-mib",
    "1272",
    "--measured-step-ms",
    "310",
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_plan_is_drawn_and_its_table_printed(folder, capsys):
    assert main([*STATED, "--svg", "plan.svg"]) == 0
    out = capsys.readouterr().out
    assert "STEP MS" in out and out.endswith("plan.svg\n")
    assert (folder / "plan.svg").read_text().startswith("<svg")


def test_json_stays_json_beside_a_picture(folder, capsys):
    assert main(["--json", *STATED, "--svg", "plan.svg"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "paceline.plan/2"
    assert (folder / "plan.svg").exists()


@pytest.mark.parametrize(
    "words",
    [STATED, ("bench", "--rehearse", "train.py"), ("bench", "all_reduce", "--nproc-per-node", "2")],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize(
    ("file", "code", "said"), [("-", "U03", "standard output"), ("no/picture.svg", "U22", "no directory")]
)
def test_a_file_that_cannot_be_is_refused_before_anything_is_measured(folder, capsys, words, file, code, said):
    (folder / "train.py").write_text("raise SystemExit(7)\n")
    verb, *rest = words
    assert main([verb, "--svg", file, *rest]) == 2
    error = capsys.readouterr().err
    assert f"error[{code}]" in error and said in error
    assert not (folder / "home").exists()


def test_a_comparison_with_a_run_is_not_drawn(capsys):
    assert main([*STATED, "--against", "r-1", "--svg", "plan.svg"]) == 2
    assert "--against r-1 --svg plan.svg" in capsys.readouterr().err
