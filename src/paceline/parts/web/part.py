"""`paceline run --web` serves the page of the run beside it; `paceline report` writes what other programs show."""

from argparse import Namespace
from collections.abc import Mapping, Sequence

from paceline.errors import UsageError
from paceline.option import Option
from paceline.part import Part, PartVerb, ReportFormat, RunPart

WEB = Option(
    "web",
    "Serve the page of the run for a browser, in a process of its own, and print its address.",
    more="See [the live page](howto/web.md).",
)


class Web(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "web": PartVerb(
                about="serve runs and their pages live, for a browser", module="paceline.parts.web.cli.web"
            ),
        }

    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"set": (WEB,)} if verb == "run" else {}

    def report_formats(self) -> Mapping[str, ReportFormat]:
        from paceline.parts.web.cli import metrics, tensorboard, timeline

        return {
            "prometheus": metrics.FORMAT,
            "tensorboard": tensorboard.FORMAT,
            "trace": timeline.FORMAT,
        }

    def on_run(self, args: Namespace) -> RunPart:
        """Raises:  UsageError U05: another process runs the first host."""
        if not args.web:
            return RunPart()
        others = [
            f"--{name.replace('_', '-')}" for name in ("hosts", "local_hosts") if getattr(args, name, None) is not None
        ]
        if others:
            raise UsageError(
                "U05",
                "--web is for a job that this process runs itself",
                saw=f"{others[0]} is given, and the first host is another one",
                next="leave --web out, and in another terminal: paceline web",
            )
        from paceline.parts.web.cli.web import start_beside

        return RunPart(beside=start_beside)


PART = Web()
