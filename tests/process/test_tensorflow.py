"""Jobs of real TensorFlow and JAX: ranks find each other, steps are counted, a failure ends the job within seconds, the shim exchanges."""

import json
import os
import subprocess
import sys
from pathlib import Path

import install_tensorflow
import pytest
from patience import patient

PYTHON = install_tensorflow.python()
pytestmark = [
    pytest.mark.process,
    pytest.mark.tensorflow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(PYTHON is None, reason="TensorFlow is not installed: make tensorflow"),
]
SCRIPTS = Path(__file__).parent / "scripts" / "tensorflow"
MIRRORED = ("--tf-config", "multi_worker_mirrored")


@pytest.fixture
def run(paceline):
    """Runs a script of this folder in the environment with TensorFlow."""

    def finished(*words, script, arguments=()):
        return paceline.run(
            "run", *words, str(SCRIPTS / script), *arguments, timeout=150, PYTHON_EXEC=str(PYTHON), OMP_NUM_THREADS="1"
        )

    return finished


@pytest.mark.parametrize(
    ("where", "ranks"),
    [
        (("--local-hosts", "3"), 3),
        pytest.param(("--local-hosts", "2", "--nproc-per-node", "2"), 4, marks=pytest.mark.wide),
    ],
    ids=["three hosts", "two hosts of two"],
)
def test_a_custom_loop_over_all_ranks_reaches_the_mean_of_their_data(run, where, ranks):
    job = run(*where, *MIRRORED, script="custom_loop.py", arguments=("nothing", "30"))
    assert job.code == 0, job.err
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: weight {(ranks - 1) / 2:.4f}" in job.out


def test_fit_of_tf_keras_ends_with_the_same_weights_and_has_steps_and_no_exchange_that_was_not_seen(run, paceline):
    job = run("--local-hosts", "2", *MIRRORED, script="fit.py")
    assert job.code == 0 and "20 steps" in job.err, job.err
    weights = [line.rpartition(" ")[2] for line in job.out.splitlines() if line.startswith("rank ")]
    assert len(weights) == 2 and len(set(weights)) == 1
    evidence = paceline.evidence()
    assert [(rank.step_count, rank.communication_seconds) for rank in evidence.ranks] == [(20, None), (20, None)]
    brought = [event["rendezvous"] for event in evidence.events if event["event"] == "rank_joined"]
    assert len(brought) == 2 and all({"tensorflow", "script_crc"} <= set(one) and "torch" not in one for one in brought)
    assert "TensorFlow does not show" in job.err


def seconds_from_failure_to_end(paceline):
    events = paceline.evidence().events
    failed = min(event["time_ns"] for event in events if event["event"] == "rank_exited" and event["code"] != 0)
    (ended,) = (event["t_ns"] for event in events if event["event"] == "run_finished")
    return (ended - failed) / 1e9


@pytest.mark.parametrize(
    ("script", "what", "code", "text"),
    [
        ("custom_loop.py", "raise", 1, "rank 1 on algo-2 raised ValueError: mine"),
        pytest.param(*("custom_loop.py", "kill", 137, "rank 1 on algo-2 was ended by SIGKILL"), marks=pytest.mark.wide),
        ("lingers.py", "raise", 1, "rank 1 on algo-2 raised ValueError: mine"),
        ("lingers.py", "kill", 137, "rank 1 on algo-2 was ended by SIGKILL"),
    ],
)
def test_a_failure_ends_the_job_within_ten_seconds_and_is_named(run, paceline, script, what, code, text):
    job = run("--local-hosts", "2", *MIRRORED, script=script, arguments=(what, "1000000"))
    assert job.code == code and text in job.err, job.err
    assert seconds_from_failure_to_end(paceline) <= patient(10)


def test_a_rank_that_sleeps_is_named_with_its_line_and_the_job_ended(run):
    words = ("--local-hosts", "3", *MIRRORED, "--max-run", "150", "--on-hang", "stop")
    job = run(*words, script="leaves_the_others.py", arguments=("sleeps",))
    assert job.code == 202, job.err
    assert "stall[N01]: rank asleep in its own code: rank 1 on algo-2, since step 6 (high)" in job.err
    assert "ranks 0,2 wait for rank 1, by their stacks" in job.err and "leaves_the_others.py:33 in stuck" in job.err


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("leaves", "crash[C06]: rank left with code 0 in the middle: rank 1 on algo-2, since step 6 (high)"),
        pytest.param(
            "ends",
            "divergence[M05]: uneven number of batches: rank 1 on algo-2, since step 6 (unclear)",
            marks=pytest.mark.wide,
        ),
    ],
)
def test_a_rank_that_ends_early_is_the_cause_and_not_the_connection_that_the_others_lost(run, paceline, how, said):
    job = run("--local-hosts", "3", *MIRRORED, script="leaves_the_others.py", arguments=(how,))
    assert job.code == 1 and said in job.err, job.err
    events = paceline.evidence().events
    left = min(event["time_ns"] for event in events if event["event"] == "rank_exited" and event["rank"] == 1)
    (ended,) = (event["t_ns"] for event in events if event["event"] == "run_finished")
    assert (ended - left) / 1e9 <= patient(10)


