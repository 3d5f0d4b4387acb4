"""The application: a request in, an answer out. Runs and ranks are looked up in lists, so no path comes from an address."""

import contextlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paceline.errors import NotEnoughEvidence, PacelineError, UsageError
from paceline.facts import Status
from paceline.parts.web.serve.access import Access, without_token
from paceline.parts.web.serve.exchange import HTML, HttpRequest, HttpResponse, as_json, refused
from paceline.parts.web.serve.live_run import HTML_PART, LiveRun, Parts, Record, since_facts
from paceline.parts.web.serve.log_search import Search, found_lines
from paceline.parts.web.serve.run_list import MOST_ROWS, RunList, Wish
from paceline.parts.web.views.metrics import Metric, metrics_text
from paceline.parts.web.views.runs_page import runs_html
from paceline.recording.logs import LogChoice
from paceline.recording.rank_sets import parse_ranks
from paceline.recording.runs import runs_root
from paceline.views.error import error_json
from paceline.views.ps import ListedRun
from paceline.views.report.assets import script, style_sheet
from paceline.views.report.markup import Markup, element

# Runs whose pages are kept for the next question.
_MOST_LIVE = 8
_MOST_SCRAPED = 16
_MOST_LINES = 5000
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """What reads recordings, asks agents and asks engines. Each may raise a PacelineError, which becomes the answer."""

    record: Record
    """What the page of a run is made of."""
    listed: Callable[[Path], ListedRun]
    """A run as the list shows it."""
    directories: Callable[[Path], Sequence[Path]]
    """The recordings of the run whose directory this is."""
    ask_engine: Callable[[Path], str]
    """Have an engine asked about a submitted run, soon. Returns why that failed the last time, or ""."""
    rank: Callable[[Sequence[Path], int], str]
    """The drawer of a rank as HTML."""
    metrics: Callable[..., Sequence[Metric]]
    """`metrics(directories, read, ranks=)`: the metrics of a run, with so many of its slowest ranks; None: all ranks."""
    trace: Callable[[Sequence[Path], frozenset[int] | None], bytes]
    """The timeline of a run, of these ranks."""
    compare: Callable[[Path, Path], str]
    """Two runs as HTML."""
    look: Callable[[Sequence[Path], frozenset[int] | None], str]
    """The stacks of these ranks now, as text."""
    stop: Callable[[Path], str]
    """Tell a run to end; returns what happens now."""


