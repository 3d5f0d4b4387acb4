"""Who may have what: the names under which the server may be asked, the token for every byte of a recording, and what may be done."""

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from paceline.parts.web.serve.exchange import HttpRequest, HttpResponse, refused

OWN_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?\Z")
# No script and no style of a stranger runs, nothing is asked of another server, no other page holds this one in a frame.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


@dataclass(frozen=True, slots=True)
class Access:
    """What this server asks of a request."""

    token: str
    """The secret that every byte of a recording needs."""
    metrics_token: str | None = None
    """A further secret that gives the metrics and nothing else."""
    hosts: frozenset[str] = frozenset()
    """Further names under which the server may be asked, such as that of a proxy."""
    may_stop: bool = False
    """Whether a run may be stopped and its ranks looked at."""

    def refusal_of_stranger(self, request: HttpRequest) -> HttpResponse | None:
        """Why nothing at all is answered: another server's name, another server's page, a method that is not known here.

        Holds:   a page of another site cannot ask this server, neither under a name of its own nor under this server's
        """
        if self._name(request.header("host")) is None:
            return refused(HTTPStatus.FORBIDDEN, "this server is not asked under that name: see --allow-host")
        if request.has("origin") and not self._is_own_page(request.header("origin")):
            return refused(HTTPStatus.FORBIDDEN, "a page of another site may not ask this server")
        if request.method not in ("GET", "POST"):
            return refused(HTTPStatus.NOT_IMPLEMENTED, "only GET and POST are known here")
        return None

    def has_token(self, request: HttpRequest) -> bool:
        """Whether the request may see recordings."""
        return _is_one_of(request, [self.token])

    def may_scrape(self, request: HttpRequest) -> bool:
        """Whether the request may see metrics."""
        return _is_one_of(request, [self.token, *([self.metrics_token] if self.metrics_token else [])])

    def _name(self, host: str | None) -> str | None:
        found = _HOST.match((host or "").lower())
        return found["name"] if found and found["name"] in OWN_NAMES | self.hosts else None

    def _is_own_page(self, origin: str | None) -> bool:
        try:
            parts = urlsplit(origin or "")
        except ValueError:
            return False
        is_origin = parts.scheme in ("http", "https") and not (parts.path or parts.query or parts.fragment)
        return is_origin and self._name(parts.netloc) is not None


def without_token() -> HttpResponse:
    """The answer to a request without the token."""
    return refused(
        HTTPStatus.UNAUTHORIZED,
        "this needs the token: open the address that `paceline web` printed",
        ("WWW-Authenticate", "Bearer"),
    )


def _is_one_of(request: HttpRequest, tokens: Iterable[str]) -> bool:
    scheme, _, given = (request.header("authorization") or "").partition(" ")
    sent = given.strip().encode("utf-8", "surrogateescape")
    # Every token is compared, and each in constant time.
    equal = [hmac.compare_digest(sent, token.encode()) for token in tokens]
    return scheme.lower() == "bearer" and any(equal)
