"""The instruments of a rank, one a file, under the names that PACELINE_OFF has. A file here is an instrument; no other place names it.

    steps.py            steps of optimizers, and where the first one begins
    data.py             the wait for the next batch
    waits.py            the waits for exchanges
    collectives.py      what Python issues to process groups
    ddp.py              exposed communication of DistributedDataParallel, sampled
    checkpoint.py       the time that checkpoints take
    groups.py           process groups: where a process becomes a rank
    exchanges.py        what comm tells of its exchanges
    replica.py          what must be alike on all replicas of a model
    exit.py             how the script leaves
    worker_server.py    torch's worker server, started quietly
    flight_recorder.py  room for torch's flight recorder

Each has one class, a `RankInstrument` (instrument.py), and is loaded as `import torch` begins. What is named in PACELINE_OFF is not
loaded. An instrument on which findings rest has a member in `recording.ring.Instrument` besides: only such a member tells a reader of
the recording that it was off, dropped, or has nothing to work with.
"""

import importlib
import pkgutil

from ..instrument import RankInstrument


def names() -> list[str]:
    """Every instrument there is."""
    return sorted(file.name for file in pkgutil.iter_modules(__path__))


def load(name: str) -> type[RankInstrument]:
    """The class in the file of this name.

    Raises:  ValueError: the file has none, or several; and whatever the file raises
    """
    module = importlib.import_module(f"{__name__}.{name}")
    (found,) = (
        member
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, RankInstrument) and member.__module__ == module.__name__
    )
    return found
