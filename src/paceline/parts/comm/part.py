"""The strategy of `--gradients` is checked, and a rank gets the backends and the strategy."""

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.option import Option
from paceline.part import Part
from paceline.parts.comm.options import OPTIONS, job_fields

if TYPE_CHECKING:
    from paceline.job_file import JobFile


class Comm(Part):
    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"set": OPTIONS} if verb == "run" else {}

    def job_fields(self, args: Namespace) -> Mapping[str, Any]:
        """Raises:  UsageError: as options.job_fields."""
        return job_fields(args)

    def wrong(self, file: "JobFile") -> Iterable[tuple[str, object]]:
        """Raises:  UsageError U03: the strategy."""
        if file.job.gradients is not None:
            from paceline.parts.comm.planner import strategies

            strategies.check(file.job.gradients)
        return ()

    def in_rank(self) -> str:
        return "parts.comm.in_rank"


PART = Comm()
