"""TF_CONFIG is made for the ranks, or checked where the user has set it; a parameter server runs on each host where the job asks for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from paceline.facts import Job
from paceline.part import Host, HostPart, Part

if TYPE_CHECKING:
    from paceline.job_file import JobFile


class Frameworks(Part):
    def wrong(self, file: "JobFile") -> Iterator[tuple[str, object]]:
        from paceline.parts.frameworks import tf_config

        if file.job.tf_config not in (None, tf_config.MULTI_WORKER_MIRRORED, tf_config.PARAMETER_SERVER):
            yield "tf_config", file.job.tf_config
        if file.job.tf_config == tf_config.PARAMETER_SERVER and file.ranks_per_host != "1":
            yield "ranks_per_host", file.ranks_per_host

    def ports(self, job: Job) -> tuple[int, ...]:
        from paceline.parts.frameworks.tf_config import wanted_ports

        return wanted_ports(job)

    def in_rank(self) -> str:
        return "parts.frameworks.in_rank"

    def on_host(self, host: Host) -> HostPart:
        from paceline.parts.frameworks.on_host import FrameworksOnHost

        return FrameworksOnHost(host)


PART = Frameworks()
