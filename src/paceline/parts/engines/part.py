"""Jobs that were given to an engine are found again by the note in their directory; `run --hosts` gives one to other hosts, and `check`
looks at the hosts of an engine.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from paceline.option import Option
from paceline.part import CheckPart, Observation, Part, PartVerb, RunPart, SubmittedJob
from paceline.parts.engines.options import OPTIONS
from paceline.recording.layout import SUBMISSION_FILE


class JobEngines(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "submit": PartVerb(
                about="give a job to ssh, ray, slurm, sagemaker or this machine",
                module="paceline.parts.engines.cli.submit",
            ),
        }

    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        if verb == "check":
            from paceline.parts.engines.check_options import OPTIONS as of_check

            return {"instance": of_check}
        return {"set": OPTIONS} if verb == "run" else {}

    def on_run(self, args: Namespace) -> RunPart:
        if all(getattr(args, row.dest) is None for row in OPTIONS):
            return RunPart()
        from paceline.parts.engines.cli.on_hosts import run_on_hosts

        return RunPart(elsewhere=partial(run_on_hosts, args))

    def submitted(self, run_dir: Path, environ: Mapping[str, str]) -> SubmittedJob | None:
        return JobOfAnEngine(run_dir, environ) if (run_dir / SUBMISSION_FILE).exists() else None

    def command_on(self, place: str, argv: Sequence[str]) -> Sequence[str]:
        from paceline.parts.engines.look import command_on

        return command_on(place, argv)

    def on_check(self) -> CheckPart:
        from paceline.parts.engines.check import EnginesOnCheck

        return EnginesOnCheck()


@dataclass(frozen=True, slots=True)
class JobOfAnEngine(SubmittedJob):
    run_dir: Path
    environ: Mapping[str, str]

    def observe(self) -> Observation:
        from paceline.parts.engines.jobs import observe

        return observe(self.run_dir, self.environ)

    def logs(self, cursor: str | None) -> tuple[Sequence[str], str | None]:
        from paceline.parts.engines.jobs import logs

        return logs(self.run_dir, cursor, self.environ)

    def cancel(self, *, now: bool = False) -> None:
        from paceline.parts.engines.jobs import cancel

        cancel(self.run_dir, self.environ, now=now)


PART = JobEngines()