def test_a_frozen_rank_is_the_cause_whoever_ends_the_job_first(run):
    # TensorFlow ends the others itself after 10 s without a sign of life from a process.
    words = ("--local-hosts", "3", *MIRRORED, "--on-hang", "stop")
    job = run(*words, script="leaves_the_others.py", arguments=("freezes",))
    assert job.code in (1, 202) and "N02 rank stopped by a signal: rank 1 on algo-2; state T" in job.err, job.err


@pytest.mark.skipif(os.geteuid() != 0, reason="limits of local hosts need root")
def test_a_rank_that_is_killed_at_its_memory_limit_is_the_cause(run, paceline):
    words = ("--local-hosts", "3", "--network", "memory=2gib", *MIRRORED)
    job = run(*words, script="leaves_the_others.py", arguments=("fills",))
    assert job.code == 137 and "C02 killed at its memory limit: rank 1 on algo-2" in job.err, job.err
    assert seconds_from_failure_to_end(paceline) <= patient(10)


WITH_KERAS_3 = (SCRIPTS / "fit.py").read_text().replace('os.environ["TF_USE_LEGACY_KERAS"] = "1"', "")


@pytest.mark.wide
def test_fit_of_keras_3_under_the_strategy_is_explained(paceline):
    script = paceline.script("fit.py", WITH_KERAS_3)
    job = paceline.run("run", "--local-hosts", "2", *MIRRORED, script, PYTHON_EXEC=str(PYTHON))
    assert job.code == 1 and "with an unsupported type" in job.err and "keras#20585" in paceline.run("why").out, job.err


def test_at_the_limit_a_job_without_a_handler_says_that_it_uses_its_grace(run):
    words = ("--local-hosts", "2", *MIRRORED, "--max-run", "20", "--stop-grace", "6")
    job = run(*words, script="lingers.py", arguments=("wait",))
    assert job.code == 204 and job.out.count("joined") == 2, job.err
    said = (
        "no PreemptionCheckpointHandler is there, so nothing saves or ends them. SIGKILL follows 6 s after the signal"
    )
    assert job.err.count(said) == 1


def test_at_a_stop_a_handler_saves_and_the_job_ends(paceline, tmp_path):
    words = ("--local-hosts", "2", *MIRRORED, "--stop-grace", "60", str(SCRIPTS / "lingers.py"))
    job = paceline.start(
        "run", *words, "handler", str(tmp_path / "saved"), PYTHON_EXEC=str(PYTHON), OMP_NUM_THREADS="1"
    )
    job.until_printed("trains", times=2, timeout=120)
    assert paceline.run("stop").code == 0
    job = job.wait(120)
    assert job.code == 143, job.err
    assert list((tmp_path / "saved").rglob("*.index"))
    assert "SIGKILL follows" not in job.err
    assert "ranks 0-1 saved and left by TensorFlow's PreemptionCheckpointHandler" in job.err


@pytest.mark.parametrize(
    "way",
    [
        *("fit", "fit legacy", "fit several", "function", "nested"),
        *(
            pytest.param(way, marks=pytest.mark.wide)
            for way in (
                *("fit several legacy", "fit eagerly", "train_on_batch", "train_on_batch legacy", "traced again"),
                *("loss scale", "eager", "evaluation"),
            )
        ),
    ],
)
def test_steps_are_counted_exactly(run, paceline, way):
    job = run(script="counts.py", arguments=(way,))
    assert job.code == 0 and "iterations 12" in job.out, job.err
    (rank,) = paceline.evidence().ranks
    assert (rank.step_count, len(rank.steps)) == (12, 12)
    assert (rank.data_seconds, rank.collective_count) == (None, None)
    assert "failed:" not in job.err


def test_saves_are_timed(run, paceline):
    job = run(script="counts.py", arguments=("saves",))
    assert job.code == 0 and "iterations 12" in job.out, job.err
    (rank,) = paceline.evidence().ranks
    assert rank.step_count == 12 and rank.saved_steps == 6 and rank.checkpoint_seconds > 0


