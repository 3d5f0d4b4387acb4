"""output/failure and output/success: the two files by which SageMaker learns how a host's training ended.

Writing them never raises: it happens while a job ends, and a full disk must not replace the real reason.
"""

from pathlib import Path

from paceline.contract.tree import Tree

# FailureReason of DescribeTrainingJob is the first 1,024 characters of output/failure.
FAILURE_CHARACTERS = 1024


def write_failure(tree: Tree, reason: str) -> bool:
    """Put the reason into output/failure, unless the script already wrote its own there. True: the file is ours."""
    text = reason.replace("\0", "")[:FAILURE_CHARACTERS]
    if read_failure(tree):
        return False
    return _write(tree.failure, text)


def read_failure(tree: Tree) -> str:
    """The reason as SageMaker would show it: at most 1,024 characters, empty where there is none."""
    try:
        with tree.failure.open(encoding="utf-8", errors="replace") as file:
            return file.read(FAILURE_CHARACTERS)
    except OSError:
        return ""


def write_success(tree: Tree) -> bool:
    """Leave an empty output/success, which says that this host's ranks all ended with code 0."""
    return _write(tree.success, "")


def forget_outcome(tree: Tree) -> None:
    """Remove what an earlier attempt or run left, so that it is not read as the outcome of the next one."""
    for path in (tree.failure, tree.success):
        try:
            path.unlink(missing_ok=True)
        except OSError:
            pass  # a tree that cannot be written is reported where its configuration is written


def _write(path: Path, text: str) -> bool:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError:
        return False
    return True
