"""`paceline check --engine` and `--hosts`: the hosts that the job would get are looked at."""

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.cli.values import duration
from paceline.findings import Finding, Judgement, Severity, Verdict
from paceline.job_file import JobFile
from paceline.part import CheckPart, Elsewhere
from paceline.parts.engines.base import Engine, load
from paceline.parts.engines.cli.submission import key_and_value
from paceline.parts.engines.host_check import look_at
from paceline.parts.engines.submission import Submission
from paceline.rules.host_facts import HostsBefore, host_verdicts, hosts_not_judged

# SageMaker's API on this machine: its jobs are SageMaker's, its machine is this one.
_JOBS_OF, _MACHINES = {"sagemaker-local": "sagemaker"}, {"sagemaker-local": "local"}


class EnginesOnCheck(CheckPart):
    def elsewhere(self, args: Mapping[str, Any], environ: Mapping[str, str]) -> Elsewhere | None:
        """The hosts of `--hosts`, or of the engine.

        Raises:  UsageError E01: there is no such engine; U03: it has no such option, or the value of an option is none
        """
        options = dict(key_and_value(text) for text in args["option"])
        name = _MACHINES.get(args["engine"], args["engine"])
        if args["hosts"] is not None:
            name, options["hosts"] = "ssh", args["hosts"]
        engine = load(name, environ, options)
        wait_seconds = duration("--wait", args["wait"], example="5m", zero=True)
        if args["hosts"] is None and args["engine"] == "local":
            return None
        return Elsewhere(
            engine=_JOBS_OF.get(args["engine"], args["engine"]),
            machine=options.get("instance_type"),
            hosts=lambda file: _verdicts(engine, file, options, wait_seconds),
        )


def _verdicts(engine: Engine, file: JobFile, options: Mapping[str, str], wait_seconds: float) -> Sequence[Verdict]:
    """The checks of the hosts that the job would get, and why other hosts were not checked."""
    job = file.job
    seen = look_at(engine, Submission(file=file, hosts=job.max_hosts, engine_options=options), wait_seconds)
    refused: dict[str, list[Finding]] = {}
    for error in seen.refused:
        finding = Finding(code=error.code, severity=Severity.ERROR, what=error.what, saw=error.saw, next=error.next)
        refused.setdefault(error.code, []).append(finding)
    unseen = tuple(Verdict(code, Judgement.FIRED, tuple(findings)) for code, findings in sorted(refused.items()))
    if not seen.hosts:
        return (*unseen, *hosts_not_judged(seen.unknown or "the hosts of the job: none could be looked at"))
    count = max(job.max_hosts, len(seen.hosts) + len(seen.refused))
    ranks = int(file.ranks_per_host) if file.ranks_per_host.isdecimal() else None
    before = HostsBefore(hosts=seen.hosts, host_count=count, ranks_per_host=ranks, links=seen.links)
    return (*unseen, *host_verdicts(before))
