"""The network of local hosts is told in a line of the run."""

from collections.abc import Mapping

from paceline.part import Line, Part


class Lab(Part):
    def lines(self) -> Mapping[str, Line]:
        from paceline.parts.lab.network_line import network_text

        return {"network": network_text}


PART = Lab()
