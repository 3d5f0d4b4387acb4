"""Hyperparameters on their way to a script: command line or file -> hyperparameters.json -> argv and SM_HP_*.

SageMaker carries every value as a string. Its SDK v2 and its SDK v3 write and read that string differently, and scripts
depend on the difference; both are kept exactly, as the profiles "v2" and "v3".

    user's values --to_wire--> hyperparameters.json --from_wire--> what the container sees --> argv, SM_HPS, SM_HP_<KEY>
"""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import UsageError

RESERVED_PREFIX = "sagemaker_"
# Two names without the prefix that the v2 toolkit keeps from the script as well.
RESERVED_NAMES = ("default_user_module_name", "_tuning_objective_metric")
# Reserved names that the toolkit reads itself; the other sagemaker_* names are what SM_FRAMEWORK_PARAMS shows.
TOOLKIT_NAMES = frozenset(
    (
        *RESERVED_NAMES,
        "sagemaker_program",
        "sagemaker_submit_directory",
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_region",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "sagemaker_s3_output",
    )
)


def parse_hyperparameter(text: str) -> tuple[str, Any]:
    """`key=value` of `--hp`: a value that is valid JSON keeps its JSON type, any other value is a string.

    `lr=0.1` is a number, `flag=true` a boolean, `none=null` None, `sizes=[1,2]` a list, `name=it's` a string, and
    `version='"1.10"'` (a JSON string) a string that looks like a number. The value may itself contain `=`.

    Raises:  UsageError U07: no `=`, an empty key, or a NUL character
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(
            "U07",
            f"--hp {text!r} is not key=value",
            saw="no '=' in it" if not equals else "nothing before '='",
            next=f"--hp {_meant(text)} instead of --hp {shlex.quote(text)}",
        )
    decoded = _json_or_text(value)
    _check_name_and_value(key, decoded, source=f"--hp {text!r}")
    return key, decoded


def read_hyperparameters(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file, in the file's order; values keep their JSON type.

    Raises:  UsageError U07: the file cannot be read, is not JSON, or is not one JSON object
    """
    named = f"--set hyperparameters={path}"
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError("U07", f"{named} cannot be read", saw=str(error.strerror), next=f"ls -l {path}") from error
    except ValueError as error:
        saw = f"not JSON: {error}"
        raise UsageError("U07", f"{named} is not JSON", saw=saw, next=f"python -m json.tool {path}") from error
    if not isinstance(values, dict):
        raise UsageError(
            "U07",
            f"{named} holds no hyperparameters",
            saw=f"a JSON {type(values).__name__}, expected an object",
            next='write {"lr": 0.1, "name": "bert base"}',
        )
    for key, value in values.items():
        _check_name_and_value(key, value, source=named)
    return values


def to_wire(values: Mapping[str, Any], profile: str) -> dict[str, str]:
    """The content of hyperparameters.json: every value is a string.

    Holds:   profile v2: from_wire(to_wire(values, "v2")) == values for JSON values
    """
    if profile == "v3":
        return {key: _v3_text(value) for key, value in values.items()}
    return {key: json.dumps(value) for key, value in values.items()}


def from_wire(wire: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a container sees them: each string decoded as JSON, or kept if it is not JSON."""
    return {key: _decoded(value) for key, value in wire.items()}


def as_delivered(values: Mapping[str, Any], profile: str) -> dict[str, Any]:
    """The user's values after the way to the container and back; in v3 the string "5" arrives as the number 5."""
    return from_wire(to_wire(values, profile))


def for_script(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without the reserved names, which SageMaker keeps from the script."""
    return {key: value for key, value in values.items() if not _is_reserved(key)}


def framework_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """The reserved values that SM_FRAMEWORK_PARAMS shows: how a library finds out which distribution was asked for."""
    return {key: value for key, value in values.items() if _is_reserved(key) and key not in TOOLKIT_NAMES}


def to_arguments(values: Mapping[str, Any], profile: str) -> list[str]:
    """The script's argv, one name and one value per hyperparameter; never a shell string.

    v2 sorts by key and writes Python's own text (`True`, `[1, 'a']`, `b=1,c=x` for a dict, nothing for None), with one
    dash before a key of one letter. v3 keeps the order of the file and writes JSON.
    """
    script = for_script(values)
    if profile == "v3":
        return [word for key, value in script.items() for word in (f"--{key}", _v3_text(_decoded(value)))]
    return [word for key in sorted(script) for word in (_v2_option(key), _v2_argument(script[key]))]


def to_environment(values: Mapping[str, Any], profile: str) -> dict[str, str]:
    """SM_HPS, and SM_HP_<KEY> in each SDK's spelling and in one that a shell accepts.

    v2 keeps the key as it is (`SM_HP_K-V`); execve passes that on, but no shell can name it, so `SM_HP_K_V` is there
    too. Where two keys differ only in such a character, the exact spelling wins.
    """
    script = for_script(values)
    encode = _v3_text if profile == "v3" else encode_variable
    variables = {f"SM_HP_{legal_name(key)}": encode(value) for key, value in script.items()}
    for key, value in script.items():
        spelling = key.replace("-", "_") if profile == "v3" else key
        variables[f"SM_HP_{spelling.upper()}"] = encode(value)
    variables["SM_HPS"] = encode(script)
    return variables


def encode_variable(value: Any) -> str:
    """The v2 toolkit's text of a value in a variable: strings as they are, None empty, else compact sorted JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def legal_name(key: str) -> str:
    """The part of a variable's name for `key`: upper case, with `_` for characters that a shell does not allow.

    Holds:   legal_name("train-data") == "TRAIN_DATA"
    """
    return re.sub(r"[^A-Z0-9_]", "_", key.upper())


def _is_reserved(key: str) -> bool:
    return key.startswith(RESERVED_PREFIX) or key in RESERVED_NAMES


def _v2_option(key: str) -> str:
    return f"--{key}" if len(key) > 1 else f"-{key}"


def _v2_argument(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return str(value)


def _v3_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _meant(text: str) -> str:
    """A pair that was written with a colon, with `=`; else the name with a place for its value."""
    key, colon, value = text.partition(":")
    if colon and key.strip() and value.strip() and "=" not in text:
        return shlex.quote(f"{key.strip()}={value.strip()}")
    return f"{text.partition('=')[0].strip() or 'key'}=VALUE"


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text


def _refuse_constant(name: str) -> Any:
    # NaN and Infinity are Python's, not JSON's: `--hp name=NaN` stays the text that the user typed.
    raise ValueError(name)


def _check_name_and_value(key: str, value: Any, *, source: str) -> None:
    for part, forbidden in ((key, "=\0"), (value if isinstance(value, str) else "", "\0")):
        for character in forbidden:
            if character in part:
                raise UsageError(
                    "U07",
                    f"{source}: hyperparameter {key!r} cannot be passed to a process",
                    saw=f"the character {character!r} in it",
                    next="rename the key, or put such a value in a channel's file",
                )
    # 128 KiB is the longest argument that Linux starts a process with (MAX_ARG_STRLEN).
    if (length := len(json.dumps(value))) >= 128 * 1024 - len(key) - len("SM_HP_="):
        raise UsageError(
            "U07",
            f"{source}: hyperparameter {key!r} is too long to be passed to a process",
            saw=f"{length} characters; Linux takes at most 131,071 bytes in one argument",
            next="put it in a file of a channel",
        )
    if not key:
        raise UsageError("U07", f"{source}: a hyperparameter without a name", saw='""', next="give it a name")
