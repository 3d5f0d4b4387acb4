"""A script that names a backend of ours under plain torchrun, without importing it: torch 2.14 and newer find it by its entry point."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from install_torch import REPOSITORY, installed, python_of
from torchrun_grammar import numbers

GROUP = "torch.distributed.backends"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENTRY_POINTS = PROJECT["entry-points"][GROUP]
SCRIPT = r"""
import os
import sys
import torch
import torch.distributed as dist

assert "paceline" not in sys.modules
dist.init_process_group(sys.argv[1])
tensor = torch.full((300_000,), float(dist.get_rank() + 1))
dist.all_reduce(tensor)
assert tensor.unique().tolist() == [3.0], tensor
pair = dist.new_group([0, 1])
dist.barrier(pair)
known = sorted(set(dist.Backend._plugins) & {"PACELINE", "SMDDP"})
# In one piece: the lines of two ranks come through one pipe.
os.write(1, f"made by {type(dist.group.WORLD).__name__} {known}\n".encode())
dist.destroy_process_group()
"""
# What a library does that registers the name when it is imported.
THEIR_LIBRARY = """
import torch.distributed as dist
dist.Backend.register_backend("smddp", lambda store, rank, size, timeout: dist.ProcessGroupGloo(store, rank, size), devices=["cpu"])
"""


def newest_python() -> Path | None:
    """An interpreter whose torch reads entry points; None: none is installed."""
    having = sorted(filter(lambda version: numbers(version) >= (2, 14), installed()), key=numbers)
    return python_of(having[-1]) if having else None


@pytest.fixture
def folder(tmp_path):
    """A directory that, on the path, makes paceline installed as far as entry points go."""
    metadata = tmp_path / "paceline-0.1.0.dist-info"
    metadata.mkdir()
    lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in ENTRY_POINTS.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: paceline\nVersion: 0.1.0\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def under_torchrun(folder: Path, backend: str) -> str:
    python = newest_python()
    if python is None:
        pytest.skip("no torch of 2.14 or newer is installed: make torch-2.15.0")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE")}
    done = subprocess.run(
        [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py", backend],
        cwd=folder,
        env={**environment, "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY / 'src'}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "setSequenceNumberForGroup" not in done.stderr
    return done.stdout


@pytest.mark.process
@pytest.mark.parametrize("backend", ENTRY_POINTS)
def test_plain_torchrun_finds_a_backend_of_ours_by_its_name_alone(folder, backend):
    assert under_torchrun(folder, backend).count(f"made by PacelineGroup ['{backend.upper()}']") == 2


@pytest.mark.process
def test_an_installed_library_of_sagemaker_keeps_its_name(folder):
    library = folder / "smdistributed" / "dataparallel" / "torch"
    library.mkdir(parents=True)
    (library / "torch_smddp.py").write_text(THEIR_LIBRARY)
    assert under_torchrun(folder, "smddp").count("made by ProcessGroup ['SMDDP']") == 2


@pytest.mark.process
def test_an_entry_point_loads_nothing_of_ours_but_the_registration():
    pytest.importorskip("torch")
    code = (
        "import sys; from paceline.parts.comm import entry_points; entry_points.register_paceline(); entry_points.register_smddp()\n"
        "import torch.distributed as dist\n"
        "assert {'PACELINE', 'SMDDP'} <= set(dist.Backend._plugins)\n"
        "print([name for name in sys.modules if name.startswith(('paceline.worker', 'paceline.parts.comm.backend.', 'msgspec'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "[]\n"


def test_every_name_of_a_backend_that_a_script_may_give_without_an_import_has_an_entry_point():
    pytest.importorskip("torch")
    from paceline.parts.comm.backends import NAMES

    assert sorted(ENTRY_POINTS) == sorted(NAMES)
