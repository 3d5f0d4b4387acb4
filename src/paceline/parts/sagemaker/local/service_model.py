"""Botocore's models of SageMaker and CloudWatch Logs: they define valid requests and the form of answers.

The limits, patterns and enumerations come from the installed botocore. Two values are added: `local` as an instance type, and file://
URLs in place of S3 URLs.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from paceline.parts.sagemaker.local.errors import ApiError, constraints_failed

SAGEMAKER, LOGS = "sagemaker", "logs"
PREFIXES = {"SageMaker": SAGEMAKER, "Logs_20140328": LOGS}
LOCAL_TYPE = "local"
_S3_URL = "(https|s3)://"
_FILE_URL = "file:///"
_MANY = 20
_LONGEST_PLACE = 9


@functools.cache
def service(name: str) -> Any:
    """Botocore's model of one service. It comes from botocore's own files; no request goes to AWS."""
    import botocore.session

    return botocore.session.get_session().get_service_model(name)


def operation_of(target: str, served: Mapping[str, frozenset[str]]) -> tuple[str, str]:
    """The service and the operation that an X-Amz-Target names.

    Raises:  ApiError UnknownOperationException: not among `served` (service -> operations)
    """
    prefix, _, operation = target.partition(".")
    name = PREFIXES.get(prefix)
    if name is None or operation not in served[name]:
        known = ", ".join(sorted(operation for operations in served.values() for operation in operations))
        what = f"{target} is not served here" if target else "the header X-Amz-Target is missing"
        raise ApiError("UnknownOperationException", f"{what}; paceline sagemaker-local serves {known}")
    return name, operation


def place(token: str | None) -> int:
    """The start of the page for a token; 0 without a token.

    Raises:  ValueError: not one of this server's tokens
    """
    if token is not None and not (token.isdecimal() and len(token) <= _LONGEST_PLACE):
        raise ValueError(token)
    return int(token or 0)


def checked(name: str, operation: str, request: Any) -> dict[str, Any]:
    """Check that the request has the shape, lengths, patterns and enumerated values of the model, and return it.

    Raises:  ApiError SerializationException: a value has another type; ValidationException or
             InvalidParameterException: a constraint is violated, or a member is unknown
    """
    from botocore.validate import ParamValidator

    shape = service(name).operation_model(operation).input_shape
    if not isinstance(request, dict):
        raise ApiError("SerializationException", "Start of structure or map found where not expected.")
    try:
        said = ParamValidator().validate(request, shape).generate_report().splitlines()
    except RuntimeError as error:
        # Botocore raises this for a time that does not exist in the calendar.
        raise ApiError("SerializationException", str(error)) from error
    if mistyped := [line for line in said if line.startswith("Invalid type")]:
        raise ApiError("SerializationException", "; ".join(mistyped[:_MANY]))
    # Botocore's messages on lengths and missing members are replaced below by the service's own wording.
    told_below = ("Missing required", "Invalid length", "Invalid range", "Invalid value")
    findings = [*_missed(shape, request, ""), *(line for line in said if not line.startswith(told_below))]
    if findings:
        refused = constraints_failed(findings[:_MANY])
        raise refused if name == SAGEMAKER else ApiError("InvalidParameterException", refused.message)
    return request


def written(name: str, operation: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as JSON values of the model: only its members, timestamps as epoch seconds, without None values.

    Raises:  KeyError: the answer has a member that the model does not have
    """
    shape = service(name).operation_model(operation).output_shape
    return {} if shape is None else dict(_written(shape, answer))


def _written(shape: Any, value: Any) -> Any:
    match shape.type_name:
        case "structure":
            kept = {key: item for key, item in value.items() if item is not None}
            return {key: _written(shape.members[key], item) for key, item in kept.items()}
        case "list":
            return [_written(shape.member, item) for item in value]
        case "map":
            return {key: _written(shape.value, item) for key, item in value.items()}
        case "timestamp" if isinstance(value, datetime):
            return value.timestamp()
    return value


def _missed(shape: Any, value: Any, path: str) -> Iterator[str]:
    match shape.type_name:
        case "structure":
            yield from _missed_members(shape, value, path)
        case "list":
            yield from _missed_size(shape, len(value), "length", value, path)
            for number, item in enumerate(value, 1):
                yield from _missed(shape.member, item, f"{path}.{number}.member")
        case "map":
            yield from _missed_size(shape, len(value), "length", value, path)
            for key, item in value.items():
                yield from _missed(shape.key, key, path)
                yield from _missed(shape.value, item, f"{path}.{key}.member")
        case "string":
            yield from _missed_text(shape, value, path)
        case "integer" | "long" | "float" | "double":
            yield from _missed_size(shape, value, "value", value, path)


def _missed_members(shape: Any, value: Mapping[str, Any], path: str) -> Iterator[str]:
    for required in shape.required_members:
        if required not in value:
            at = _joined(path, required)
            yield f"Value null at '{at}' failed to satisfy constraint: Member must not be null"
    for key, item in value.items():
        if key in shape.members:
            yield from _missed(shape.members[key], item, _joined(path, key))


def _missed_text(shape: Any, text: str, path: str) -> Iterator[str]:
    yield from _missed_size(shape, len(text), "length", text, path)
    pattern = shape.metadata.get("pattern")
    if (
        pattern
        and not _pattern(pattern).fullmatch(text)
        and not (pattern.startswith(_S3_URL) and text.startswith(_FILE_URL))
    ):
        yield _said(path, text, f"satisfy regular expression pattern: {pattern}")
    if shape.enum and text not in shape.enum and not (shape.name == "TrainingInstanceType" and text == LOCAL_TYPE):
        yield _said(path, text, f"satisfy enum value set: [{', '.join(shape.enum)}]")


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of the model in Python's syntax. The model's syntax is Java's: letters, digits and spaces of every script."""
    for java, python in ((r"\p{L}", r"\w"), (r"\p{N}", r"\d"), (r"\p{Z}", r"\s"), (r"\p{Alnum}", "a-zA-Z0-9")):
        text = text.replace(java, python)
    return re.compile(text)


def _missed_size(shape: Any, size: float, noun: str, value: Any, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield _said(path, value, f"have {noun} greater than or equal to {least}")
    if most is not None and size > most:
        yield _said(path, value, f"have {noun} less than or equal to {most}")


def _said(path: str, value: Any, must: str) -> str:
    text = str(value)
    # Values of maps may be secrets. So a list or a map that is too long is described by its name only.
    shown = f"'{text}'" if isinstance(value, str | int | float) and len(text) <= 200 else f"of {path.split('.')[-1]}"
    return f"Value {shown} at '{path}' failed to satisfy constraint: Member must {must}"


def _joined(path: str, member: str) -> str:
    name = member[:1].lower() + member[1:]
    return f"{path}.{name}" if path else name
