"""`paceline run --hosts` runs the job on other hosts."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial

from paceline.option import Option
from paceline.part import Part, RunPart
from paceline.parts.engines.options import OPTIONS


class EnginesPart(Part):
    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"plan": OPTIONS} if verb == "run" else {}

    def on_run(self, args: Namespace) -> RunPart:
        if all(getattr(args, row.dest) is None for row in OPTIONS):
            return RunPart()
        from paceline.cli.run.on_hosts import run_on_hosts

        return RunPart(elsewhere=partial(run_on_hosts, args))


PART = EnginesPart()