@dataclass(slots=True)
class App:
    """Everything that this server answers."""

    access: Access
    """Who may have what."""
    runs: RunList
    """The runs that can be found."""
    readers: Readers
    """What reads them."""
    folders: Sequence[str] = ()
    """Where runs are looked for, in words."""
    named: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """Id -> directories of the runs that the command line named."""
    last_asked: float = field(default_factory=time.monotonic)
    """When somebody with the token asked last."""
    _live: OrderedDict[tuple[Path, ...], LiveRun] = field(default_factory=OrderedDict)
    _answers: OrderedDict[tuple[str, ...], HttpResponse] = field(default_factory=OrderedDict)
    _lists: OrderedDict[Wish, Parts] = field(default_factory=OrderedDict)
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request.

        Holds:   without the token no answer has a byte of a recording; no request changes a run unless `access.may_stop`
        """
        refusal = self.access.refusal_of_stranger(request)
        if refusal is not None:
            return refusal
        path = request.path
        if path is None:
            return refused(HTTPStatus.BAD_REQUEST, "this is no path of this server")
        try:
            return self._answered(request, path).packed_for(request)
        except PacelineError as error:
            missing = error.code == "U09" or isinstance(error, NotEnoughEvidence)
            status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.CONFLICT
            return replace(as_json(msgspec.to_builtins(error_json(error))), status=int(status))
        except Exception as error:
            # A recording may have been made by anybody. What it breaks is this answer.
            return refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"this could not be read: {type(error).__name__}")

    def _answered(self, request: HttpRequest, path: tuple[str, ...]) -> HttpResponse:
        if path == ("metrics",):
            if not self.access.may_scrape(request):
                return without_token()
            return self._metrics(request) if request.method == "GET" else _only("GET")
        if path[:1] != ("api",):
            page = _static(path)
            if page is None:
                return refused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
            return page if request.method == "GET" else _only("GET")
        if not self.access.has_token(request):
            return without_token()
        self.last_asked = time.monotonic()
        match path[1:]:
            case ("run", run_id, "look" | "stop" as deed):
                return self._done(run_id, deed, request) if request.method == "POST" else _only("POST")
            case _ if request.method != "GET":
                return _only("GET")
            case ("runs",):
                return self._runs(request.query)
            case ("compare",):
                query = request.query
                pair = (self._path(query.get("a", "")), self._path(query.get("b", "")))
                parts = Parts()
                parts.put({f"{HTML_PART}compare": self.readers.compare(*pair)})
                return _changed(parts, "", "compare", ended=True)
            case ("run", run_id, *rest):
                return self._of_run(run_id, tuple(rest), request)
        return _nothing()

    # ---------------------------------------------------------------------------------------------------- one run

    def _of_run(self, run_id: str, rest: tuple[str, ...], request: HttpRequest) -> HttpResponse:
        query = request.query
        directories = self._directories(run_id)
        match rest:
            case ("since",):
                note = self.readers.ask_engine(self._path(run_id))
                return self._since(self._live_run(directories), query.get("after", ""), note, request)
            case ("page",):
                live = self._live_run(directories)
                live.bring_up_to_date()
                return as_json(live.facts)
            case ("rank", rank) if rank.isascii() and rank.isdecimal() and len(rank) < 10:
                return as_json({"html": self.readers.rank(directories, int(rank))})
            case ("logs",):
                return as_json(found_lines(directories, _search(query), self._live_run(directories).clocks))
            case ("trace",):
                content = self.readers.trace(directories, _ranks(query.get("ranks")))
                disposition = ("Content-Disposition", 'attachment; filename="timeline.pftrace"')
                return HttpResponse(200, content, "application/octet-stream", (disposition,))
        return _nothing()

    def _since(self, live: LiveRun, after: str, note: str, request: HttpRequest) -> HttpResponse:
        live.bring_up_to_date()
        if after == live.cursor:
            return as_json({"cursor": after, **live.behind()})
        # Several tabs ask for the same.
        key = (after, live.cursor, note, request.header("accept-encoding") or "")
        made = partial(live.changes, after, may_stop=self.access.may_stop, note=note)
        with self._busy:
            return _kept(self._answers, key, lambda: as_json(made()).packed_for(request), _MOST_LIVE)

    def _done(self, run_id: str, deed: str, request: HttpRequest) -> HttpResponse:
        if not self.access.may_stop:
            return refused(HTTPStatus.FORBIDDEN, "this server only shows: start it with --allow-stop")
        asked = _asked(request.body)
        if deed == "stop":
            return as_json({"text": self.readers.stop(self._path(run_id))})
        ranks = asked.get("ranks")
        wanted = frozenset(one for one in ranks if isinstance(one, int)) if isinstance(ranks, list) else None
        return as_json({"text": self.readers.look(self._directories(run_id), wanted)})

    def _path(self, run_id: str) -> Path:
        if run_id in self.named:
            return self.named[run_id][0]
        found = self.runs.find(run_id)
        if found is None:
            raise UsageError(
                "U09", f"no run {run_id[:80]!r}", saw="it is in no list of this server", next="paceline ps --all"
            )
        return found

    def _directories(self, run_id: str) -> Sequence[Path]:
        return self.named[run_id] if run_id in self.named else self.readers.directories(self._path(run_id))

    def _live_run(self, directories: Sequence[Path]) -> LiveRun:
        with self._busy:
            return _kept(self._live, tuple(directories), lambda: LiveRun(directories, self.readers.record), _MOST_LIVE)

    # ---------------------------------------------------------------------------------------------- lists, metrics

    def _runs(self, query: Mapping[str, str]) -> HttpResponse:
        wish = _wish(query)
        listing = self.runs.listing(wish)
        notes = [
            f"not judged: what the engine would say of {row.known.id}: {why_not}"
            for row in listing.rows
            if row.listed is not None and row.listed.engine and (why_not := self.readers.ask_engine(row.known.path))
        ]
        here = os.path.realpath(self.runs.root or runs_root())
        html = runs_html(listing.rows, listing.found_count, listing.left_out, notes, self.folders, time.time_ns(), here)
        with self._busy:
            parts = _kept(self._lists, wish, Parts, _MOST_LIVE)
            parts.put({f"{HTML_PART}runs": html})
            return _changed(parts, query.get("after", ""), "runs", ended=False)

    def _metrics(self, request: HttpRequest) -> HttpResponse:
        ranks = _rank_count(request.query.get("ranks", "worst:0"))
        families: dict[str, Metric] = {}
        for run_id in self._scraped(request.query.get("run")):
            directories = self._directories(run_id)
            live = self._live_run(directories)
            with contextlib.suppress(NotEnoughEvidence):
                for one in live.reading(partial(self.readers.metrics, directories, ranks=ranks)):
                    before = families.get(one.name)
                    families[one.name] = (
                        one if before is None else replace(before, samples=(*before.samples, *one.samples))
                    )
        return HttpResponse(200, metrics_text(families.values()).encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _scraped(self, run_id: str | None) -> list[str]:
        """The runs whose metrics are shown: the named one, those of the command line, or those that last."""
        if run_id is not None:
            return [run_id]
        if self.named:
            return list(self.named)
        lasting = self.runs.listing(Wish(status=Status.IN_PROGRESS, limit=_MOST_SCRAPED)).rows
        return [row.known.id for row in lasting]


def _changed(parts: Parts, after: str, title: str, *, ended: bool) -> HttpResponse:
    changes = parts.since(after)
    return as_json({"cursor": after} if changes is None else since_facts(changes, title, ended=ended))


@cache
def _asset(name: str) -> bytes:
    return (files("paceline.parts.web.serve") / name).read_bytes()


def _static(path: tuple[str, ...]) -> HttpResponse | None:
    """What has no byte of a recording: scripts, styles, and the pages into which the script puts what it asks for."""
    match path:
        case ():
            return _shell("runs", "")
        case ("compare",):
            return _shell("compare", "")
        case ("run", run_id) if run_id:
            return _shell("run", "../")
        case ("live.js",):
            return HttpResponse(200, _asset("live.js"), _SCRIPT)
        case ("live.css",):
            return HttpResponse(200, _asset("live.css"), _STYLE)
        case ("page.js",):
            return HttpResponse(200, script().encode(), _SCRIPT)
        case ("page.css",):
            return HttpResponse(200, style_sheet().encode(), _STYLE)
    return None


def _shell(kind: str, up: str) -> HttpResponse:
    """A page without data. `up`: the way from its address to that of the server, so that it works below a path of a proxy."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", "paceline"),
        *(
            _link(rel, href)
            for rel, href in (("icon", "data:,"), ("stylesheet", f"{up}page.css"), ("stylesheet", f"{up}live.css"))
        ),
    )
    scripts = [element("script", src=f"{up}{name}") for name in ("page.js", "live.js")]
    needed = element(
        "noscript", element("p", "This page needs its script. paceline report RUN makes a page that needs none.")
    )
    body = element(
        "body",
        element("div", "Loading.", id="live", role="region", aria_label="State of this page"),
        needed,
        *scripts,
        data_page=kind,
        data_up=up,
    )
    return HttpResponse(200, f"<!doctype html>\n{element('html', head, body, lang='en')}\n".encode(), HTML)