@pytest.mark.parametrize(
    ("where", "ranks"),
    [
        (("--local-hosts", "2", "--nproc-per-node", "2"), 4),
        (("--nproc-per-node", "3"), 3),
        pytest.param(("--nproc-per-node", "1"), 1, marks=pytest.mark.wide),
    ],
    ids=["two hosts of two", "shared memory of one host", "one rank"],
)
def test_smdistributed_exchanges_broadcasts_and_refuses_as_documented(run, paceline, where, ranks):
    job = run(*where, script="smddp.py")
    assert job.code == 0, job.err
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: local " in job.out
    assert (paceline.directory / "model.keras").exists()
    assert [rank.step_count for rank in paceline.evidence().ranks] == [100] * ranks


@pytest.mark.parametrize("keras", ["", "legacy"], ids=["Keras 3", "tf-keras"])
def test_fit_over_smdistributed_ends_with_the_same_bits_on_every_rank(run, keras):
    job = run("--local-hosts", "2", script="smddp_fit.py", arguments=[keras] if keras else [])
    assert job.code == 0, job.err
    told = [line.partition(": ")[2] for line in job.out.splitlines() if line.startswith("rank ")]
    assert len(told) == 2 and len(set(told)) == 1, job.out


ON = {"enabled": True}
FIT = """
import json, sys
from paceline.estimator import TensorFlow
TensorFlow(entry_point=sys.argv[1], instance_count=2, instance_type="local", distribution=json.loads(sys.argv[2])).fit()
"""


@pytest.mark.parametrize(
    ("distribution", "script", "said"),
    [
        ({"multi_worker_mirrored_strategy": ON}, "fit.py", "rank 1 of 2: "),
        ({"parameter_server": ON}, "servers.py", "/job:ps/"),
        ({"smdistributed": {"dataparallel": ON}}, "smddp_fit.py", "rank 1 of 2: "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_fit_of_the_estimator_trains_on_two_hosts(paceline, distribution, script, said):
    paceline.script(script, (SCRIPTS / script).read_text())
    environment = {**paceline.environment, "PYTHON_EXEC": str(PYTHON), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FIT, script, json.dumps(distribution)],
        cwd=paceline.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(110),
        check=False,
    )
    assert done.returncode == 0 and said in done.stdout and "Completed - every rank ended with 0" in done.stdout, done


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "keras3.md"


@pytest.mark.wide
@pytest.mark.parametrize("number", [0, 1], ids=["TensorFlow", "JAX"])
def test_the_scripts_of_the_page_about_keras_3_run(paceline, number):
    text = PAGE.read_text().split("```python\n")[number + 1].partition("```")[0]
    job = paceline.run("run", "--local-hosts", "2", paceline.script("train.py", text), PYTHON_EXEC=str(PYTHON))
    assert job.code == 0, job.err


LATE = """
import tensorflow as tf
import smdistributed.dataparallel.tensorflow as dist
assert (dist.size(), dist.rank() in (0, 1)) == (2, True)
tf.constant(1.0)
dist.init()
"""


def test_init_after_the_first_tensor_says_so(paceline):
    job = paceline.run("run", "--nproc-per-node", "2", paceline.script("late.py", LATE), PYTHON_EXEC=str(PYTHON))
    assert job.code == 1 and "TensorFlow has started already, with a tensor" in job.err
    assert "late.py:5. Call init() before the first of them." in job.err


OF_KERAS = """
import keras
import smdistributed.dataparallel.tensorflow.keras as dist
dist.DistributedOptimizer(keras.optimizers.SGD(0.1))
"""


@pytest.mark.wide
def test_the_optimizer_of_another_backend_of_keras_is_refused_with_its_name(paceline):
    script = paceline.script("on_jax.py", OF_KERAS)
    job = paceline.run("run", "--nproc-per-node", "2", script, PYTHON_EXEC=str(PYTHON), KERAS_BACKEND="jax")
    assert job.code == 1 and "DistributedOptimizer takes an optimizer of TensorFlow's Keras" in job.err, job.err
    assert "Keras trains with jax here" in job.err


EARLY = """
import sys, time
import tensorflow as tf
import smdistributed.dataparallel.tensorflow as dist
dist.init()
dist.oob_allreduce(tf.constant(1.0))
time.sleep(3 * dist.rank())
if "fails" in sys.argv and dist.rank() == 0:
    raise ValueError("mine")
print("ended", dist.rank(), flush=True)
"""


@pytest.mark.wide
def test_a_rank_that_ends_first_waits_for_the_others(paceline):
    job = paceline.run("run", "--nproc-per-node", "2", paceline.script("early.py", EARLY), PYTHON_EXEC=str(PYTHON))
    assert job.code == 0 and "ended 0" in job.out and "ended 1" in job.out, job.err


def test_a_rank_that_fails_waits_for_nobody(paceline):
    script = paceline.script("early.py", EARLY)
    job = paceline.run("run", "--nproc-per-node", "2", script, "fails", PYTHON_EXEC=str(PYTHON))
    assert job.code == 1 and "rank 0 on localhost raised ValueError: mine" in job.err
    assert seconds_from_failure_to_end(paceline) <= patient(10)


SERVERS = ("--tf-config", "parameter_server")


def test_parameter_servers_are_started_and_the_job_is_done_when_the_chief_has_ended(run, paceline):
    job = run("--local-hosts", "3", *SERVERS, script="servers.py")
    assert job.code == 0 and "/job:ps/" in job.out and job.out.endswith(" 3.00\n"), job.err
    assert [rank.step_count for rank in paceline.evidence().ranks] == [60, None, None]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("raise", "rank 0 on algo-1 raised ValueError: mine"),
        ("kill", "the parameter server of algo-1 was ended by SIGKILL"),
    ],
)
def test_a_chief_or_a_server_that_fails_is_named_and_ends_the_job(run, paceline, what, text):
    job = run("--local-hosts", "2", *SERVERS, script="servers.py", arguments=[what])
    assert job.code == 1 and text in job.err, job.err
    assert seconds_from_failure_to_end(paceline) <= patient(10)


