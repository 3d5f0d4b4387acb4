"""What is asked and what is answered, as values."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
_MOST_PARAMETERS = 32
# A shorter body is not worth the work.
_LEAST_PACKED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request."""

    method: str
    """GET, POST or something else, as it was sent."""
    target: str
    """Path and query, as they were sent."""
    headers: tuple[tuple[str, str], ...] = ()
    """Names and values, as they were sent."""
    body: bytes = b""
    """The body."""

    def header(self, name: str) -> str | None:
        """The value of a header, whatever the case of its name; None: it is missing, or there are several."""
        values = [value.strip() for other, value in self.headers if other.lower() == name]
        return values[0] if len(values) == 1 else None

    def has(self, name: str) -> bool:
        """Whether there is such a header."""
        return any(other.lower() == name for other, _ in self.headers)

    @property
    def path(self) -> tuple[str, ...] | None:
        """The parts of the path between slashes; None: this is no path."""
        path = self.target.partition("?")[0]
        if not path.startswith("/") or "\\" in path or "\0" in path:
            return None
        return tuple(unquote(part, errors="replace") for part in path[1:].split("/")) if path != "/" else ()

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters; of several with one name the last."""
        query = self.target.partition("?")[2]
        try:
            return dict(parse_qsl(query, keep_blank_values=True, errors="replace", max_num_fields=_MOST_PARAMETERS))
        except ValueError:
            return {}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One answer."""

    status: int
    """HTTP's number."""
    body: bytes = b""
    """The body."""
    media_type: str = TEXT
    """What the body is."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers."""

    def packed_for(self, request: HttpRequest) -> "HttpResponse":
        """The same, compressed if that pays and the other side takes it."""
        takes = "gzip" in (request.header("accept-encoding") or "")
        is_packed = any(name == "Content-Encoding" for name, _ in self.headers)
        if not takes or is_packed or len(self.body) < _LEAST_PACKED_BYTES:
            return self
        headers = (*self.headers, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
        return replace(self, body=gzip.compress(self.body, compresslevel=1, mtime=0), headers=headers)


def refused(status: HTTPStatus, why: str, *headers: tuple[str, str]) -> HttpResponse:
    """A refusal, with one line of text."""
    return HttpResponse(int(status), f"{why}\n".encode(), TEXT, headers)


def as_json(value: Any) -> HttpResponse:
    """Plain data. Half of a surrogate pair in it stays an escape."""
    return HttpResponse(200, json.dumps(value, separators=(",", ":")).encode(), JSON)
