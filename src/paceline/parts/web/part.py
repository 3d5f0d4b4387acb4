"""The pages of runs, live, and what other programs read of them."""

from collections.abc import Mapping

from paceline.part import Part, PartVerb


class Web(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "web": PartVerb(
                about="serve runs and their pages live, for a browser",
                module="paceline.cli.web",
            ),
            "metrics": PartVerb(
                about="print a run in the text format of Prometheus",
                module="paceline.cli.metrics",
                reads_recordings=True,
            ),
            "timeline": PartVerb(
                about="write what each rank did when, as a trace to look at",
                module="paceline.cli.timeline",
                reads_recordings=True,
            ),
        }


PART = Web()
