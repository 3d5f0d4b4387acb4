"""What a traced script writes has the keys of docs/schemas.md, and no other."""

import json
import subprocess
import sys

import pytest

from paceline.cli.programs.schema_keys import SCHEMAS, keys_of

pytestmark = pytest.mark.process

STEPS = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters())
model(torch.zeros(3, 4)).sum().backward()
optimizer.step()
"""
FAILS = """
import torch
if torch.zeros(3, requires_grad=True).sum() > 0:
    pass
raise SystemExit(3)
"""


def written(tmp_path, text):
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "paceline.parts.plan.trace", "--out", "trace.json", "--device", "cpu", "train.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    return json.loads((tmp_path / "trace.json").read_text())


@pytest.mark.smoke
def test_a_trace_has_the_keys_of_its_page(tmp_path):
    (schema,) = (one for one in SCHEMAS if one.name == "paceline.trace/1")
    told = {key.path.partition(".")[0].partition("[")[0] for key in keys_of(schema)} | {"schema"}
    traced, failed = written(tmp_path, STEPS), written(tmp_path, FAILS)
    assert (traced["outcome"], failed["outcome"]) == ("traced", "failed")
    assert set(traced) | set(failed) <= told
    # What only some scripts do, and the line of a failure that is at a line.
    sometimes = {
        "gradient_as_bucket_view",
        "lazy_bucket_allocation",
        "largest_group_bytes",
        "distributed",
        "attention",
        "file",
        "line",
        "text",
    }
    assert told - set(traced) - set(failed) <= sometimes
    assert {"code", "what", "saw"} <= set(failed)
