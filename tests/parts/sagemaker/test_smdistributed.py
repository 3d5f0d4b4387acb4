"""`smdistributed` in a job, and only there: each form in which scripts import it, and what it answers."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patient

from paceline.parts.sagemaker.smdistributed import MODULES, find, unsupported

SCRIPTS = Path(__file__).parents[2] / "worker" / "scripts"
CASES = re.findall(r"^def (case_\w+)", (SCRIPTS / "smddp_cases.py").read_text(), re.MULTILINE)
FORMS = [
    "import smdistributed.dataparallel.torch.distributed as dist; dist.init_process_group",
    "from smdistributed.dataparallel.torch.distributed import all_reduce, ReduceOp, group, new_group",
    "from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel",
    "from smdistributed.dataparallel.torch.parallel import DistributedDataParallel",
    "import smdistributed.dataparallel.torch.torch_smddp",
    "import smdistributed.dataparallel.torch; smdistributed.dataparallel.torch.get_local_rank",
]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_found_and_its_file_is_there(name):
    spec = find(name)
    assert spec is not None and spec.name == name and Path(spec.origin).exists()
    assert (spec.submodule_search_locations is not None) == any(other.startswith(f"{name}.") for other in MODULES)


def test_a_module_that_never_was_is_not_found():
    assert find("smdistributed.dataparallel.mxnet") is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("allreduce", "dist.all_reduce"),
        ("init", "dist.init_process_group"),
        ("shutdown", "dist.destroy_process_group"),
        ("Average", "ReduceOp.AVERAGE"),
        ("all_gathr", "dist.all_gather"),
        ("DistributedOptimizer", "import DistributedDataParallel"),
        ("zzzz", "dir(dist)"),
    ],
)
def test_a_name_that_never_was_says_which_one_is_meant(wrong, right):
    text = str(unsupported.no_such_call(wrong, ["all_reduce", "all_gather", "barrier"]))
    assert text.startswith("error[U32]: ") and f"never had `{wrong}`" in text
    assert right in next(line for line in text.splitlines() if line.startswith("  next"))


def test_the_backend_of_a_historical_call():
    pytest.importorskip("torch")
    from paceline.parts.sagemaker.smdistributed.calls import chosen_backend

    by_mpi = {"OMPI_COMM_WORLD_SIZE": "4"}
    assert chosen_backend(None, {}) == chosen_backend("smddp", {}) == "smddp"
    assert chosen_backend("mpi", {}) == chosen_backend("mpi", {"PMI_SIZE": "1"}) == "smddp"
    assert chosen_backend("mpi", by_mpi) == "mpi" and chosen_backend(None, by_mpi) == "smddp"
    assert chosen_backend("gloo", {}) == "gloo"


@pytest.mark.process
def test_outside_a_job_there_is_none(workplace):
    code = "import importlib.util; print(importlib.util.find_spec('smdistributed'))"
    (left,) = workplace.run(sys.executable, "-c", code, PACELINE_RUN_ID="")
    assert (left.out, left.err) == ("None\n", "")


@pytest.mark.process
def test_in_a_job_it_is_found_without_loading_torch_and_nothing_else_changes(workplace):
    code = (
        "import importlib.util, sys\n"
        "print(importlib.util.find_spec('smdistributed').name, 'torch' in sys.modules)\n"
        "print([entry for entry in sys.path if 'shim' in entry], importlib.util.find_spec('smdistribute'))\n"
        "try: import smdistributed.dataparallel.tensorflow as sdp\n"
        "except ImportError as error: print(str(error).splitlines()[0], 'torch' in sys.modules)\n"
    )
    (left,) = workplace.run(sys.executable, "-c", code)
    assert left.err == "" and left.out.splitlines() == [
        "smdistributed False",
        "[] None",
        "No module named 'tensorflow' False",
    ]


@pytest.mark.process
def test_one_that_is_really_installed_wins_and_what_it_lacks_is_ours(workplace, written, tmp_path):
    written("mine = 1\n", "smdistributed/__init__.py")
    code = (
        "import smdistributed, importlib.util\n"
        "print(smdistributed.mine, importlib.util.find_spec('smdistributed.dataparallel') is not None)\n"
    )
    path = f"{workplace.environment['PYTHONPATH']}:{tmp_path}"
    (left,) = workplace.run(sys.executable, "-c", code, PYTHONPATH=path)
    assert left.out == "1 True\n", left.err


@pytest.mark.slow_but_first
@pytest.mark.process
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_import_works_by_itself(workplace, form):
    (left,) = workplace.run(sys.executable, "-c", f"{form}\nprint('imported')")
    assert (left.code, left.out) == (0, "imported\n"), left.err


@pytest.fixture(scope="module")
def answers(tmp_path_factory, make_user_environment):
    directory = tmp_path_factory.mktemp("answers")
    # With an agent, which ends the other rank where one fails.
    command = [
        sys.executable,
        "-m",
        "paceline",
        "run",
        "--nproc-per-node",
        "2",
        str(SCRIPTS / "smddp_cases.py"),
        str(directory),
    ]
    environment = make_user_environment(directory)
    left = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, timeout=patient(110))
    files = [directory / f"{rank}.json" for rank in range(2)]
    assert any(file.exists() for file in files), left.stderr
    return [json.loads(file.read_text()) for file in files if file.exists()]


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES)
def test_the_library_as_it_was(answers, case):
    for rank, answer in enumerate(answers):
        if case in answer["failed"]:
            pytest.fail(f"rank {rank}: {answer['failed'][case]}")
        assert CASES.index(case) <= CASES.index(answer["last"]), f"not reached on rank {rank}"
