"""The newest saved state of a run as one file that torch.load reads, and what is refused."""

import itertools
import json
import os

import pytest
import torch
from saved_runs import saved_run as saved
from variants import all_but

from paceline.cli import main

pytestmark = pytest.mark.process


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Runs are found in the directories of others too, by the index of their user.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".paceline/index"))
    return tmp_path / ".paceline/runs"


def error_of(capsys):
    return capsys.readouterr().err


PLACES = ("r-1", "{}/r-1", "{}/r-1/state", "file://{}/r-1/state")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", all_but([PLACES[0], PLACES[-1]], PLACES))
def test_the_newest_saved_step_is_a_file_that_a_model_and_an_optimizer_load(runs, name, capsys):
    model, optimizer = saved(runs)
    assert main(["resume", "--export", name.format(runs), "--json", "out.pt"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["step"], said["run_id"], said["models"]) == (7, "r-1", [{"name": "model", "tensor_count": 2}])
    found = torch.load("out.pt", weights_only=True)
    assert (found["step"], found["run_id"], found["rank"], found["world_size"]) == (7, "r-1", 0, 1)
    assert found["values"]["none"].shape == (0, 4)
    fresh = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    fresh.load_state_dict(found["models"]["model"])
    assert torch.equal(fresh.weight, model.weight)
    restored = torch.optim.SGD(fresh.parameters(), lr=0.1, momentum=0.9)
    restored.load_state_dict(found["optimizers"]["optimizer"])
    assert restored.param_groups[0]["lr"] == 0.5
    momentum = [one.state[one.param_groups[0]["params"][0]]["momentum_buffer"] for one in (restored, optimizer)]
    assert torch.equal(*momentum)
    assert sorted(os.listdir()) == [".paceline", "out.pt"]


@pytest.mark.slow
def test_the_text_says_what_is_in_the_file(runs, capsys):
    saved(runs)
    assert main(["resume", "--export", "r-1", "out.pt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "models      model (2 tensors)" in lines and lines[-1].startswith("wrote out.pt: step 7 of run r-1, ")


@pytest.mark.slow
def test_a_file_that_is_there_is_replaced_only_with_force(runs, capsys, tmp_path):
    saved(runs)
    (tmp_path / "out.pt").write_text("mine")
    assert main(["resume", "--export", "r-1", "out.pt"]) == 2
    said = error_of(capsys)
    assert "error[U22]" in said and "paceline resume --export r-1 --force out.pt" in said
    assert (tmp_path / "out.pt").read_text() == "mine"
    assert main(["resume", "--export", "r-1", "--force", "out.pt"]) == 0 and torch.load("out.pt")["step"] == 7


def piece(runs, step, kind):
    return next((runs / f"r-1/state/step-{step}").glob(f"rank-0.*.{kind}"))


HARMS = tuple(itertools.product(["flip", "cut", "longer", "missing"], ["safetensors", "msgpack"]))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("harm", "kind"), all_but([("flip", "safetensors"), ("cut", "msgpack"), ("missing", "safetensors")], HARMS)
)
def test_instead_of_a_damaged_step_the_one_before_is_written(runs, capsys, kind, harm):
    saved(runs)
    path = piece(runs, 7, kind)
    content = bytearray(path.read_bytes())
    match harm:
        case "flip":
            content[-1] ^= 1
        case "cut":
            content = content[:-1]
        case "longer":
            content += bytes(5 << 20)
    path.write_bytes(content)
    if harm == "missing":
        path.unlink()
    assert main(["resume", "--export", "r-1", "out.pt"]) == 0
    assert "step 7 is damaged and passed over (F04)" in capsys.readouterr().out
    assert torch.load("out.pt", weights_only=True)["step"] == 6


def test_without_a_step_that_is_whole_there_is_no_file(runs, capsys, tmp_path):
    saved(runs)
    for step in (6, 7):
        piece(runs, step, "safetensors").write_bytes(b"")
    assert main(["resume", "--export", "r-1", "out.pt"]) == 2
    said = error_of(capsys)
    assert "error[F04]" in said and "7, 6" in said and os.listdir(tmp_path) == [".paceline"]


def test_nothing_saved_and_no_such_run_are_two_errors(runs, capsys):
    saved(runs, steps=())
    assert main(["resume", "--export", "r-1", "out.pt"]) == 2
    assert "saw       no saved step in" in (said := error_of(capsys)) and "paceline run --resume auto train.py" in said
    assert main(["resume", "--export", "r-77", "out.pt"]) == 2 and "error[U09]" in error_of(capsys)


def test_another_python_than_that_of_the_ranks_is_refused(runs, capsys):
    saved(runs, python="3.99.1")
    assert main(["resume", "--export", "r-1", "out.pt"]) == 2
    said = error_of(capsys)
    assert "error[F05]" in said and "PYTHON_EXEC=/path/to/python3.99" in said and not os.path.exists("out.pt")


def test_a_python_without_torch_is_named(runs, capsys, monkeypatch, tmp_path):
    saved(runs)
    (tmp_path / "empty/torch").mkdir(parents=True)
    (tmp_path / "empty/torch/__init__.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "empty"))
    assert main(["resume", "--export", "r-1", "out.pt"]) == 2
    said = error_of(capsys)
    assert "error[E01]" in said and "has no torch" in said and "no torch here" in said


@pytest.mark.slow
def test_a_directory_that_is_not_there_and_one_in_place_of_the_file_are_named(runs, capsys, tmp_path):
    saved(runs)
    assert main(["resume", "--export", "r-1", "away/out.pt"]) == 2
    said = error_of(capsys)
    assert "error[U22]" in said and "No such file or directory" in said and f"ls -ld {tmp_path}/away" in said
    (tmp_path / "away").mkdir()
    assert main(["resume", "--export", "r-1", "--force", "away"]) == 2 and "away/out.pt" in error_of(capsys)


@pytest.mark.parametrize("argv", [["--export", "r-1"], ["--export", "r-1", "a.pt", "b.pt"], ["--force", "train.py"]])
def test_words_that_do_not_fit_are_refused(argv, runs, capsys):
    assert main(["resume", *argv]) == 2 and "error[U03]" in error_of(capsys)
