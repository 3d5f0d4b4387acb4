"""What a script loads before its first step, as its ring has it."""

import importlib.util
import os
import sys
import time

import pytest

pytestmark = pytest.mark.process

SCRIPT = """
import io, pickle, sys
import torch
from torch import nn

FILE = sys.argv[2]
model, other = nn.Linear(2, 2), nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

def nothing(): pass
def file(): torch.load(FILE)
def open_file(): torch.load(open(FILE, "rb"))
def memory(): torch.load(io.BytesIO(open(FILE, "rb").read()))
def file_and_state():
    torch.load(FILE)
    model.load_state_dict(other.state_dict())
def module(): model.load_state_dict(other.state_dict())
def pickled(): optimizer.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
def directory():
    import torch.distributed.checkpoint as dcp
    dcp.load({"weight": torch.zeros(2)}, checkpoint_id=FILE, no_dist=True)
def safetensors():
    from safetensors.torch import load_file
    load_file(FILE)

def wrapped(): model.load_state_dict({f"module.{name}": value for name, value in torch.load(FILE).items()}, strict=False)
def state(): model.load_state_dict(torch.load(FILE), strict=False)
def moments():
    one = {"step": torch.ones(()), "exp_avg": torch.zeros(2, 2), "exp_avg_sq": torch.zeros(2, 2)}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: one}})

def step():
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

globals()[sys.argv[1]]()
step()
torch.load(sys.argv[3])
torch.save(model.state_dict(), sys.argv[4])
step()
"""
LONG_AGO = 1_000_000_000


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of each kind, written long ago, and one written now."""
    import torch
    import torch.distributed.checkpoint as dcp

    folder = tmp_path_factory.mktemp("files")
    torch.save({"weight": torch.zeros(2)}, folder / "old.pt")
    torch.save({"weight": torch.zeros(2)}, folder / "new.pt")
    dcp.save({"weight": torch.zeros(2)}, checkpoint_id=folder / "directory", no_dist=True)
    paths = [folder / "old.pt", *(folder / "directory").iterdir(), folder / "directory"]
    if importlib.util.find_spec("safetensors"):
        from safetensors.torch import save_file

        save_file({"weight": torch.zeros(2)}, folder / "old.safetensors")
        paths.append(folder / "old.safetensors")
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return folder


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("how", "file", "loaded"),
    [
        ("nothing", "old.pt", 0),
        ("file", "old.pt", LONG_AGO),
        ("open_file", "old.pt", "now"),
        pytest.param("memory", "old.pt", "now", marks=pytest.mark.wide),
        pytest.param("file_and_state", "old.pt", LONG_AGO, marks=pytest.mark.wide),
        pytest.param("module", "old.pt", None, marks=pytest.mark.wide),
        pytest.param("pickled", "old.pt", "now", marks=pytest.mark.wide),
        ("directory", "directory", LONG_AGO),
        pytest.param(
            "safetensors",
            "old.safetensors",
            LONG_AGO,
            marks=pytest.mark.skipif(importlib.util.find_spec("safetensors") is None, reason="needs safetensors"),
        ),
    ],
)
def test_what_is_loaded_before_the_first_step_is_noted_with_the_age_of_its_file(
    workplace, written, tmp_path, files, how, file, loaded
):
    before_ns = time.time_ns()
    script = written(SCRIPT)
    (left,) = workplace.run(sys.executable, script, how, files / file, files / "new.pt", tmp_path / "saved.pt")
    assert left.code == 0, left.err
    ((header, _),) = workplace.rings
    assert (header.step_count, header.failure, header.saved_steps) == (2, "", 1)
    if loaded == "now":
        assert header.loaded_ns is not None and before_ns <= header.loaded_ns <= time.time_ns()
    else:
        assert header.loaded_ns == (loaded and loaded * 10**9)


@pytest.mark.parametrize(
    ("how", "asked", "taken", "has_optimizer"),
    [
        ("wrapped", 2, 0, False),
        pytest.param("state", 2, 1, False, marks=pytest.mark.wide),
        pytest.param("moments", 0, 0, True, marks=pytest.mark.wide),
        pytest.param("pickled", 0, 0, False, marks=pytest.mark.wide),
    ],
)
def test_how_much_of_what_is_loaded_was_taken(workplace, written, tmp_path, files, how, asked, taken, has_optimizer):
    script = written(SCRIPT)
    (left,) = workplace.run(sys.executable, script, how, files / "old.pt", files / "new.pt", tmp_path / "saved.pt")
    assert left.code == 0, left.err
    ((header, _),) = workplace.rings
    assert (header.parameters_asked, header.parameters_loaded, header.optimizer_loaded) == (asked, taken, has_optimizer)
    assert header.loaded_file == ("" if how in ("moments", "pickled") else str(files / "old.pt"))
    assert not header.failure


@pytest.mark.slow
def test_what_a_parent_loaded_for_its_child_is_not_known(workplace):
    workplace.run("spawn_inside.py")
    assert [header.loaded_ns for header, _ in workplace.rings] == [None, None]
