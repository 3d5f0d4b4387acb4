"""The owner of a recording. Any recording may be read; only the user's own may decide which process is contacted, signalled or ended."""

import os
import pwd
from pathlib import Path

from paceline.errors import UsageError


def require_own(*paths: Path, verb: str) -> None:
    """Refuse to act on a recording that another user wrote, or could have written.

    `verb`: the command that the owner types. Paths that are not there are nobody's.

    Raises:  UsageError U25: one of the paths belongs to somebody else
    """
    for path in paths:
        try:
            owner = os.stat(path).st_uid
        except OSError:
            continue
        if owner != os.geteuid():
            raise UsageError(
                "U25",
                f"{path} belongs to another user: it is read, and nothing that it says is done",
                saw=f"owner {_name(owner)}, asked by {_name(os.geteuid())}",
                next=f"sudo -u {_name(owner)} {verb}",
            )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"'#{uid}'"
