"""Translates the answers of DescribeTrainingJob and CloudWatch into an engine's observation of a job. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.facts import SecondaryStatus, Status
from paceline.part import Observation
from paceline.parts.sagemaker.engine.entry import RECORDING

TIME_IS_UP = 204
NEVER_ARRIVED = 201
_STOPPED_BY_HAND = 143
_EXIT_CODE = re.compile(r"exit code:? ?(?P<code>\d{1,3})", re.IGNORECASE)
_NO_CAPACITY = re.compile(r"capacity ?error|insufficient ?capacity|no capacity", re.IGNORECASE)
# "ClientError: ..." means that SageMaker refused to start the job. "AlgorithmError: ..." means that the job ran.
_REFUSED = re.compile(r"^\s*ClientError", re.IGNORECASE)
_STATUS = {"Deleting": Status.STOPPING}
_SECONDARY = {
    "LaunchingMLInstances": SecondaryStatus.STARTING,
    "PreparingTrainingStack": SecondaryStatus.STARTING,
    "DownloadingTrainingImage": SecondaryStatus.DOWNLOADING,
}
_TIME_LIMITS = (SecondaryStatus.MAX_RUNTIME_EXCEEDED, SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)


def observation(
    described: Mapping[str, Any], *, recorded_code: int | None = None, recorded_reason: str = ""
) -> Observation:
    """The state of a job. `recorded_code` and `recorded_reason`: the end according to the job's own recording, if it was copied.

    Holds:   a job that has ended has an exit code; only Completed has 0
    """
    word = str(described.get("TrainingJobStatus", Status.IN_PROGRESS))
    status = _STATUS.get(word) or Status(word)
    own = str(described.get("SecondaryStatus", ""))
    secondary = _SECONDARY.get(own) or _secondary(own)
    reason = str(described.get("FailureReason", "")) or (recorded_reason if status is Status.STOPPED else "")
    return Observation(
        status=status,
        secondary_status=secondary,
        own_word=own or word,
        reason=reason,
        exit_code=_exit_code(status, secondary, reason, recorded_code),
        nodes={host: host for host in hosts_of(described)},
        tries=max(1, sum(step.get("Status") == "Training" for step in described.get("SecondaryStatusTransitions", ()))),
    )


def lacks_capacity(reason: str) -> bool:
    """Whether AWS had no free machine of this type: another attempt, another type or another zone may help."""
    return _NO_CAPACITY.search(reason) is not None


def hosts_of(described: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the job's hosts: algo-1 ... algo-N."""
    resources = described.get("ResourceConfig", {})
    groups = resources.get("InstanceGroups") or ()
    count = sum(int(group["InstanceCount"]) for group in groups) or int(resources.get("InstanceCount", 1))
    return tuple(f"algo-{number}" for number in range(1, count + 1))


def output_prefix(described: Mapping[str, Any]) -> str:
    """The URL prefix of the job's output."""
    path = str(described["OutputDataConfig"]["S3OutputPath"]).rstrip("/")
    return f"{path}/{described['TrainingJobName']}/output/"


def in_the_recording(name: str, run_id: str) -> str | None:
    """The path in the run's recording of a file of output.tar.gz; None: the file is outside the recording, or in the contract's tree."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for index, part in enumerate(parts[:-1]):
        if part == RECORDING and parts[index + 1] == run_id:
            rest = parts[index + 2 :]
            return "/".join(rest) if rest and ".." not in rest and "ml" not in rest else None
    return None


def read_cursor(cursor: str | None) -> dict[str, str]:
    """Stream -> CloudWatch's token for the next lines."""
    return {} if cursor is None else {str(stream): str(token) for stream, token in json.loads(cursor).items()}


def host_of(stream: str) -> str:
    """The host of a log stream.

    Holds:   host_of("job/algo-2-1719393939") == "algo-2"
    """
    return re.sub(r"-\d+$", "", stream.rpartition("/")[2])


def in_order(events: Sequence[tuple[int, str, str]]) -> list[str]:
    """Lines of several hosts in order of time: (stamp, host, text) -> the host and the text. Equal stamps keep their order."""
    return [f"{host} | {text}" for _, host, text in sorted(events, key=lambda event: event[0])]


def _secondary(word: str) -> SecondaryStatus:
    try:
        return SecondaryStatus(word)
    except ValueError:
        # SageMaker has added this word later. `own_word` has it without a change.
        return SecondaryStatus.STARTING


def _exit_code(status: Status, secondary: SecondaryStatus, reason: str, recorded: int | None) -> int | None:
    match status:
        case Status.COMPLETED:
            return 0
        case Status.STOPPED:
            return TIME_IS_UP if secondary in _TIME_LIMITS else recorded or _STOPPED_BY_HAND
        case Status.FAILED:
            return recorded or _code_in(reason)
    return None


def _code_in(reason: str) -> int:
    if lacks_capacity(reason):
        return NEVER_ARRIVED
    found = _EXIT_CODE.findall(reason)
    if found:
        return int(found[-1]) or 1
    return 2 if _REFUSED.match(reason) else 1
