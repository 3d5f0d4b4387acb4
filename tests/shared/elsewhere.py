"""A recording that is kept has no path or name of the machine on which it was made.

The program that makes it runs in namespaces of its own, where this repository is at /srv/paceline and the host is named `trainer`. As root.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from install_torch import torches

ELSEWHERE = Path("/srv")
_REPOSITORY = Path(__file__).resolve().parents[2]
_THERE = "PACELINE_RECORDS"


def go_elsewhere(program: str, argv: Sequence[str]) -> None:
    """Become this program there; return where this process is it. `program`: its file, from the root of the repository."""
    if os.environ.pop(_THERE, ""):
        return
    place, others = ELSEWHERE / "paceline", ELSEWHERE / "torches"
    commands = (
        f"mount -t tmpfs tmpfs {ELSEWHERE}",
        f"mkdir {place} {others}",
        f"mount --bind '{_REPOSITORY}' {place}",
        f"! test -d '{torches()}' || mount --bind '{torches()}' {others}",
        "hostname trainer",
        f'cd {place} && exec .venv/bin/python {program} "$@"',
    )
    os.environ.update({_THERE: "1", "PACELINE_TORCHES": str(others), "HOME": str(ELSEWHERE), "TMPDIR": str(ELSEWHERE)})
    os.execvp("unshare", ["unshare", "--mount", "--uts", "sh", "-ec", "; ".join(commands), "sh", *argv])
