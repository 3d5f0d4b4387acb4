"""The command that installs paceline: from a clone, because no package index has it."""

import shlex
from pathlib import Path

CLONE = "/path/to/clone"
"""Stands for a clone whose path is not known, such as one on another host."""


def install_command(extra: str = "") -> str:
    """pip's command for the clone from which this code runs; a copy without a clone around it names `CLONE`.

    Holds:   install_command("s3") -> "pip install '/path/to/clone[s3]'" outside of a clone
    """
    source, root = Path(__file__).resolve().parents[1:3]
    is_clone = source.name == "src" and (root / "pyproject.toml").is_file()
    place = str(root) if is_clone else CLONE
    return "pip install " + shlex.quote(f"{place}[{extra}]" if extra else place)
