"""The strategy of `--gradients` is checked, and a rank gets the backends and the strategy."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from paceline.part import Part

if TYPE_CHECKING:
    from paceline.job_file import JobFile


class Comm(Part):
    def wrong(self, file: "JobFile") -> Iterable[tuple[str, object]]:
        """Raises:  UsageError U03: the strategy."""
        if file.job.gradients is not None:
            from paceline.parts.comm.planner import strategies

            strategies.check(file.job.gradients)
        return ()

    def in_rank(self) -> str:
        return "parts.comm.in_rank"


PART = Comm()
