"""Which package a rank failed to import, and the command that installs torch for the rank's own Python. Pure."""

import re
import shlex

from paceline.facts import RankError

_NOT_IMPORTED = ("ModuleNotFoundError", "ImportError")
_NO_MODULE = re.compile(r"No module named '([A-Za-z_]\w*)")


def missing_package(error: RankError | None) -> str:
    """The missing package that a script tried to import; "" for every other exception."""
    match = _NO_MODULE.search(error.message) if error is not None and error.type in _NOT_IMPORTED else None
    return match[1] if match else ""


def lacks_torch(error: RankError | None) -> bool:
    """Whether the Python that ran the script has no torch. A torch without one of its modules is another one, or a file torch.py."""
    return missing_package(error) == "torch" and error is not None and "No module named 'torch'" in error.message


def install_torch(python: str | None) -> str:
    """The command that installs torch for this interpreter.

    Holds:   "/srv/my env/bin/python" -> "'/srv/my env/bin/python' -m pip install torch"; an unknown one is `python`
    """
    return f"{shlex.quote(python or 'python')} -m pip install torch"
