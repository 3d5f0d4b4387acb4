"""The supported operations of CloudWatch Logs: the one log group of training jobs, its streams, their lines."""

import base64
import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from paceline.parts.sagemaker.local.errors import ApiError
from paceline.parts.sagemaker.local.job_store import JobStore
from paceline.parts.sagemaker.local.log_streams import (
    GROUP,
    LogStream,
    StreamLine,
    fitting,
    matcher,
    matches,
    page,
    stream_facts,
)
from paceline.parts.sagemaker.local.service_model import place

_MOST_EVENTS = 10_000
_MOST_STREAMS = 50
_ACCOUNT = "000000000000"


class LogsApi:
    """Operations that describe groups and streams, and get and filter events."""

    def __init__(self, shelf: JobStore, *, region: str) -> None:
        self._shelf = shelf
        self._arn = f"arn:aws:logs:{region}:{_ACCOUNT}:log-group:{GROUP}"

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
        """Name of the operation in the service model -> the function that does it."""
        return {
            "DescribeLogGroups": self.groups,
            "DescribeLogStreams": self.streams,
            "GetLogEvents": self.events,
            "FilterLogEvents": self.filtered,
        }

    def groups(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The log group, if it has a stream and the request asks for it."""
        streams = self._shelf.streams()
        wanted = (
            GROUP.startswith(request.get("logGroupNamePrefix", "")) and request.get("logGroupNamePattern", "") in GROUP
        )
        if not streams or not wanted:
            return {"logGroups": []}
        first = min((times[0] for stream in streams if (times := stream.times())), default=0)
        facts = {"logGroupName": GROUP, "arn": f"{self._arn}:*", "creationTime": first, "metricFilterCount": 0}
        return {"logGroups": [facts | {"storedBytes": 0, "logGroupArn": self._arn}]}

    def streams(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of streams, in the order of names or of their last events.

        Raises:  ApiError ResourceNotFoundException, InvalidParameterException
        """
        streams = self._in_group(request)
        prefix, by_time = request.get("logStreamNamePrefix", ""), request.get("orderBy") == "LastEventTime"
        if prefix and by_time:
            raise _unusable("Cannot order by LastEventTime with a logStreamNamePrefix.")
        found = [stream for stream in streams if stream.name.startswith(prefix)]
        if by_time:
            found.sort(key=lambda stream: (stream.times() or (0, 0))[1])
        if request.get("descending"):
            found.reverse()
        start = _place(request.get("nextToken"))
        stop = start + request.get("limit", _MOST_STREAMS)
        return {
            "logStreams": [stream_facts(stream, self._arn) for stream in found[start:stop]],
            "nextToken": str(stop) if stop < len(found) else None,
        }

    def events(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of a stream's lines, with a token for each direction. At an end, the token stays the same.

        Raises:  ApiError ResourceNotFoundException, InvalidParameterException
        """
        named = {stream.name: stream for stream in self._in_group(request)}
        stream = named.get(request["logStreamName"])
        if stream is None:
            raise ApiError("ResourceNotFoundException", "The specified log stream does not exist.")
        numbers = stream.between(request.get("startTime"), request.get("endTime"))
        token, from_head = request.get("nextToken"), bool(request.get("startFromHead"))
        try:
            shown = page(numbers, limit=request.get("limit", _MOST_EVENTS), token=token, from_head=from_head)
        except ValueError as error:
            raise _unusable("The specified nextToken is invalid.") from error
        backwards = token.startswith("b/") if token is not None else not from_head
        lines = fitting(stream.read(shown), newest=backwards)
        first = shown.stop - len(lines) if backwards else shown.start
        return {
            "events": [_event(line) for line in lines],
            "nextForwardToken": f"f/{first + len(lines)}",
            "nextBackwardToken": f"b/{first}",
        }

    def filtered(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One page of lines of many streams, in the order of time.

        Raises:  ApiError ResourceNotFoundException, InvalidParameterException
        """
        streams = self._in_group(request)
        names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix", "")
        if names and prefix:
            raise _unusable("logStreamNames and logStreamNamePrefix cannot be given together.")
        chosen = [one for one in streams if one.name.startswith(prefix) and (not names or one.name in names)]
        try:
            wanted = matcher(request.get("filterPattern", ""))
        except ValueError as error:
            raise _unusable("Invalid filter pattern: only unstructured terms are served here.") from error
        places = _places(request.get("nextToken"))
        limit = request.get("limit", _MOST_EVENTS)
        events: list[dict[str, Any]] = []
        more = False
        for stream, number, line in _merged(chosen, places, request):
            if len(events) == limit:
                more = True
                break
            places[stream.name] = number + 1
            if matches(line.text, wanted):
                events.append(_event(line) | {"logStreamName": stream.name, "eventId": f"{stream.name}:{number}"})
        token = base64.urlsafe_b64encode(json.dumps(places).encode()).decode() if more else None
        return {"events": events, "searchedLogStreams": [], "nextToken": token}

    def _in_group(self, request: Mapping[str, Any]) -> Sequence[LogStream]:
        name = (
            request.get("logGroupName") or request.get("logGroupIdentifier", "").removesuffix(":*").rpartition(":")[2]
        )
        streams = self._shelf.streams()
        if name != GROUP or not streams:
            raise ApiError("ResourceNotFoundException", "The specified log group does not exist.")
        return list(streams)


def _merged(
    streams: Sequence[LogStream], places: Mapping[str, int], request: Mapping[str, Any]
) -> Iterator[tuple[LogStream, int, StreamLine]]:
    def of_one(order: int, stream: LogStream) -> Iterator[tuple[int, int, int, LogStream, StreamLine]]:
        numbers = stream.between(request.get("startTime"), request.get("endTime"))
        first = max(numbers.start, places.get(stream.name, 0))
        for start in range(first, numbers.stop, _MOST_EVENTS):
            part = range(start, min(start + _MOST_EVENTS, numbers.stop))
            for number, line in zip(part, stream.read(part), strict=True):
                yield line.time_ms, order, number, stream, line

    for _, _, number, stream, line in heapq.merge(
        *(of_one(*one) for one in enumerate(streams)), key=lambda one: one[:3]
    ):
        yield stream, number, line


def _places(token: str | None) -> dict[str, int]:
    if token is None:
        return {}
    try:
        return {str(name): int(place) for name, place in json.loads(base64.urlsafe_b64decode(token)).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise _unusable("The specified nextToken is invalid.") from error


def _place(token: str | None) -> int:
    try:
        return place(token)
    except ValueError as error:
        raise _unusable("The specified nextToken is invalid.") from error


def _event(line: StreamLine) -> dict[str, Any]:
    return {"timestamp": line.time_ms, "ingestionTime": line.time_ms, "message": line.text}


def _unusable(message: str) -> ApiError:
    return ApiError("InvalidParameterException", message)
