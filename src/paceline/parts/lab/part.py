"""`paceline run --local-hosts` starts the hosts of a job on this machine. Their network is told in a line of the run."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paceline.option import Option
from paceline.part import Line, Part, PartVerb, RunPart
from paceline.parts.lab.options import OPTIONS

if TYPE_CHECKING:
    from paceline.job_file import JobFile


class Lab(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "bench": PartVerb(
                about="time collectives, find slow hosts, rehearse a script", module="paceline.parts.lab.cli.bench"
            ),
        }

    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"set": OPTIONS} if verb == "run" else {}

    def on_run(self, args: Namespace) -> RunPart:
        """Raises:  UsageError U03, U05: the network."""
        if all(getattr(args, row.dest) is None for row in OPTIONS):
            return RunPart()
        from paceline.parts.lab.cli.network import network_of
        from paceline.parts.lab.emulate.local_hosts import run_local_hosts

        network = network_of(args)

        def start_hosts(file: "JobFile", environ: Mapping[str, str]) -> int:
            return run_local_hosts(args.local_hosts, file, environ=environ, network=network)

        return RunPart(start_hosts=start_hosts)

    def lines(self) -> Mapping[str, Line]:
        from paceline.parts.lab.network_line import network_text

        return {"network": network_text}


PART = Lab()
