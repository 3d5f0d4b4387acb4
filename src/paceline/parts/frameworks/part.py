"""TF_CONFIG is made for the ranks, or checked where the user has set it; a parameter server runs on each host where the job asks for it."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.option import Option
from paceline.part import Host, HostPart, Part
from paceline.parts.frameworks.options import OPTIONS, job_fields

if TYPE_CHECKING:
    from paceline.facts import Job
    from paceline.job_file import JobFile


class Frameworks(Part):
    def options(self, verb: str) -> Mapping[str, Sequence[Option]]:
        return {"set": OPTIONS} if verb == "run" else {}

    def job_fields(self, args: Namespace) -> Mapping[str, Any]:
        """Raises:  UsageError: as options.job_fields."""
        return job_fields(args)

    def wrong(self, file: "JobFile") -> Iterator[tuple[str, object]]:
        from paceline.parts.frameworks import tf_config

        if file.job.tf_config not in (None, tf_config.MULTI_WORKER_MIRRORED, tf_config.PARAMETER_SERVER):
            yield "tf_config", file.job.tf_config
        if file.job.tf_config == tf_config.PARAMETER_SERVER and file.ranks_per_host != "1":
            yield "ranks_per_host", file.ranks_per_host

    def ports(self, job: "Job") -> tuple[int, ...]:
        from paceline.parts.frameworks.tf_config import wanted_ports

        return wanted_ports(job)

    def in_rank(self) -> str:
        return "parts.frameworks.in_rank"

    def on_host(self, host: Host) -> HostPart:
        from paceline.parts.frameworks.on_host import FrameworksOnHost

        return FrameworksOnHost(host)


PART = Frameworks()
