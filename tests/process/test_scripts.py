"""Unmodified scripts under `paceline run`: each ends well, and each rank's steps are in the recording."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPTS = Path(__file__).parent / "scripts"
WORKER_SCRIPTS = Path(__file__).parent.parent / "worker" / "scripts"


def needs(module: str):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def steps_by_rank(paceline) -> dict[int, int | None]:
    return {record.rank: record.step_count for record in paceline.evidence().ranks}


def test_the_ddp_tutorial(paceline):
    finished = paceline.run("run", "--nproc-per-node", "2", str(WORKER_SCRIPTS / "ddp_tutorial.py"))
    assert finished.code == 0, finished.err
    assert steps_by_rank(paceline) == {0: 20, 1: 20}
    assert "20 steps" in finished.err and "exposed comm" in finished.err


@pytest.mark.slow
def test_mp_spawn_inside_the_script(paceline):
    finished = paceline.run("run", str(WORKER_SCRIPTS / "spawn_inside.py"))
    assert finished.code == 0, finished.err
    assert steps_by_rank(paceline) == {0: 5, 1: 5}


def test_an_error_below_mp_spawn_is_the_headline_with_the_childs_own_line(paceline):
    finished = paceline.run("run", str(WORKER_SCRIPTS / "spawn_inside.py"), "fail")
    assert finished.code == 1
    summary = finished.err[finished.err.index("failed  r-") :]
    assert "raised ValueError: the child's own reason" in summary and "in train" in summary


@pytest.mark.slow
def test_a_script_that_initialises_gloo_itself(paceline):
    finished = paceline.run("run", "--nproc-per-node", "2", str(WORKER_SCRIPTS / "gloo_itself.py"))
    assert finished.code == 0, finished.err
    assert len(finished.out.splitlines()) == 4


def test_a_script_without_torch(paceline):
    script = paceline.script("plain.py", "import sys\nprint('torch' in sys.modules, 'paceline' in sys.modules)\n")
    finished = paceline.run("run", script)
    assert finished.out == "False False\n" and finished.code == 0


@pytest.mark.slow
def test_fsdp2(paceline):
    finished = paceline.run("run", "--nproc-per-node", "2", str(WORKER_SCRIPTS / "fsdp2.py"))
    assert finished.code == 0, finished.err
    assert steps_by_rank(paceline) == {0: 6, 1: 6}


@pytest.mark.wide
@pytest.mark.timeout(300)
def test_torch_compile_over_ddp(paceline):
    backend = "inductor" if shutil.which("g++") else "aot_eager"
    finished = paceline.run("run", "--nproc-per-node", "2", str(WORKER_SCRIPTS / "compiled.py"), backend, timeout=240)
    assert finished.code == 0, finished.err
    assert steps_by_rank(paceline).keys() == {0, 1}


@needs("accelerate")
def test_an_accelerate_script(paceline):
    finished = paceline.run("run", "--nproc-per-node", "2", str(SCRIPTS / "accelerate_script.py"))
    assert finished.code == 0, finished.err
    assert sorted(finished.out.splitlines()) == ["trained 0 of 2", "trained 1 of 2"]
    assert steps_by_rank(paceline) == {0: 8, 1: 8}


@pytest.mark.wide
@needs("accelerate")
def test_accelerate_launch_inside(paceline):
    argv = [
        "launch",
        "--cpu",
        "--num_processes",
        "1",
        "--num_machines",
        "1",
        "--main_process_port",
        "0",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    ]
    program = str(Path(sys.executable).parent / "accelerate")
    finished = paceline.run("run", "--no-python", program, *argv, str(SCRIPTS / "accelerate_script.py"))
    assert finished.code == 0, finished.err
    assert steps_by_rank(paceline) == {0: 16}


@pytest.mark.wide
@needs("lightning")
def test_a_lightning_script(paceline):
    finished = paceline.run("run", "--nproc-per-node", "2", str(SCRIPTS / "lightning_script.py"))
    assert finished.code == 0, finished.err
    assert sorted(line for line in finished.out.splitlines() if line.startswith("trained")) == [
        "trained 0 of 2",
        "trained 1 of 2",
    ]
    assert steps_by_rank(paceline) == {0: 8, 1: 8}


@pytest.mark.slow
def test_a_rank_that_cannot_be_watched_trains_on_and_the_summary_says_so(paceline):
    # The part of paceline that works in the rank cannot be imported there.
    broken = "import sys\nsys.modules['paceline.recording'] = None\nimport torch\nprint('trained')\n"
    finished = paceline.run("run", paceline.script("broken.py", broken))
    assert finished.code == 0 and finished.out == "trained\n"
    assert "paceline could not start in it" in finished.err
