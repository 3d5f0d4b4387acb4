"""How a run that broke off goes on from its saved state."""

from collections.abc import Mapping
from pathlib import Path

from paceline.facts import Run
from paceline.part import GoesOn, Part, PartVerb


class ResumeAuto(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "resume": PartVerb(
                about="show which loops of a script go on after a killed rank",
                module="paceline.cli.resume",
            ),
        }

    def goes_on(self, run: Run, directory: Path) -> GoesOn | None:
        from paceline.recording.saved_state import command_to_go_on, newest_saved_step

        step = newest_saved_step(directory)
        return None if step is None else GoesOn(step=step, command=command_to_go_on(run.command, run.id))

    def in_rank(self) -> str:
        return "parts.resume.in_rank"


PART = ResumeAuto()
