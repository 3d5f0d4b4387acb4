"""Estimators on this machine: real hosts, real ranks, from fit() to what is left."""

import json
import signal
import subprocess
import sys
import tarfile
import textwrap

import pytest
from patience import patient

pytestmark = pytest.mark.process

SAY = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "SM_HOSTS", "SM_CURRENT_HOST", "SM_HP_LR", "SM_CHANNEL_TRAIN", "MINE", "TF_CONFIG")
print("said", json.dumps({name: os.environ.get(name) for name in names}), json.dumps(sys.argv[1:]), "loss=0.25", flush=True)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w") as file:
    file.write("7")
"""
SLEEP = """
import time
print("sleeping", flush=True)
time.sleep(600)
"""
FALL = """
import os, sys, time
if os.environ["RANK"] == "1":
    raise ValueError("the second rank falls")
time.sleep(600)
"""
PROLOGUE = """
import json
from paceline.estimator import PyTorch, TensorFlow, TrainingTimeout, UnexpectedStatusException
here = {"instance_type": "local", "instance_count": 2}
"""


@pytest.fixture
def program(paceline):
    """Runs a person's program over estimators; `scripts` become files of the project. Returns what it printed, by lines."""

    def command(text):
        return [sys.executable, "-c", PROLOGUE + textwrap.dedent(text)]

    def run(text, *, code=0, **scripts):
        for name, content in scripts.items():
            (paceline.directory / f"{name}.py").write_text(content)
        done = subprocess.run(
            command(text),
            cwd=paceline.directory,
            env=paceline.environment,
            capture_output=True,
            text=True,
            timeout=patient(110),
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.splitlines(), done.stderr

    def start(text, **scripts):
        for name, content in scripts.items():
            (paceline.directory / f"{name}.py").write_text(content)
        return subprocess.Popen(
            command(text),
            cwd=paceline.directory,
            env=paceline.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    run.start = start
    return run


@pytest.mark.smoke
def test_two_hosts_run_here_with_everything_that_was_asked_for(program, paceline):
    (paceline.directory / "data").mkdir()
    (paceline.directory / "data" / "x").write_text("1")
    lines, _ = program(
        """
        made = PyTorch("train.py", hyperparameters={"lr": 0.1, "name": "it's"}, environment={"MINE": "yes"}, output_path="out",
                       metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}], **here)
        made.fit({"train": "data"}, job_name="job-1")
        facts = made.describe()
        print("status", facts["TrainingJobStatus"], facts["TrainingTimeInSeconds"])
        print("metrics", json.dumps(made.metrics()))
        print("model", made.model_data)
        """,
        train=SAY,
    )
    said = [line for line in lines if line.startswith("said ") or " said " in line]
    seen = [json.JSONDecoder().raw_decode(line[line.index("{") :])[0] for line in said]
    assert sorted(one["RANK"] for one in seen) == ["0", "1"]
    assert {one["WORLD_SIZE"] for one in seen} == {"2"}
    assert {one["SM_CURRENT_HOST"] for one in seen} == {"algo-1", "algo-2"}
    assert all(one["MINE"] == "yes" and one["SM_HP_LR"] == "0.1" and one["SM_CHANNEL_TRAIN"] for one in seen)
    assert all('["--lr", "0.1", "--name", "it\'s"]' in line for line in said)
    argv = [line.split(" - ")[0].split()[-1] for line in lines if " - " in line]
    assert argv[-1] == "Completed"
    assert any(line.startswith("Training seconds: ") for line in lines)
    rows = json.loads(next(line for line in lines if line.startswith("metrics ")).removeprefix("metrics "))
    assert [(row["metric_name"], row["value"]) for row in rows] == [("loss", 0.25), ("loss", 0.25)]
    with tarfile.open(next(line for line in lines if line.startswith("model ")).split()[1]) as model:
        assert "weights" in [name.removeprefix("./") for name in model.getnames()]


@pytest.mark.slow
def test_a_rank_that_falls_is_named_by_the_exception(program):
    lines, err = program(
        """
        try:
            PyTorch("train.py", **here).fit(logs=None)
        except UnexpectedStatusException as error:
            print("caught", error.rank, error.host, error.rank_exit_code, error.exit_code, error.next)
            raise
        """,
        code=1,
        train=FALL,
    )
    caught = next(line for line in lines if line.startswith("caught"))
    assert caught.startswith("caught 1 algo-2 1 1 paceline why r-")
    assert "the second rank falls" in err and "paceline why r-" in err


@pytest.mark.slow
def test_a_time_out_raises_and_returns_only_where_that_was_asked_for(program):
    lines, _ = program(
        """
        try:
            PyTorch("train.py", instance_type="local", instance_count=1, max_run=2).fit(logs=None)
        except TrainingTimeout as error:
            print("caught", error.code, error.actual_status)
        made = PyTorch("train.py", instance_type="local", instance_count=1, max_run=2, raise_on_timeout=False)
        made.fit(logs=None)
        print("returned", made.describe()["SecondaryStatus"])
        """,
        train=SLEEP,
    )
    assert "caught U50 Stopped" in lines
    assert "returned MaxRuntimeExceeded" in lines


@pytest.mark.slow
def test_another_process_attaches_and_stops_the_job(program):
    program('PyTorch("train.py", **here).fit(wait=False, job_name="job-1")', train=SLEEP)
    lines, err = program(
        """
        made = PyTorch.attach("job-1")
        print("is", made.describe()["TrainingJobStatus"])
        made.stop()
        made.wait(logs=None)
        print("then", made.describe()["TrainingJobStatus"])
        """
    )
    assert "is InProgress" in lines and "then Stopped" in lines
    assert "was stopped" in err


@pytest.mark.slow
def test_ctrl_c_ends_the_waiting_and_not_the_job(program):
    waiting = program.start('PyTorch("train.py", **here).fit(job_name="job-1")', train=SLEEP)
    assert waiting.stdout is not None
    for line in waiting.stdout:
        if "sleeping" in line:
            break
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=patient(60))
    assert "attach('job-1')" in err and "paceline stop r-" in err
    lines, _ = program(
        """
        made = PyTorch.attach("job-1")
        print("is", made.describe()["TrainingJobStatus"])
        made.stop(now=True)
        made.wait(logs=None)
        """
    )
    assert "is InProgress" in lines


@pytest.mark.slow
def test_each_host_of_tensorflow_finds_the_others_in_tf_config(program):
    lines, _ = program('TensorFlow(entry_point="train.py", model_dir=False, **here).fit()', train=SAY)
    found = [json.JSONDecoder().raw_decode(line[line.index("{") :])[0] for line in lines if "said " in line]
    configs = [json.loads(one["TF_CONFIG"]) for one in found]
    assert sorted(config["task"]["index"] for config in configs) == [0, 1]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2


@pytest.mark.slow
def test_what_the_agent_refuses_is_raised_before_anything_runs(program, paceline):
    (paceline.directory / "empty").mkdir()
    _, err = program('PyTorch("train.py", **here).fit({"train": "empty"})', code=1, train=SAY)
    assert "is empty" in err and "next" in err
