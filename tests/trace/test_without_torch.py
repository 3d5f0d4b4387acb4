"""A plan for a script whose Python has no torch."""

import shlex
import sys

import pytest

from paceline.errors import UsageError
from paceline.facts import Program, ProgramKind
from paceline.launch.trace_script import trace


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
