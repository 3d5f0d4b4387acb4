"""A plan for a script whose Python has no torch."""

import shlex
import sys

import pytest

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.parts.plan.trace_script import other_framework, trace


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("import os\nimport tensorflow as tf\n", "tensorflow"),
        ("if True:\n    from jax import numpy\n", "jax"),
        ("import torch\nimport tensorflow as tf\n", ""),
        ("import tensorflowjs\n", ""),
    ],
)
def test_a_script_of_another_framework_is_known_by_its_imports(tmp_path, text, other):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert other_framework(Program(kind=ProgramKind.SCRIPT, target=str(script))) == other


def test_a_plan_from_a_script_of_tensorflow_asks_for_a_measured_step(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow\n")
    with pytest.raises(UsageError) as refused:
        trace(Program(kind=ProgramKind.SCRIPT, target=str(script)), python=sys.executable)
    assert "this one imports tensorflow" in refused.value.next and "--measured-step-ms" in refused.value.next


def test_the_advice_is_to_install_torch_into_that_python(tmp_path):
    python = tmp_path / "python without torch"
    # Without its site directory an interpreter finds the standard library alone.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    with pytest.raises(UsageError) as refused:
        trace(Program(kind=ProgramKind.SCRIPT, target=str(script)), python=str(python))
    assert refused.value.code == "P05" and "no torch" in refused.value.what
    assert refused.value.next == f"'{python}' -m pip install torch"