@pytest.mark.parametrize(("what", "steps"), [("", None), ("keras", 2)], ids=["jax", "keras"])
def test_jax_finds_the_ranks_of_the_job_by_itself(run, paceline, what, steps):
    job = run("--local-hosts", "3", script="with_jax.py", arguments=[what])
    assert job.code == 0, job.err
    # Of JAX the batches of Keras are counted, also where TensorFlow is loaded beside it.
    assert [rank.step_count for rank in paceline.evidence().ranks] == [steps] * 3 and "failed:" not in job.err
    assert all(f"rank {rank} of 3: 3.0" in job.out for rank in range(3)), job.out


def test_the_batches_of_keras_on_jax_are_steps(run, paceline):
    job = run("--local-hosts", "2", script="keras_on_jax.py")
    assert job.code == 0 and "JAX does not show" in job.err, job.err
    assert [(rank.step_count, rank.data_seconds) for rank in paceline.evidence().ranks] == [(64, None)] * 2
    assert "failed:" not in job.err


def test_a_loop_written_in_jax_counts_its_steps_by_one_call(run, paceline):
    job = run("--local-hosts", "2", script="jax_by_hand.py")
    assert job.code == 0 and "40 steps" in job.err and "paceline.step() does not show" in job.err, job.err
    weights = [line.rpartition(" ")[2] for line in job.out.splitlines() if line.startswith("rank ")]
    assert len(weights) == 2 and len(set(weights)) == 1
    ranks = paceline.evidence().ranks
    assert [(rank.step_count, rank.communication_seconds, rank.data_seconds) for rank in ranks] == [
        (40, None, None)
    ] * 2
    assert "failed:" not in job.err


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("keras_on_jax.py", "keras_on_jax.py:20 in on_train_batch_end"),
        ("jax_by_hand.py", "jax_by_hand.py:18 in <module>"),
    ],
)
def test_a_stuck_rank_of_jax_is_named_with_its_line(run, script, line):
    words = ("--local-hosts", "3", "--on-hang", "stop", "--max-run", "60", "--stop-grace", "1")
    job = run(*words, script=script, arguments=["sleeps"])
    assert job.code in (202, 204) and "ranks 0,2 wait for rank 1" in job.err and line in job.err, job.err


@pytest.mark.parametrize(("what", "code"), [("raise", 1), ("kill", 137)])
def test_a_failure_of_a_rank_of_jax_ends_the_job_within_seconds(run, paceline, what, code):
    # A rank that raises waits at its exit for the others, for 5 minutes if nobody ends it. paceline does once it has been idle for 4 s.
    job = run("--local-hosts", "3", script="with_jax.py", arguments=[what])
    assert job.code == code and "JAX takes SIGTERM as a notice" in job.err, job.err
    assert ("raised ValueError: mine" if what == "raise" else "was ended by SIGKILL") in job.err
    assert seconds_from_failure_to_end(paceline) <= patient(10)
