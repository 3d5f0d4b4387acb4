"""Scripts in the forms that people write, traced unchanged, and held against what they are when they run for real."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port
from variants import all_but

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.plan.planner.workload import Precision, Strategy
from paceline.parts.plan.trace_script import trace

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).parents[4]
OURS = {
    path: REPOSITORY / path
    for path in (
        "examples/digits_ddp.py",
        "examples/gpt_stdlib.py",
        "tests/worker/scripts/ddp_tutorial.py",
        "tests/worker/scripts/fsdp2.py",
        "tests/process/scripts/accelerate_script.py",
        "tests/process/scripts/lightning_script.py",
        "tests/parts/plan/trace/scripts/accelerate_loop.py",
        "tests/parts/plan/trace/scripts/accumulation.py",
        "tests/parts/plan/trace/scripts/amp_scaler.py",
        "tests/parts/plan/trace/scripts/bf16_encoder.py",
        "tests/parts/plan/trace/scripts/compiled.py",
        "tests/parts/plan/trace/scripts/embeddings.py",
        "tests/parts/plan/trace/scripts/ema_clip.py",
        "tests/parts/plan/trace/scripts/finetune.py",
        "tests/parts/plan/trace/scripts/fsdp2_mixed.py",
        "tests/parts/plan/trace/scripts/gan.py",
        "tests/parts/plan/trace/scripts/hf_trainer.py",
        "tests/parts/plan/trace/scripts/lstm.py",
        "tests/parts/plan/trace/scripts/mp_spawn.py",
        "tests/parts/plan/trace/scripts/nano_gpt.py",
        "tests/parts/plan/trace/scripts/recommender.py",
        "tests/parts/plan/trace/scripts/resnet_imagenet.py",
        "tests/parts/plan/trace/scripts/wide_ddp.py",
    )
}
# These stand for the others, which are variants of them.
KEPT = {"digits_ddp", "gpt_stdlib", "lightning_script", "hf_trainer", "amp_scaler"}
NEEDS = {
    "accelerate_loop": "accelerate",
    "accelerate_script": "accelerate",
    "lightning_script": "lightning",
    "hf_trainer": "transformers",
}
RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RUN_ID": "none",
}


@functools.cache
def traced(path):
    """Once for every script: a trace is a process of some seconds, and what it found does not change."""
    return trace(Program(kind=ProgramKind.SCRIPT, target=str(path)), python=sys.executable)


def running(path, folder):
    """The script for real, beside its trace: two processes for two cores."""
    command = [sys.executable, str(Path(__file__).with_name("truth.py")), str(folder / "truth.json"), str(path)]
    environment = {**os.environ, **RANK, "MASTER_PORT": str(free_port()), "XDG_STATE_HOME": str(folder)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", all_but([name for name, path in OURS.items() if path.stem in KEPT], OURS))
def test_a_trace_finds_what_the_script_has_when_it_runs(name, tmp_path, monkeypatch):
    path = OURS[name]
    needed = NEEDS.get(path.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    monkeypatch.chdir(tmp_path)
    with running(path, tmp_path) as process:
        found = traced(path)
        said, _ = process.communicate()
    assert (tmp_path / "truth.json").exists(), said.decode()
    real = json.loads((tmp_path / "truth.json").read_text())
    assert found.parameter_count == real["parameter_count"]
    assert found.gradient_bytes == real["gradient_bytes"]
    assert found.optimizer_bytes == real["optimizer_bytes"]
    if real["bucket_bytes"]:
        assert list(found.bucket_bytes) == real["bucket_bytes"]
    assert found.flops and found.operations and found.batch


@pytest.mark.slow
def test_precision_accumulation_and_shards_are_seen():
    accumulated = traced(OURS["tests/parts/plan/trace/scripts/accumulation.py"])
    assert (accumulated.microbatches, accumulated.batch) == (4, 8)
    assert accumulated.precision is Precision.BF16
    assert traced(OURS["tests/worker/scripts/fsdp2.py"]).strategy is Strategy.FSDP


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("script", "deciding"), [("by_value.py", "nonzero"), ("until_sure.py", "while ")])
def test_a_way_that_depends_on_values_is_refused_with_its_line(script, deciding):
    path = REPOSITORY / "tests/parts/plan/trace/scripts" / script
    with pytest.raises(UsageError) as refused:
        traced(path)
    assert refused.value.code == "P06"
    lines = path.read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if deciding in text)
    assert f"{path}:{line}" in refused.value.what
    assert "--model" in refused.value.next
