"""The network of local hosts is told in a line of the run."""

from collections.abc import Mapping

from paceline.part import Line, Part, PartVerb


class Lab(Part):
    def verbs(self) -> Mapping[str, PartVerb]:
        return {
            "rehearse": PartVerb(
                about="train a few steps at small sizes and predict larger ones",
                module="paceline.cli.rehearse",
            ),
            "bench": PartVerb(
                about="time collectives, find slow hosts, compare strategies",
                module="paceline.cli.bench",
            ),
        }

    def lines(self) -> Mapping[str, Line]:
        from paceline.parts.lab.network_line import network_text

        return {"network": network_text}


PART = Lab()
