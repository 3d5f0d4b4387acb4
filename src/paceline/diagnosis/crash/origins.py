"""Whose failure an exception is, by its type: the script's, that of a process elsewhere, or of nobody. Pure."""

import re

# What a driver raises about a process that ended elsewhere.
# Sources: sagemaker/exceptions.py; torch/multiprocessing/spawn.py; ray/exceptions.py, ray/train, ray/tune; concurrent/futures/process.py;
# distributed/scheduler.py
_DRIVERS = re.compile(
    r"(?:^|\.)(?:ProcessExitedException|Ray\w*Error|\w*ActorError|Actor\w*Error|WorkerCrashedError|WorkerDied\w*|TrainingFailedError|"
    r"UnexpectedStatusException|TuneError|NodeDiedError|OwnerDiedError|ObjectLostError|BrokenProcessPool|KilledWorker)(?:\(\w+\))?$"
)


def is_drivers(exception: str) -> bool:
    """Whether who raises this only says that a process elsewhere has ended. `exception`: its type, with or without its module."""
    return _DRIVERS.search(exception) is not None


def is_interrupt(exception: str) -> bool:
    """Whether somebody interrupted the process, wherever it was."""
    return exception.rpartition(".")[2] == "KeyboardInterrupt"
