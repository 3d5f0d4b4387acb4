"""What the trace says is alive, held against what torch's allocator really gave out on the CPU."""

import json
import subprocess
import sys
import textwrap

import pytest

from paceline.facts import Program, ProgramKind
from paceline.parts.plan.trace_script import trace

pytestmark = pytest.mark.process

MODELS = {
    "perceptron": """
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        inputs, wanted = torch.randn(64, 256), torch.randint(0, 10, (64,))
        optimizer = torch.optim.Adam(model.parameters())
        """,
    "convolutions": """
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )
        inputs, wanted = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        """,
    "attention": """
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        model = nn.Sequential(nn.TransformerEncoder(layer, 3), nn.Flatten(0, 1), nn.Linear(128, 100))
        inputs, wanted = torch.randn(8, 64, 128), torch.randint(0, 100, (8 * 64,))
        optimizer = torch.optim.AdamW(model.parameters())
        """,
}
STEP = """
    def step():
        nn.functional.cross_entropy(model(inputs), wanted).backward()
"""
REAL = """
    import json
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = sorted((e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())
    now = most = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers(), inputs, wanted))
    for event in events:
        now += event.nbytes()
        most = max(most, now)
    print(json.dumps(most))
"""


def script(path, *parts):
    path.write_text("import torch\nfrom torch import nn\n" + "".join(textwrap.dedent(part) for part in parts))
    return str(path)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_that_of_the_allocator(name, tmp_path):
    real = script(tmp_path / "real.py", MODELS[name], STEP, REAL)
    most = json.loads(subprocess.run([sys.executable, real], capture_output=True, text=True, check=True).stdout)
    target = script(tmp_path / "train.py", MODELS[name], STEP, "step()\noptimizer.step()\n")
    found = trace(Program(kind=ProgramKind.SCRIPT, target=target), python=sys.executable, device="cpu")
    assert found.peak_bytes == pytest.approx(most, rel=0.05)
    assert found.activation_bytes + found.peak_fixed_bytes + found.parameter_bytes + found.gradient_bytes >= 0.95 * most


@pytest.mark.slow
def test_activations_grow_with_the_batch_and_nothing_else_does(tmp_path):
    def traced(batch):
        text = MODELS["convolutions"].replace("16", str(batch))
        target = script(tmp_path / f"{batch}.py", text, STEP, "step()\noptimizer.step()\n")
        return trace(Program(kind=ProgramKind.SCRIPT, target=target), python=sys.executable, device="cpu")

    small, large = traced(8), traced(32)
    assert (small.batch, large.batch) == (8, 32)
    assert large.activation_bytes == pytest.approx(4 * small.activation_bytes, rel=0.02)
    assert large.optimizer_bytes == small.optimizer_bytes == small.parameter_bytes
