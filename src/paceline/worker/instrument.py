"""What an instrument is: a class in a file of instruments/, with a method for each event that it wants to hear of.

The name of the file is the name of the instrument, in PACELINE_OFF and in what a rank says of its failures. An instrument that needs
to see a call of torch replaces it in one of its `patches`; what runs in the replacement catches its own exceptions and hands them to
`RankRecorder.drop`. Exceptions of everything else here are caught for it: the instrument is dropped, the ring says so once, and the
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
    """One instrument of this process. Each method is optional, and one that is not overridden is never called.

    No method may wait for a disk, a lock or a network, or import anything but the standard library and the user's torch.
    """

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]

    def __init__(self, rank: RankRecorder) -> None:
        self.rank = rank

    def methods(self) -> dict[str, Callable[..., None]]:
        """The events of which this instrument hears: those that its class has a method of its own for."""
        return {
            event: getattr(self, event)
            for event in EVENTS
            if getattr(type(self), event) is not getattr(RankInstrument, event)
        }

    def call_at(self, step: int) -> None:
        """Have `at_step` called once this rank has made so many steps, in place of what was asked for before."""
        self.rank.call_at(step, self.name)

    def patches(self) -> dict[str, Patch]:
        """Module -> what runs right after it was executed, or at once where it is loaded already. The module is the argument."""
        return {}

    # -- events

    def begin(self) -> None:
        """This process begins: at `import torch`, and again in a forked child, which has nothing of its parent's."""

    def ring_opened(self) -> None:
        """This process has become a rank: its ring is there."""

    def group_joined(self, group_class: type) -> None:
        """The default process group was formed; of this class."""

    def loader_began(self, loader: Any) -> None:
        """An iterator over a DataLoader starts, or starts anew."""

    def loader_ran_out(self) -> None:
        """A DataLoader that fed steps has no more batches."""

    def model_wrapped(self, module: Any) -> None:
        """A DistributedDataParallel was made."""

    def reducer_renewed(self, module: Any) -> None:
        """A DistributedDataParallel was given a new reducer, whose timers begin at 0."""

    def at_step(self, step: int, optimizer: Any, frame: FrameType | None) -> None:
        """The step that was asked for by `call_at` is made, and not yet recorded. `frame`: what called the optimizer's step."""
