"""The owner of a recording. Any recording may be read; only the user's own may decide which process is contacted, signalled or ended."""

import os
from pathlib import Path

from paceline.errors import UsageError
from paceline.user_names import user_name


def stranger(*paths: Path) -> tuple[Path, int] | None:
    """The first of the paths that is not the caller's own, and its owner. Paths that are not there are nobody's.

    A link is followed, and has to be the caller's own too: who made it has chosen where it leads.
    """
    for path in paths:
        for look in (os.lstat, os.stat):
            try:
                owner = look(path).st_uid
            except OSError:
                continue
            if owner != os.geteuid():
                return path, owner
    return None


def require_own(*paths: Path, verb: str) -> None:
    """Refuse to act on a recording that another user wrote, or could have written.

    `verb`: the command that the owner types. Paths that are not there are nobody's.

    Raises:  UsageError U25: one of the paths belongs to somebody else
    """
    if (found := stranger(*paths)) is not None:
        path, owner = found
        raise UsageError(
            "U25",
            f"{path} belongs to another user: it is read, and nothing that it says is done",
            saw=f"owner {user_name(owner)}, asked by {user_name(os.geteuid())}",
            next=f"sudo -u {user_name(owner)} {verb}",
        )
