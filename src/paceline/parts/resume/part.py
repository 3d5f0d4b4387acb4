"""The state of the ranks outlives them, and is saved: a job goes on from it."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.option import Option
from paceline.part import Beginning, GoesOn, Host, HostPart, Part, PartVerb
from paceline.parts.resume.options import OPTIONS, job_fields

if TYPE_CHECKING:
    from paceline.facts import Job, Run


# What runs a job is imported where it is needed: who only asks how a run goes on would load all of it.
class ResumeAuto(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "resume": PartVerb(
                about="show which loops of a script go on after a killed rank",
                module="paceline.parts.resume.cli.resume",
            ),
        }

    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"set": OPTIONS} if verb == "run" else {}

    def job_fields(self, args: Namespace) -> Mapping[str, Any]:
        """Raises:  UsageError: as options.job_fields."""
        return job_fields(args)

    def beginning(self, job: "Job", run_id: str | None, environ: Mapping[str, str], runs_root: Path) -> Beginning:
        """Raises:  UsageError: as load_state."""
        from paceline.parts.resume.resume_from import beginning

        return beginning(job, run_id, environ, runs_root)

    def on_host(self, host: Host) -> HostPart:
        from paceline.parts.resume.on_host import ResumeOnHost

        return ResumeOnHost(host)

    def goes_on(self, run: "Run", directory: Path) -> GoesOn | None:
        from paceline.parts.resume.recording.saved_state import command_to_go_on, newest_saved_step

        step = newest_saved_step(directory)
        return None if step is None else GoesOn(step=step, command=command_to_go_on(run.command, run.id))

    def in_rank(self) -> str:
        return "parts.resume.in_rank"


PART = ResumeAuto()
