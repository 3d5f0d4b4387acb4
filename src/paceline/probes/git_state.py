"""What git says of a directory: the commit and what differs from it. Nothing is locked or written."""

import subprocess
from pathlib import Path

_GIT_SECONDS = 10


def git_state(directory: Path) -> tuple[str | None, tuple[str, ...]]:
    """The commit that is checked out, and the paths below `directory` that differ from it; None and (): git does not know."""
    commit = _git(directory, "rev-parse", "HEAD")
    status = _git(directory, "status", "--porcelain=v1", "--untracked-files=normal", "--", ".")
    if commit is None or status is None:
        return None, ()
    return commit.strip(), tuple(line[3:] for line in status.splitlines())


def _git(directory: Path, *argv: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "--no-optional-locks", "-C", str(directory), *argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