def _link(rel: str, href: str) -> Markup:
    return Markup(str(element("link", rel=rel, href=href)).removesuffix("</link>"))


def _kept(kept: OrderedDict[_Key, _Value], key: _Key, make: Callable[[], _Value], most: int) -> _Value:
    """The value of a key, made if there is none; the one that was wanted least recently goes."""
    if key not in kept:
        kept[key] = make()
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


# --------------------------------------------------------------------------------------------------- what a query says


def _wish(query: Mapping[str, str]) -> Wish:
    status = next((one for one in Status if one.lower() == query.get("status", "").lower()), None)
    return Wish(
        find=query.get("find", "")[:200],
        status=status,
        sort=query.get("sort", "started"),
        is_upwards=query.get("up") == "1",
        limit=_number(query.get("limit"), MOST_ROWS, MOST_ROWS),
    )


def _search(query: Mapping[str, str]) -> Search:
    stream = query.get("stream")
    since = query.get("since_ns", "")
    return Search(
        LogChoice(
            ranks=_ranks(query.get("rank")),
            attempt=_number(query.get("attempt"), 0, 1 << 30) if query.get("attempt") else None,
            streams=frozenset({stream}) if stream in ("out", "err") else frozenset({"out", "err"}),
        ),
        words=tuple(query.get("find", "")[:200].split()),
        since_ns=int(since) if since.isascii() and since.isdecimal() and len(since) < 20 else None,
        limit=_number(query.get("limit"), 500, _MOST_LINES),
    )


def _ranks(text: str | None) -> frozenset[int] | None:
    """The ranks that a query names; None: all.

    Raises:  UsageError U03: it is no list of ranks
    """
    if not text:
        return None
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise UsageError("U03", f"ranks: {error}", next="0-3,7") from None


def _rank_count(text: str) -> int | None:
    """So many of the slowest ranks; None: all.

    Raises:  UsageError U03: it says neither
    """
    if text == "all":
        return None
    kind, _, number = text.partition(":")
    if kind != "worst" or not (number.isascii() and number.isdecimal() and len(number) < 7):
        raise UsageError("U03", f"ranks={text[:40]!r} is neither all nor worst:N", next="?ranks=worst:8")
    return int(number)


def _number(text: str | None, otherwise: int, most: int) -> int:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10
    return min(max(int(text or 0), 1), most) if is_number else otherwise


def _asked(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise UsageError("U03", "the body is no JSON object", next='{"ranks": [0, 3]}')
    return asked


def _only(method: str) -> HttpResponse:
    return refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only {method} is answered here", ("Allow", method))


def _nothing() -> HttpResponse:
    return refused(HTTPStatus.NOT_FOUND, "there is nothing at this address")
