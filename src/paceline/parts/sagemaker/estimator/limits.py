"""The limits of CreateTrainingJob. They hold on every engine, so that SageMaker would accept every job that runs here."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from paceline.contract.hyperparameters import RESERVED_PREFIX
from paceline.errors import UsageError
from paceline.parts.sagemaker.estimator.arguments import shown

MOST_HYPERPARAMETERS, LONGEST_KEY = 100, 256
MOST_VARIABLES, LONGEST_VARIABLE = 100, 512
MOST_METRICS, LONGEST_REGEX = 40, 500
LONGEST_NAME = 63
LONGEST_RUN_SECONDS = 28 * 24 * 3600
_JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Variables that the agent sets. If a job overwrites a rank's identity, that rank trains another model than its peers.
_OWN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


def check_hyperparameters(values: object) -> dict[str, Any]:
    """The user's hyperparameters; JSON can encode every value.

    Raises:  UsageError U07: not a dict, too many, a key that is not a valid name, a reserved key, or a value that JSON cannot encode
    """
    for key, value in (table := _table("U07", "hyperparameters", values, MOST_HYPERPARAMETERS)).items():
        named = f"hyperparameters: {shown(key)}"
        if not isinstance(key, str) or not key or len(key) > LONGEST_KEY or "=" in key or "\0" in key:
            saw = f"{type(key).__name__} of {len(str(key))} characters; 1 to {LONGEST_KEY} characters, no '='"
            raise UsageError("U07", f"{named} is not a name", saw=saw, next="rename the key")
        if key.startswith(RESERVED_PREFIX):
            saw = f"{key}; SageMaker keeps {RESERVED_PREFIX}* from the script"
            raise UsageError(
                "U07", f"{named} is reserved", saw=saw, next=f"write {key.removeprefix(RESERVED_PREFIX)}=..."
            )
        try:
            text = json.dumps(value)
        except (TypeError, ValueError) as error:
            raise UsageError(
                "U07", f"{named} cannot be written as JSON", saw=str(error), next=f"str(...) around the value of {key}"
            ) from error
        if "\0" in str(value) or len(text) > 128 * 1024 - len(key) - 16:
            saw = f"{len(text)} characters; at most 131,071 bytes, none of them NUL"
            raise UsageError(
                "U07", f"{named} cannot be passed to a process", saw=saw, next="put it in a file of a channel"
            )
    return dict(table)


def check_environment(values: object) -> dict[str, str]:
    """The environment variables of every rank. An error never shows values, because they may be secrets.

    Raises:  UsageError U31: not a dict, too many, too long, not text, or a name that tells a process its rank
    """
    for name, value in (table := _table("U31", "environment", values, MOST_VARIABLES)).items():
        named = f"environment: {shown(name)}"
        if not isinstance(name, str) or not isinstance(value, str):
            saw = f"{type(name).__name__}: {type(value).__name__}; both are text"
            raise UsageError("U31", f"{named} is not text", saw=saw, next=f"environment={{{str(name)!r}: str(...)}}")
        if (
            not _VARIABLE.fullmatch(name)
            or len(name) > LONGEST_VARIABLE
            or len(value) > LONGEST_VARIABLE
            or "\0" in value
        ):
            saw = f"a name of {len(name)}, a value of {len(value)} characters; letters, digits and _, at most {LONGEST_VARIABLE} each"
            raise UsageError("U31", f"{named} cannot be a variable", saw=saw, next="put it in a file of a channel")
        if name in _OWN_VARIABLES or name.startswith("PACELINE_"):
            raise UsageError(
                "U31", f"{named} is set by the agent in each rank", saw=name, next=f"leave {name} out of environment"
            )
    return dict(table)


def check_metric_definitions(values: object) -> tuple[tuple[str, str], ...]:
    """(name, regular expression) of the metrics that are read from the logs.

    Raises:  UsageError U31: not a list of Name and Regex, too many, too long, or no regular expression with a group
    """
    if values is None:
        return ()
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise UsageError("U31", "metric_definitions is a list", saw=shown(values), next=_METRIC_EXAMPLE)
    if len(values) > MOST_METRICS:
        raise UsageError(
            "U31",
            f"metric_definitions has more than {MOST_METRICS}",
            saw=str(len(values)),
            next=f"keep {MOST_METRICS} of them",
        )
    return tuple(_metric(value) for value in values)


_METRIC_EXAMPLE = "metric_definitions=[{'Name': 'loss', 'Regex': 'loss=([0-9.]+)'}]"


def _metric(value: object) -> tuple[str, str]:
    if (
        not isinstance(value, Mapping)
        or set(value) != {"Name", "Regex"}
        or not all(isinstance(part, str) for part in value.values())
    ):
        raise UsageError("U31", "a metric is a dict of Name and Regex", saw=shown(value), next=_METRIC_EXAMPLE)
    name, regex = value["Name"], value["Regex"]
    if not 1 <= len(name) <= 255 or not 1 <= len(regex) <= LONGEST_REGEX:
        saw = f"a name of {len(name)}, a regex of {len(regex)} characters; at most 255 and {LONGEST_REGEX}"
        raise UsageError("U31", f"metric {shown(name)} is too long or empty", saw=saw, next="shorten it")
    try:
        groups = re.compile(regex).groups
    except re.error as error:
        raise UsageError(
            "U31",
            f"the regular expression of metric {name} cannot be read",
            saw=f"{regex}: {error}",
            next=_METRIC_EXAMPLE,
        ) from error
    if groups == 0:
        raise UsageError(
            "U31",
            f"the regular expression of metric {name} has no group for the number",
            saw=regex,
            next=_METRIC_EXAMPLE,
        )
    return name, regex


def check_job_name(name: object, argument: str = "job_name") -> str:
    """A job name that SageMaker accepts.

    Raises:  UsageError U31: longer than 63 characters, or with characters other than letters, digits and inner dashes
    """
    if isinstance(name, str) and _JOB_NAME.fullmatch(name) and len(name) <= LONGEST_NAME:
        return name
    legal = re.sub(r"[^a-zA-Z0-9]+", "-", str(name)).strip("-")[:LONGEST_NAME].strip("-") or "training"
    saw = f"{shown(name)}; letters, digits and inner dashes, at most {LONGEST_NAME} characters"
    raise UsageError("U31", f"{argument} is no job name", saw=saw, next=f"{argument}={legal!r}")


def check_times(max_run: object, max_wait: object, spot: object, attempts: object) -> float:
    """The time limit in seconds.

    Raises:  UsageError U31: not a number of seconds, more than 28 days, a max_wait without spot or below max_run, more than 30 retries
    """
    seconds = _seconds("max_run", max_run)
    if max_wait is not None:
        if not spot:
            raise UsageError(
                "U31",
                "max_wait is the limit of waiting for spare capacity",
                saw=f"max_wait={max_wait}, use_spot_instances={spot}",
                next="use_spot_instances=True, or leave max_wait out",
            )
        if _seconds("max_wait", max_wait) < seconds:
            raise UsageError(
                "U31",
                "max_wait includes the training and cannot be below max_run",
                saw=f"max_wait={max_wait}, max_run={max_run}",
                next=f"max_wait={max_run}",
            )
    if attempts is not None and not (_is_number(attempts) and 1 <= attempts <= 30 and attempts == int(attempts)):
        raise UsageError(
            "U31", "max_retry_attempts is a number from 1 to 30", saw=shown(attempts), next="max_retry_attempts=3"
        )
    return seconds


def check_network(subnets: object, groups: object) -> None:
    """Raises:  UsageError U31: one without the other, not lists, or more than SageMaker accepts."""
    if (subnets is None) != (groups is None):
        given, other = ("subnets", "security_group_ids") if groups is None else ("security_group_ids", "subnets")
        raise UsageError(
            "U31",
            "subnets and security_group_ids belong together",
            saw=f"{given} alone",
            next=f"give {other}=[...] as well",
        )
    for name, value, most in (("subnets", subnets, 16), ("security_group_ids", groups, 5)):
        if value is not None and not (
            isinstance(value, list | tuple) and 1 <= len(value) <= most and all(isinstance(one, str) for one in value)
        ):
            raise UsageError("U31", f"{name} is a list of 1 to {most} ids", saw=shown(value), next=f"{name}=['...']")


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _seconds(name: str, value: object) -> float:
    if _is_number(value) and 1 <= value <= LONGEST_RUN_SECONDS:
        return float(value)
    raise UsageError(
        "U31",
        f"{name} is a number of seconds",
        saw=f"{shown(value)}; from 1 to {LONGEST_RUN_SECONDS} (28 days)",
        next=f"{name}=86400",
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table(code: str, name: str, values: object, most: int) -> Mapping[Any, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise UsageError(
            code,
            f"{name} is a dict",
            # A value of a variable may be a secret.
            saw=type(values).__name__ if name == "environment" else shown(values),
            next=f"{name}={{'KEY': 'value'}}",
        )
    if len(values) > most:
        raise UsageError(
            code, f"{name} has more than {most} entries", saw=str(len(values)), next="put them in a file of a channel"
        )
    return values
