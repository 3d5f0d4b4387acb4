"""The state of the ranks outlives them, and is saved: a job goes on from it."""

from pathlib import Path

from paceline.facts import Run
from paceline.part import GoesOn, Host, HostPart, Part
from paceline.recording.saved_state import command_to_go_on, newest_saved_step


class ResumeAuto(Part):
    def on_host(self, host: Host) -> HostPart:
        # Not above: who only asks how a run goes on would load all of it.
        from paceline.parts.resume.on_host import ResumeOnHost

        return ResumeOnHost(host)

    def goes_on(self, run: Run, directory: Path) -> GoesOn | None:
        step = newest_saved_step(directory)
        return None if step is None else GoesOn(step=step, command=command_to_go_on(run.command, run.id))


PART = ResumeAuto()
