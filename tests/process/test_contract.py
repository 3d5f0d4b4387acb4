"""The contract as a script meets it under `paceline run`."""

import json

import pytest
from ports import free_port

pytestmark = pytest.mark.process

SHOWS = """
import json, os, sys
names = ["SM_HOSTS", "SM_CURRENT_HOST", "SM_HPS", "SM_MODEL_DIR", "SAGEMAKER_BASE_DIR", "RANK", "WORLD_SIZE"]
print(json.dumps({**{name: os.environ[name] for name in names}, "argv": sys.argv[1:]}))
"""


def shown(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_hyperparameters_become_arguments_and_variables(paceline):
    argv = ["--hp", "name=it's", "--hp", "lr=0.1", "--hp", "n=3"]
    finished = paceline.run("run", *argv, paceline.script("shows.py", SHOWS), "--mine")
    (rank,) = shown(finished.out)
    assert rank["argv"] == ["--mine", "--lr", "0.1", "-n", "3", "--name", "it's"]
    assert json.loads(rank["SM_HPS"]) == {"lr": 0.1, "n": 3, "name": "it's"}


def test_a_channel_called_train_data_is_there_under_both_spellings(paceline):
    data = paceline.directory / "data"
    data.mkdir()
    (data / "part").write_text("x")
    script = paceline.script(
        "reads.py",
        "import os\n"
        "assert os.environ['SM_CHANNEL_TRAIN-DATA'] == os.environ['SM_CHANNEL_TRAIN_DATA']\n"
        "print(open(os.environ['SM_CHANNEL_TRAIN-DATA'] + '/part').read())\n",
    )
    finished = paceline.run("run", "--channel", f"train-data={data}", script)
    assert finished.out == "x\n", finished.err


def test_the_base_directory_of_the_environment_is_taken(paceline):
    base = paceline.directory / "base"
    finished = paceline.run("run", paceline.script("shows.py", SHOWS), SAGEMAKER_BASE_DIR=str(base))
    (rank,) = shown(finished.out)
    assert rank["SAGEMAKER_BASE_DIR"] == str(base) and (base / "input/config/resourceconfig.json").exists()
    assert (base / "output/success").exists()


def test_a_containers_resourceconfig_makes_the_job(paceline):
    """Two containers of one job, here as two directories: the hosts' names are addresses, so that they resolve."""
    port = str(free_port())
    script, jobs = paceline.script("shows.py", SHOWS), []
    for current in ("127.0.0.3", "127.0.0.2"):
        base = paceline.directory / current
        (base / "input/config").mkdir(parents=True)
        hosts = ["127.0.0.3", "127.0.0.2"]
        resources = {"current_host": current, "hosts": hosts, "network_interface_name": "lo"}
        (base / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        (base / "input/config/hyperparameters.json").write_text(json.dumps({"lr": "0.5"}))
        directory = paceline.directory / f"cwd-{current}"
        directory.mkdir()
        jobs.append(paceline.start("run", "--set", f"base_dir={base}", "--master-port", port, script, cwd=directory))
    second, first = jobs
    assert first.wait().code == 0 and second.wait().code == 0, first.err + second.err
    (rank0,), (rank1,) = shown(first.out), shown(second.out)
    assert (rank0["RANK"], rank1["RANK"], rank0["WORLD_SIZE"]) == ("0", "1", "2")
    assert json.loads(rank1["SM_HOSTS"]) == ["127.0.0.2", "127.0.0.3"] and rank1["SM_CURRENT_HOST"] == "127.0.0.3"
    assert rank0["argv"] == ["--lr", "0.5"]


def test_a_refusal_inside_a_container_is_its_failure_reason(paceline):
    base = paceline.directory / "ml"
    (base / "input/config").mkdir(parents=True)
    (base / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "a", "hosts": ["a"]}))
    finished = paceline.run("run", "--set", f"base_dir={base}", "no_such_script.py")
    assert finished.code == 2
    assert (base / "output/failure").read_text().startswith("error[U02]: there is no script no_such_script.py")
