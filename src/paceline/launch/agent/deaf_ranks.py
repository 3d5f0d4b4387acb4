"""What happens to ranks that go on after a SIGTERM: TensorFlow and JAX catch it, and take it as a notice that the machine will go.

After another rank's failure or a hang nothing can be saved any more, because a save needs all ranks: such a rank is killed after 3 s. At a
stop or a limit the rank has its whole grace, because a handler may be saving. In both cases the user is told.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from paceline.launch.job.messages import StopMessage
from paceline.probes.processes import read_io
from paceline.probes.sigterm_notice import has_handler, takes_as_notice
from paceline.probes.stacks import dump

AFTER_FAILURE_SECONDS = 3.0
TELL_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_STACK_SECONDS = 5.0
# Who writes more than a traceback in a second is saving something, in a handler of the script.
_SAVING_BYTES = 65536


@dataclass(slots=True)
class DeafRanks:
    """Watches the ranks of one host after a SIGTERM until all have ended."""

    ranks: Callable[[], Collection[int]]
    """Process ids of the ranks that have not ended."""
    tell: Callable[[str], None]
    """Called with what the user should know."""
    _told: set[str] = field(default_factory=set)

    async def after(self, message: StopMessage) -> None:
        """Watch the ranks after the signal of this message."""
        if message.after_failure:
            await self.after_failure()
        elif message.signal == "SIGTERM":
            await self.after_stop(message.grace_seconds)

    async def after_failure(self) -> None:
        """Kill each rank that takes the signal as a notice, unless it is writing."""
        await asyncio.sleep(AFTER_FAILURE_SECONDS - _LOOK_SECONDS)
        written = _written(self.ranks())
        while self.ranks():
            await asyncio.sleep(_LOOK_SECONDS)
            before, written = written, _written(self.ranks())
            for pid, framework in self._deaf():
                if written.get(pid, 0) - before.get(pid, 0) >= _SAVING_BYTES:
                    continue
                self._tell_once(
                    f"{framework} takes SIGTERM as a notice of preemption and goes on; without all ranks nothing can be saved, "
                    f"so its ranks are killed {AFTER_FAILURE_SECONDS:.0f} s after the signal"
                )
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    async def after_stop(self, grace_seconds: float) -> None:
        """Tell the user that the ranks will use their whole grace, and whether anything saves meanwhile."""
        await asyncio.sleep(TELL_SECONDS)
        deaf = self._deaf()
        if not deaf or grace_seconds <= TELL_SECONDS:
            return
        handlers = [await asyncio.to_thread(_handler, pid) for pid, framework in deaf if framework == "TensorFlow"]
        frameworks = " and ".join(sorted({framework for _, framework in deaf}))
        self._tell_once(
            f"{frameworks} takes SIGTERM as a notice of preemption and goes on; {_saving(handlers)}. SIGKILL follows "
            f"{grace_seconds:g} s after the signal (--stop-grace); at once: paceline stop --now"
        )

    def _deaf(self) -> list[tuple[int, str]]:
        found = ((pid, takes_as_notice(pid)) for pid in self.ranks())
        return [(pid, framework) for pid, framework in found if framework is not None]

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.tell(text)


def may_save(pids: Collection[int]) -> frozenset[int]:
    """The processes in which a handler of TensorFlow would take a SIGTERM as a notice to save. To be asked before the signal is sent."""
    return frozenset(pid for pid in pids if takes_as_notice(pid) == "TensorFlow")


def _handler(pid: int) -> bool | None:
    return has_handler(dump(pid, timeout_seconds=_STACK_SECONDS))


def _saving(handlers: Sequence[bool | None]) -> str:
    if any(handlers):
        return "a PreemptionCheckpointHandler saves and ends the ranks"
    if None in handlers or not handlers:
        return "whether a handler saves was not judged"
    return "no PreemptionCheckpointHandler is there, so nothing saves or ends them"


def _written(pids: Collection[int]) -> dict[int, int]:
    moved = {pid: read_io(pid) for pid in pids}
    return {pid: one.written for pid, one in moved.items() if one is not None}
