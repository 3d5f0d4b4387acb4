"""A part of paceline in a package of its own: each host is asked for the data set, and each rank is told its shard.

The package names it in its pyproject.toml, and is installed beside paceline on every host:

    [project.entry-points."paceline.parts"]
    dataset = "dataset_part:PART"

Then `DATASET=/data/digits paceline run train.py` ends with an error that names the host where the directory is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UsageError
from paceline.facts import Placement
from paceline.part import Host, HostPart, Part


class Dataset(Part):
    def on_host(self, host: Host) -> HostPart | None:
        directory = host.environ.get("DATASET")
        return DatasetOnHost(host.name, Path(directory)) if directory else None


@dataclass(frozen=True, slots=True)
class DatasetOnHost(HostPart):
    host: str
    directory: Path

    def begins(self, attempt: int, placements: Sequence[Placement]) -> Iterator[str]:
        if not self.directory.is_dir():
            saw, next = f"DATASET={self.directory}", f"on {self.host}: ls -ld {self.directory}"
            raise UsageError("U06", f"{self.host} has no data set", saw=saw, next=next)
        yield f"{self.host} has {sum(1 for _ in self.directory.iterdir())} files of the data set"

    def variables(self, placements: Sequence[Placement], rank: int) -> Mapping[str, str]:
        return {"DATASET_SHARD": f"{rank} of {sum(placement.ranks for placement in placements)}"}


PART = Dataset()
