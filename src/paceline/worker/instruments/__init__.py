"""The instruments of a rank, one per file, under their names in PACELINE_OFF. A file here is an instrument, and a file in the folder
`instruments` of a part; no other place lists them.

    steps.py            the steps of optimizers, and where the first step begins
    data.py             the wait for the next batch
    waits.py            the waits for collectives
    collectives.py      the collectives that Python issues to process groups
    ddp.py              exposed communication of DistributedDataParallel, sampled
    checkpoint.py       the duration of checkpoints
    groups.py           process groups: the moment when a process becomes a rank
    replica.py          the values that must be equal on all replicas of a model
    exit.py             how the script exits
    worker_server.py    torch's worker server, started without output
    flight_recorder.py  the buffer size of torch's flight recorder
    script_steps.py     the steps that a script counts itself

Each file has one class, a `RankInstrument` (instrument.py), and is loaded at the start of `import torch`, `tensorflow` or `keras`, or at
the first `paceline.step()`. A file named in PACELINE_OFF is not loaded. If findings depend on an instrument, the instrument also has a
member in `recording.ring.Instrument`. Only such a member tells a reader of the recording that the instrument was off, was dropped, or
lacks what it needs in this torch.
"""

import importlib
import os
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from ..instrument import RankInstrument


def modules(parts: Iterable[ModuleType]) -> dict[str, str]:
    """The modules of all instruments by their names. `parts`: the parts' modules inside a rank."""
    found = dict.fromkeys(_names(__path__), __name__)
    for part in parts:
        # Beside a module outside of a package lies what others have installed.
        if not (part.__package__ and part.__file__):
            continue
        folder = os.path.join(os.path.dirname(part.__file__), "instruments")
        found |= dict.fromkeys(_names([folder]), f"{part.__package__}.instruments")
    return {name: f"{package}.{name}" for name, package in sorted(found.items())}


def load(module_name: str) -> type[RankInstrument]:
    """The instrument class in a module.

    Raises:  ValueError: the file has no such class, or several; also whatever the file raises
    """
    module = importlib.import_module(module_name)
    (found,) = (
        member
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, RankInstrument) and member.__module__ == module.__name__
    )
    return found


def _names(folders: Iterable[str]) -> list[str]:
    return [file.name for file in pkgutil.iter_modules(folders)]
