"""`paceline run --web` serves the page of the run beside it."""

from argparse import Namespace
from collections.abc import Mapping, Sequence

from paceline.errors import UsageError
from paceline.option import Option
from paceline.part import Part, RunPart

WEB = Option(
    "web",
    "Serve the page of the run for a browser, in a process of its own, and print its address.",
    more="See [the live page](howto/web.md).",
)


class Web(Part):
    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"no-check": (WEB,)} if verb == "run" else {}

    def on_run(self, args: Namespace) -> RunPart:
        """Raises:  UsageError U05: another process runs the first host."""
        if not args.web:
            return RunPart()
        if args.hosts is not None or args.local_hosts is not None:
            raise UsageError(
                "U05",
                "--web is for a job that this process runs itself",
                saw=f"{'--hosts' if args.hosts is not None else '--local-hosts'} is given, and the first host is another one",
                next="leave --web out, and in another terminal: paceline web",
            )
        from paceline.cli.web import start_beside

        return RunPart(beside=start_beside)


PART = Web()
