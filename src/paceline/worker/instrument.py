"""An instrument is a class in a file of instruments/. It has a method for each event that it wants to receive.

The name of the file is the name of the instrument, in PACELINE_OFF and in a rank's failure messages. If an instrument needs
to see a call of torch, it replaces that call in one of its `patches`. The replacement catches its own exceptions and passes them to
`RankRecorder.drop`. Exceptions of all other methods are caught for the instrument: it is dropped, the ring says so once, and the
script goes on.
"""

from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

from .rank_recorder import RankRecorder

Patch = Callable[[Any], None]
EVENTS = (
    "begin",
    "ring_opened",
    "group_joined",
    "loader_began",
    "loader_ran_out",
    "model_wrapped",
    "reducer_renewed",
    "at_step",
)


class RankInstrument:
    """One instrument of this process. Each method is optional. A method that the class does not override is never called.

    No method may wait for a disk, a lock or a network. No method may import anything but the standard library and the user's torch.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, rank: RankRecorder) -> None:
        self.rank = rank

    def methods(self) -> dict[str, Callable[..., None]]:
        """The events that this instrument receives: those for which its class overrides the method."""
        return {
            event: getattr(self, event)
            for event in EVENTS
            if getattr(type(self), event) is not getattr(RankInstrument, event)
        }

    def call_at(self, step: int) -> None:
        """Ask for a call of `at_step` when this rank has made `step` steps. This replaces an earlier request."""
        self.rank.call_at(step, self.name)

    def patches(self) -> dict[str, Patch]:
        """Module -> the patch that runs right after the module was executed, or at once if it is loaded. Its argument is the module."""
        return {}

    # -- events

    def begin(self) -> None:
        """This process starts: at `import torch`, and again in a forked child, which inherits no state."""

    def ring_opened(self) -> None:
        """This process has become a rank: its ring exists."""

    def group_joined(self, group_class: type) -> None:
        """The default process group was formed; `group_class` is its class."""

    def loader_began(self, loader: Any) -> None:
        """An iterator over a DataLoader starts, or starts again."""

    def loader_ran_out(self) -> None:
        """A DataLoader that fed steps has no more batches."""

    def model_wrapped(self, module: Any) -> None:
        """A DistributedDataParallel was constructed."""

    def reducer_renewed(self, module: Any) -> None:
        """A DistributedDataParallel has a new reducer, whose timers start at 0."""

    def at_step(self, step: int, optimizer: Any, frame: FrameType | None) -> None:
        """The step requested by `call_at` is made, and not yet recorded. `frame`: the caller of the optimizer's step."""
