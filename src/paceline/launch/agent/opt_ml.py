"""Shows a host's tree at /opt/ml, for scripts that name the directories of SageMaker's containers themselves."""

import os
from pathlib import Path

from paceline.contract.tree import OPT_ML, Tree
from paceline.mounts import bind_over, bind_refusal
from paceline.namespaces import NamespaceRefused


def show_at_opt_ml(tree: Tree, at: Path = OPT_ML) -> str | None:
    """Bind the tree over /opt/ml in this process's own mount namespace, for it and the ranks. Returns why not; None: it is there.

    A machine whose own /opt/ml has one of the contract's directories keeps it: somebody's data or a container's job lies in it.
    """
    if taken := own_directory(at):
        return f"this machine has a {taken} of its own"
    here = os.getcwd()
    try:
        bind_over(tree.base, at, keep=True)
    except NamespaceRefused as refused:
        return str(refused.args[0])
    # The directory in which this process stands may lie below what was covered.
    os.chdir(here)
    return None


def opt_ml_refusal(at: Path = OPT_ML) -> str | None:
    """Why the hosts of this machine cannot have their tree at /opt/ml; None: they can."""
    taken = own_directory(at)
    return f"this machine has a {taken} of its own" if taken else bind_refusal(at)


def own_directory(at: Path) -> Path | None:
    """The first directory of the contract that the machine itself has below /opt/ml."""
    names = dict.fromkeys(path.relative_to(at).parts[0] for path in Tree(at).directories)
    return next((at / name for name in names if (at / name).exists()), None)
