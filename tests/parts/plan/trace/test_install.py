"""What a script meets in a trace: a device that is not there, values that are known and values that are not, failures of its own."""

import subprocess
import sys
import textwrap
import time

import pytest
from watching import is_alive

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.plan.planner.workload import Precision
from paceline.parts.plan.trace_script import trace

pytestmark = pytest.mark.process

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
inputs, wanted = torch.randn(32, 64, device="cuda"), torch.randint(0, 10, (32,)).cuda()
"""


@pytest.fixture
def traced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(text, *, head=HEAD, **options):
        path = tmp_path / "train.py"
        path.write_text(head + textwrap.dedent(text))
        return trace(Program(kind=ProgramKind.SCRIPT, target=str(path)), python=sys.executable, **options)

    return run


def refused(traced, text, **options):
    with pytest.raises(UsageError) as caught:
        traced(text, **options)
    return caught.value


def said(workload):
    return [assumption.what for assumption in workload.assumptions]


def test_a_gpu_answers_and_keeps_what_it_would_keep(traced):
    found = traced(
        """
        assert torch.cuda.is_available() and inputs.is_cuda and inputs.device.type == "cuda"
        torch.cuda.set_device(0); torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
        with torch.cuda.stream(torch.cuda.Stream()), torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(F.dropout(inputs, 0.1))
            assert out.dtype is torch.bfloat16 and F.softmax(out, -1).dtype is torch.float32
            loss = F.cross_entropy(out, wanted)
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        raise SystemExit("the first step is the last")
        """
    )
    assert (found.precision, found.autocast, found.batch) == (Precision.BF16, True, 32)
    assert found.parameter_count == 64 * 256 + 256 + 256 * 10 + 10
    assert found.optimizer_bytes == 2 * found.parameter_bytes + 4 * 4
    assert any("CUDA device" in what for what in said(found))


@pytest.mark.wide
def test_attention_with_dropout_keeps_no_scores(traced):
    text = """
        layer = nn.Linear(64, 3 * 64).to("cuda")
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        q, k, v = layer(torch.randn(2, 512, 64, device="cuda")).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        F.scaled_dot_product_attention(q, k, v, dropout_p={p}).sum().backward()
        optimizer.step()
        """
    scores_bytes = 2 * 4 * 512 * 512 * 4
    without, within = traced(text.format(p=0.0)), traced(text.format(p=0.1))
    assert without.activation_bytes == within.activation_bytes < scores_bytes


@pytest.mark.wide
def test_values_of_the_batch_are_known(traced):
    found = traced(
        """
        assert (wanted >= 0).all() and int(wanted.max()) < 10
        kept = wanted != int(wanted[0])
        out = model(inputs)[kept]
        assert len(out) == kept.sum().item()
        F.cross_entropy(out, wanted[kept]).backward()
        optimizer.step()
        """
    )
    assert not any("decides" in what for what in said(found))


def test_a_decision_by_a_value_is_an_assumption_with_its_line(traced):
    found = traced(
        """
        loss = F.cross_entropy(model(inputs), wanted)
        if loss.item() > 100:
            raise SystemExit(1)
        if torch.isnan(loss) or not torch.isfinite(loss):
            raise SystemExit(1)
        assert loss > 0
        loss.backward()
        optimizer.step()
        """
    )
    lines = {assumption.line: assumption.what for assumption in found.assumptions if "decides" in assumption.what}
    assert "taken as 1.0 > 100" in lines[9]
    assert "taken as True" in lines[13]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "out[out > 0].sum().backward()",
        pytest.param("model(inputs[: out.argmax().item()]).sum().backward()", marks=pytest.mark.wide),
    ],
)
def test_a_size_that_only_values_decide_is_refused_with_its_line(traced, line):
    error = refused(traced, f"out = model(inputs)\n{line}\noptimizer.step()\n")
    assert error.code == "P06"
    assert "train.py:8" in error.what
    assert "--model" in error.next


@pytest.mark.slow
def test_a_failure_of_the_script_is_its_own(traced):
    error = refused(traced, "\nmodel(inputs[:, :5]).sum().backward()\n")
    assert error.code == "P03"
    assert "train.py:8" in error.what


@pytest.mark.wide
def test_the_script_finds_as_many_devices_as_are_asked_about(traced):
    gate = """
    if torch.cuda.device_count() < 2:
        raise SystemExit
    F.cross_entropy(model(inputs), wanted).backward()
    optimizer.step()
    """
    assert refused(traced, gate).code == "P05"
    found = traced(gate, device_count=8)
    assert any("one of 8," in what for what in said(found))


@pytest.mark.slow
def test_data_parallel_is_traced_whatever_the_number_of_devices(traced):
    wrapped = """
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    F.cross_entropy(model(inputs), wanted).backward()
    optimizer.step()
    """
    alone, several = traced(wrapped), traced(wrapped, device_count=8)
    assert (several.batch, several.parameter_count) == (alone.batch, alone.parameter_count)
    assert any("nn.DataParallel" in what for what in said(several))


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", pytest.param("print('no torch here')", marks=pytest.mark.wide)])
def test_a_script_without_a_step_is_no_trace(traced, text):
    assert refused(traced, text, head="").code == "P05"


@pytest.mark.slow
def test_a_script_that_takes_too_long_is_stopped(traced):
    error = refused(traced, "import time\ntime.sleep(600)\n", head="", timeout_seconds=4.0)
    assert error.code == "P05"
    assert "--trace-timeout" in error.next


PLAN = [sys.executable, "-m", "paceline", "plan"]
STARTED = {
    "a child": "subprocess.Popen(words)",
    "of its own session": "subprocess.Popen(words, start_new_session=True)",
    "an orphan": "subprocess.run(['sh', '-c', f'{shlex.join(words)} &'])",
    "an orphan of its own session without the mark": "subprocess.run(['sh', '-c', f'env -i setsid {shlex.join(words)} &'])",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", STARTED)
@pytest.mark.parametrize("end", ["optimizer.step()", "raise ValueError"])
def test_what_the_script_starts_ends_with_the_trace(tmp_path, way, end):
    text = f"""
        import os, shlex, subprocess, sys, time
        words = [sys.executable, "-c", "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"]
        {STARTED[way]}
        while not os.path.exists("pid") or not open("pid").read():
            time.sleep(0.01)
        F.cross_entropy(model(inputs), wanted).backward()
        {end}
        """
    (tmp_path / "train.py").write_text(HEAD + textwrap.dedent(text))
    done = subprocess.run([*PLAN, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if end == "optimizer.step()" else 2), done.stderr
    pid = int((tmp_path / "pid").read_text())
    assert not is_alive(pid)


@pytest.mark.slow
def test_a_trace_whose_command_is_killed_ends(tmp_path):
    (tmp_path / "train.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    with subprocess.Popen(
        [*PLAN, "train.py"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as plan:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        plan.kill()
    # The test's own limit ends the wait.
    while is_alive(int((tmp_path / "pid").read_text())):
        time.sleep(0.01)


@pytest.mark.slow
def test_a_process_that_dies_is_no_trace(traced):
    error = refused(traced, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", head="")
    assert error.code == "P06"
    assert "SIGSEGV" in error.what


@pytest.mark.slow
def test_no_checkpoint_is_written_and_an_old_one_is_read(traced, tmp_path):
    found = traced(
        """
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        torch.save(before, "model.pt")
        torch.save({"state": optimizer.state_dict()}, "optimizer.pt")
        model(inputs).sum().backward()
        optimizer.step()
        """
    )
    assert not (tmp_path / "model.pt").exists()
    assert any("torch.save" in what for what in said(found))


@pytest.mark.wide
def test_activations_are_recomputed_where_the_script_says_so(traced):
    text = """
        from torch.utils.checkpoint import checkpoint
        layers = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True) for _ in range(6)).cuda()
        optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
        x = torch.randn(8, 32, 64, device="cuda")
        for layer in layers:
            x = {call}
        x.sum().backward()
        optimizer.step()
        """
    kept = traced(text.format(call="layer(x)"))
    again = traced(text.format(call="checkpoint(layer, x, use_reentrant=False)"))
    assert again.checkpointed_activations
    assert not kept.checkpointed_activations
    assert again.activation_bytes < kept.activation_bytes / 2
    assert again.flops > 1.2 * kept.flops


@pytest.mark.slow
def test_a_factory_stands_for_the_script(traced, tmp_path):
    (tmp_path / "made.py").write_text(
        HEAD + "def make():\n    return model, (inputs,), lambda out, batch: F.cross_entropy(out, wanted)\n"
    )
    found = trace(None, python=sys.executable, model="made:make")
    assert (found.name, found.batch) == ("Sequential", 32)
    assert found.optimizer == "AdamW"


@pytest.mark.wide
def test_a_process_that_the_script_starts_runs_in_the_trace(traced):
    text = """
    import torch.multiprocessing as mp
    def train(rank, model):
        F.cross_entropy(model(inputs), wanted).backward()
        optimizer.step()
    if __name__ == "__main__":
        model.share_memory()
        ranks = [mp.Process(target=train, args=(rank, model)) for rank in range(2)]
        [rank.start() for rank in ranks]
        [rank.join() for rank in ranks]
    """
    found = traced(text)
    assert found.batch == 32
    assert "a process that the script starts runs in the tracing one" in said(found)


@pytest.mark.slow
def test_a_script_without_optimizer_is_told_so_and_where(traced):
    head = HEAD.replace("optimizer =", "_ = lambda: 0  #")
    text = "while True:\n    model.zero_grad()\n    model(inputs).sum().backward()\n"
    error = refused(traced, text, head=head)
    assert error.code == "P05"
    assert "no torch.optim.Optimizer" in error.what
    assert "train.py:9" in error.what


@pytest.mark.wide
def test_networks_beside_the_trained_one_are_in_memory(traced):
    step = "F.cross_entropy(model(inputs), wanted).backward()\noptimizer.step()\n"
    alone, with_average = traced(step), traced("import copy\naverage = copy.deepcopy(model)\n" + step)
    assert with_average.parameter_count == alone.parameter_count
    assert with_average.peak_fixed_bytes == alone.peak_fixed_bytes + alone.parameter_bytes
