"""Notes how the script exits: `sys.exit`, `os._exit`, the end of its main thread, its exit handlers (see exit_handler.py, exit_code.py)."""

from types import ModuleType

from .. import exit_code, exit_handler
from ..instrument import Patch, RankInstrument


class ExitWatch(RankInstrument):
    """Replaces `sys.exit`, `os._exit` and the first step of the interpreter's exit. sitecustomize has registered the exit handler."""

    def patches(self) -> dict[str, Patch]:
        # Both modules are loaded in every process, so these patches run immediately.
        return {"sys": self._watch_code, "threading": self._watch_end}

    def ring_opened(self) -> None:
        exit_code.read_script()

    def _watch_code(self, _: ModuleType) -> None:
        exit_code.watch(lambda: self.rank.step_count)
        exit_code.watch_the_hard_way(self._left)

    def _left(self) -> None:
        if self.rank.ring is not None:
            self.rank.ring.text("left_at", exit_code.left_at)

    def _watch_end(self, _: ModuleType) -> None:
        exit_handler.watch()
