"""The modules of parts inside a rank: what they ask for, and that one that raises never reaches the script."""

import os
import shutil

import pytest

pytestmark = pytest.mark.process

ASKS = """
import signal

def after_instruments():
    return {"torch": executed, "torch.optim.optimizer": raises}

def executed(torch):
    torch.whole = hasattr(torch, "nn")
    if getattr(signal.getsignal(signal.SIGUSR1), "__name__", "") == "stop":
        signal.raise_signal(signal.SIGUSR1)

def raises(module):
    raise LookupError(module.__name__)

def before_program(argv):
    return compile(f"print('instead of', {argv[0]!r})", "compiled by the part", "exec")
"""
TORCH = "import torch, torch.optim\nprint(torch.whole)\n"
HANDLER = """
import signal
def stop(signum, frame):
    raise TimeoutError("of the script")
signal.signal(signal.SIGUSR1, stop)
try:
    import torch
except TimeoutError as error:
    print(error)
"""
# As the fork server does, which has paceline's modules from sitecustomize's finder.
FORK = """
import sys, torch
ours = next(finder.paceline_module for finder in sys.meta_path if hasattr(finder, "paceline_module"))
ours("worker.program").run(["train.py"], [], ours("worker.bootstrap").before_program)
"""


@pytest.fixture
def with_part(workplace, repository, tmp_path):
    """A workplace whose paceline has a part that asks for everything, one that asks for nothing, and one that cannot be imported."""
    package = tmp_path / "paceline"
    shutil.copytree(repository / "src" / "paceline", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in (("asks", ASKS), ("silent", ""), ("broken", "import nowhere_at_all")):
        (package / "parts" / name).mkdir()
        (package / "parts" / name / "in_rank.py").write_text(text)
    workplace.environment["PYTHONPATH"] = os.fspath(package / "worker" / "site")
    workplace.environment["PACELINE_PARTS"] = "parts.broken.in_rank,parts.asks.in_rank,parts.silent.in_rank"
    return workplace


def test_a_patch_of_torch_runs_when_torch_was_executed_and_one_that_raises_is_reported(with_part, written):
    (left,) = with_part.run(written(TORCH + "torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1).step()\n"))
    assert (left.code, left.out, left.err) == (0, "True\n", "")
    ((header, _),) = with_part.rings
    failures = header.failure.split("; ")
    assert failures == [
        "patch: ModuleNotFoundError: No module named 'nowhere_at_all'",
        "patch: LookupError: torch.optim.optimizer",
    ]


def test_what_a_signal_handler_raises_in_a_patch_reaches_the_script(with_part, written):
    (left,) = with_part.run(written(HANDLER))
    assert (left.code, left.out, left.err) == (0, "of the script\n", "")


def test_the_script_of_a_fork_may_be_compiled_by_a_part(with_part, written):
    (left,) = with_part.run(written(FORK))
    assert (left.code, left.out, left.err) == (0, "instead of train.py\n", "")


def test_a_part_of_another_package_has_its_own_name(workplace, written, tmp_path):
    (tmp_path / "others_part").mkdir()
    (tmp_path / "others_part" / "in_rank.py").write_text(
        "def after_instruments():\n    return {'torch': lambda torch: setattr(torch, 'whole', 'by another')}\n"
    )
    workplace.environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    workplace.environment["PACELINE_PARTS"] = "others_part.in_rank"
    (left,) = workplace.run(written(TORCH))
    assert (left.code, left.out, left.err) == (0, "by another\n", "")


def test_a_fork_server_of_ranks_that_keep_their_state_has_what_puts_it_back(workplace, written):
    script = FORK.partition('ours("')[0] + (
        'ours("worker.bootstrap").before_forks()\nprint(any(name.endswith("parts.resume.worker.session") for name in sys.modules))\n'
    )
    for parts, loaded in (("parts.resume.in_rank,parts.comm.in_rank", True), ("parts.comm.in_rank", False)):
        workplace.environment["PACELINE_PARTS"] = parts
        (left,) = workplace.run(written(script))
        assert (left.code, left.out, left.err) == (0, f"{loaded}\n", "")
