"""output/failure and output/success: the two files by which SageMaker learns how a host's training ended.

Writing them never raises: it happens while a job ends, and a full disk must not replace the real reason.
"""

import os
from pathlib import Path

from paceline.contract.tree import Tree
from paceline.recording.plain_files import read_plain

# FailureReason of DescribeTrainingJob is the first 1,024 characters of output/failure.
FAILURE_CHARACTERS = 1024
_LONGEST_CHARACTER = 4


def write_failure(tree: Tree, reason: str) -> bool:
    """Write the reason into output/failure, unless the script already wrote its own. True: paceline wrote the file."""
    text = reason.replace("\0", "")[:FAILURE_CHARACTERS]
    if read_failure(tree):
        return False
    return _write(tree.failure, text)


def read_failure(tree: Tree) -> str:
    """The reason as SageMaker shows it: at most 1,024 characters; empty if there is none."""
    try:
        text = read_plain(tree.failure, FAILURE_CHARACTERS * _LONGEST_CHARACTER)
    except OSError:
        return ""
    return text.decode(errors="replace")[:FAILURE_CHARACTERS]


def write_success(tree: Tree) -> bool:
    """Create an empty output/success, which means that all ranks of this host ended with code 0."""
    return _write(tree.success, "")


def forget_outcome(tree: Tree) -> None:
    """Remove the files of an earlier attempt or run, so that they are not read as the outcome of the next one."""
    for path in (tree.failure, tree.success):
        try:
            path.unlink(missing_ok=True)
        except OSError:
            pass  # a tree that cannot be written is reported where its configuration is written


def _write(path: Path, text: str) -> bool:
    try:
        # A pipe that a script left there has no reader, and is not waited for.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return False
    return True
