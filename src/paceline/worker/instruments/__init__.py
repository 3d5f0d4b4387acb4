"""The instruments of a rank, one per file, under their names in PACELINE_OFF. A file here is an instrument; no other place lists them.

    steps.py            the steps of optimizers, and where the first step begins
    data.py             the wait for the next batch
    waits.py            the waits for collectives
    collectives.py      the collectives that Python issues to process groups
    ddp.py              exposed communication of DistributedDataParallel, sampled
    checkpoint.py       the duration of checkpoints
    groups.py           process groups: the moment when a process becomes a rank
    exchanges.py        the exchanges that comm reports
    replica.py          the values that must be equal on all replicas of a model
    exit.py             how the script exits
    worker_server.py    torch's worker server, started without output
    flight_recorder.py  the buffer size of torch's flight recorder
    tensorflow.py       the steps of TensorFlow
    keras_on_jax.py     the steps of Keras on JAX
    script_steps.py     the steps that a script counts itself

Each file has one class, a `RankInstrument` (instrument.py), and is loaded at the start of `import torch`, `tensorflow` or `keras`, or at
the first `paceline.step()`. A file named in PACELINE_OFF is not loaded. If findings depend on an instrument, the instrument also has a
member in `recording.ring.Instrument`. Only such a member tells a reader of the recording that the instrument was off, was dropped, or
lacks what it needs in this torch.
"""

import importlib
import pkgutil

from ..instrument import RankInstrument


def names() -> list[str]:
    """The names of all instruments."""
    return sorted(file.name for file in pkgutil.iter_modules(__path__))


def load(name: str) -> type[RankInstrument]:
    """The instrument class in the file of this name.

    Raises:  ValueError: the file has no such class, or several; also whatever the file raises
    """
    module = importlib.import_module(f"{__name__}.{name}")
    (found,) = (
        member
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, RankInstrument) and member.__module__ == module.__name__
    )
    return found
