"""Serve the list of runs and the page of a run, live, for a browser. The job does not notice: its recording is read."""

import argparse
import html
import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from paceline.atomic_write import write_whole
from paceline.cli.parsing import find_directories
from paceline.cli.values import number_between
from paceline.errors import UsageError
from paceline.listening import listening, listening_at
from paceline.option import FURTHER_DIRECTORIES, RUN, RUN_DIR, Option, Verb
from paceline.parts.web.serve.access import Access
from paceline.parts.web.serve.app import App, Readers
from paceline.parts.web.serve.run_list import RunList
from paceline.parts.web.serve.server import MOST_CONNECTIONS, WebServer
from paceline.priority import lower_priority
from paceline.recording.layout import RunDirectory
from paceline.recording.runs import first_try, index_folder, is_submitted, newest_try, runs_root
from paceline.user_folders import user_state_folder
from paceline.views.ps import ListedRun

PORT = 8642
# Without --port, so many ports are tried.
_PORTS_TRIED = 20
_TOKEN_BYTES = 24
_LEAST_TOKEN_CHARACTERS = 16
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Beside a run, the server ends so long after the run has ended and nobody has asked.
_IDLE_SECONDS = 600.0
_ENGINE_SECONDS = 15.0
_BEGIN_SECONDS = 60.0

VERB = Verb(
    "web",
    __doc__ or "",
    (
        ("paceline web", "the list of runs, and each run's page"),
        ("paceline web r-7f3a91 --allow-stop", "one run, with buttons to stop it and to look at its ranks"),
    ),
    (
        Option(RUN.name, RUN.help, RUN.metavar, default_text="the list of all runs", count="?", is_positional=True),
        Option("port", "Port to listen on; 0 for a free one.", "PORT", default_text=f"{PORT}, or the next free one"),
        Option("socket", "Listen on this UNIX socket, which only you can open, and on no port.", "PATH"),
        Option(
            "bind",
            "Listen on this address, also of other machines' networks. Needs --token-file.",
            "ADDRESS",
            default="127.0.0.1",
        ),
        Option(
            "token-file",
            "Take the token from this file, which only you can read.",
            "FILE",
            default_text="a new one each time",
        ),
        Option("metrics-token-file", "A further token, which gives /metrics and nothing else.", "FILE"),
        Option(
            "allow-host",
            "A further name under which a proxy asks this server. May be repeated.",
            "NAME",
            default=(),
            repeatable=True,
        ),
        Option("allow-stop", "Allow the page to stop the run, and to look where its ranks are."),
        Option("open", "Open the page in this machine's browser."),
        Option("beside-run", "End some time after the run.", hidden=True),
        RUN_DIR,
        FURTHER_DIRECTORIES,
    ),
    page="""\
The page is the one of `paceline report`, and it follows the run. The server is a process of its own that reads the recording: it opens no
port in the job, and Ctrl-C ends it and not the job. It listens on this machine alone, and every byte of a recording needs the token that
is in the printed address. [How to reach it from a laptop](howto/web.md), below a proxy, and what protects it.""",
    notes="`--json` prints `paceline.web/1` once it listens: [its keys](schemas.md#pacelineweb1).",
)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM.

    Raises:  UsageError U04: cannot listen; U12: the token; U03: a value; as find_directories
    """
    access = _access(args)
    if args.beside_run and not _begins(Path(args.run)):
        return 0
    named = _named(args)
    app = App(access, RunList(Path(args.run_dir) if args.run_dir else None, listed), readers(), _folders(args), named)
    listener = _listener(args)
    with listener, suppress(KeyboardInterrupt):
        _tell(args, listener, access.token, next(iter(named), None))
        if args.beside_run:
            _leave_terminal()
        server = WebServer(listener, app.answer)
        if args.beside_run:
            _end_after_run(server, app, next(iter(named.values()))[0])
        _serve(server, app.runs, args)
    return 0


def _serve(server: WebServer, runs: RunList, args: argparse.Namespace) -> None:
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=runs.get_ready, daemon=True).start()
    try:
        server.serve_forever(poll_interval=0.5)
    finally:
        server.server_close()
        if args.socket:
            Path(args.socket).unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------------------ the door


def _access(args: argparse.Namespace) -> Access:
    if args.bind not in _LOOPBACK and args.token_file is None:
        raise UsageError(
            "U12",
            f"--bind {args.bind} lets other machines ask, and --token-file is not given",
            saw="a token that was printed once is no secret on a network",
            next="ssh -L, or --token-file FILE and a proxy with TLS before it",
        )
    token = secrets.token_urlsafe(_TOKEN_BYTES) if args.token_file is None else _token(args.token_file)
    metrics_token = None if args.metrics_token_file is None else _token(args.metrics_token_file)
    bound = f"[{args.bind}]" if ":" in args.bind else args.bind
    hosts = frozenset(name.lower() for name in (*args.allow_host, bound))
    return Access(token, metrics_token, hosts, may_stop=args.allow_stop)


def _token(name: str) -> str:
    """The token in a file.

    Raises:  UsageError U12: it cannot be read, is another user's to read, or is short
    """
    try:
        state = os.stat(name)
        token = Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _refused_token(name, "cannot be read", getattr(error, "strerror", None) or str(error)) from error
    if state.st_mode & 0o077:
        raise _refused_token(
            name, "can be read by other users", f"mode {state.st_mode & 0o777:04o}", f"chmod 600 {shlex.quote(name)}"
        )
    if not re.fullmatch(f"[!-~]{{{_LEAST_TOKEN_CHARACTERS},}}", token):
        saw = f"{len(token)} characters; a token has {_LEAST_TOKEN_CHARACTERS} or more, without spaces"
        raise _refused_token(name, "holds no token", saw)
    return token


def _refused_token(name: str, what: str, saw: str, next: str = "umask 077; openssl rand -hex 24 > FILE") -> UsageError:
    return UsageError("U12", f"the token file {name} {what}", saw=saw, next=next)


def _listener(args: argparse.Namespace) -> socket.socket:
    if args.socket:
        try:
            return listening_at(Path(args.socket), MOST_CONNECTIONS)
        except OSError as error:
            raise _cannot_listen(args.socket, error, "paceline web --socket ANOTHER_PATH") from error
    if args.port is not None:
        port = number_between("--port", args.port, 0, 65_535)
        try:
            return listening(args.bind, port, MOST_CONNECTIONS)
        except OSError as error:
            raise _cannot_listen(f"{args.bind}:{port}", error, "paceline web --port 0") from error
    return _next_free(args.bind)


def _next_free(address: str) -> socket.socket:
    for port in range(PORT, PORT + _PORTS_TRIED):
        with suppress(OSError):
            return listening(address, port, MOST_CONNECTIONS)
    try:
        return listening(address, 0, MOST_CONNECTIONS)
    except OSError as error:
        raise _cannot_listen(address, error, "paceline web --bind 127.0.0.1") from error


def _cannot_listen(where: str, error: OSError, next: str) -> UsageError:
    return UsageError("U04", f"paceline web cannot listen at {where}", saw=error.strerror or str(error), next=next)


def _tell(args: argparse.Namespace, listener: socket.socket, token: str, run_id: str | None) -> None:
    """Print the address, and how it is reached from elsewhere."""
    from urllib.parse import quote

    path = f"/run/{quote(run_id, safe='')}" if run_id else "/"
    machine = socket.gethostname()
    if args.socket:
        place = Path(args.socket).absolute()
        url, forward = f"http://127.0.0.1:{PORT}{path}#k={token}", f"ssh -L {PORT}:{shlex.quote(str(place))} {machine}"
    else:
        port = listener.getsockname()[1]
        address = f"[{args.bind}]" if ":" in args.bind else args.bind
        url, forward = f"http://{address}:{port}{path}#k={token}", f"ssh -L {port}:127.0.0.1:{port} {machine}"
    if args.json:
        print(json.dumps(web_facts(url, forward, run_id)), flush=True)
        return
    ends = "Ctrl-C ends it, the job goes on"
    if args.beside_run:
        ends = f"it ends {_IDLE_SECONDS / 60:.0f} minutes after the run, or: kill {os.getpid()}"
    if args.socket:
        text = f"paceline web  {place}  {ends}\nfrom a laptop  {forward}   then open {url}"
    else:
        text = f"paceline web  {url}  {ends}\nfrom a laptop  {forward}   then open the line above"
    print(text, file=sys.stderr if args.beside_run else sys.stdout, flush=True)
    if args.open and not args.socket:
        _open_in_browser(url)


def _open_in_browser(url: str) -> None:
    """Open the address by way of a file that only the user may read: every user of the machine can list a browser's command line."""
    import webbrowser

    page = user_state_folder() / "web" / "open.html"
    try:
        page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(page, redirecting(url), mode=0o600)
    except OSError as error:
        print(f"the page is not opened: {page} cannot be written: {error.strerror}", file=sys.stderr)
        return
    webbrowser.open(page.as_uri())


def redirecting(url: str) -> str:
    """A page that leads to an address."""
    return f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={html.escape(url)}"><title>paceline</title>\n'


def web_facts(url: str, forward: str, run_id: str | None) -> dict[str, object]:
    """Where the server listens, for a program."""
    return {"schema": "paceline.web/1", "url": url, "ssh": forward, "run_id": run_id, "pid": os.getpid()}


def _end_after_run(server: WebServer, app: App, path: Path) -> None:
    """End the server some time after the run has ended and nobody asks any more."""
    from paceline.recording.evidence import read_run
    from paceline.views.status import run_lasts

    def watch() -> None:
        while True:
            time.sleep(5.0)
            has_ended = not path.exists() or not run_lasts(read_run((RunDirectory(path),))[0])
            if has_ended and time.monotonic() - app.last_asked > _IDLE_SECONDS:
                server.shutdown()
                return

    threading.Thread(target=watch, daemon=True).start()


# -------------------------------------------------------------------------------------------------------- beside a run


def start_beside(run_dir: Path) -> None:
    """Start the server of a run that begins now in this directory, and do not wait for it."""
    words = [sys.executable, "-P", "-m", "paceline", "web", str(run_dir), "--beside-run"]
    # The shell ends at once, so the server is nobody's child: an agent takes its orphans for processes of its job.
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


def _begins(run_dir: Path) -> bool:
    """Wait for the recording. False: the run was refused. The job comes first at the processor and in memory."""
    lower_priority(19)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    until = time.monotonic() + _BEGIN_SECONDS
    while not RunDirectory(run_dir).run_file.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def _leave_terminal() -> None:
    """Whoever reads the job's output to its end does not wait for this process."""
    sys.stderr.flush()
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)


# ------------------------------------------------------------------------------------------------------ what is served


def _named(args: argparse.Namespace) -> dict[str, Sequence[Path]]:
    """Id -> directories of the run of the command line."""
    if args.run is None and not args.directories and not args.beside_run:
        return {}
    from paceline.recording.evidence import read_run

    directories = find_directories(args, "paceline web")
    return {read_run(tuple(RunDirectory(path) for path in directories))[0].id: directories}


def _folders(args: argparse.Namespace) -> list[str]:
    return [str(Path(args.run_dir) if args.run_dir else runs_root()), str(index_folder())]


def listed(path: Path) -> ListedRun:
    """A run as the list shows it, as far as it is recorded."""
    from paceline.cli.ps import recorded_state

    return recorded_state(path)


def readers() -> Readers:
    """The readers of the command line's own verbs."""
    from paceline.cli.compare import compared_html
    from paceline.cli.report import recorded_live
    from paceline.cli.stack import stacks_now
    from paceline.cli.stop import stop_told
    from paceline.parts.web.cli.metrics import metrics_of
    from paceline.parts.web.cli.timeline import trace_of

    return Readers(
        record=recorded_live,
        listed=listed,
        directories=_of_run,
        ask_engine=Engines(_asked).ask,
        rank=_rank,
        metrics=lambda directories, read, ranks: metrics_of(directories, read, ranks)[1],
        trace=trace_of,
        compare=compared_html,
        look=stacks_now,
        stop=stop_told,
    )


def _of_run(path: Path) -> list[Path]:
    """The recordings of a run: of a submitted job that of its last try."""
    return [newest_try(first_try(path)) if is_submitted(path) else path]


def _rank(directories: Sequence[Path], rank: int) -> str:
    from paceline.cli.stack import last_snapshots
    from paceline.parts.web.views.rank_page import rank_html
    from paceline.recording.evidence import evidence
    from paceline.views.stack import stack_text
    from paceline.views.status import run_lasts

    found = evidence(*directories, recent=True, telemetry_bytes=4 << 20)
    snapshots = last_snapshots(found.events, frozenset({rank}))
    stack = stack_text(found.run.id, snapshots, lasts=run_lasts(found.run)) if snapshots else None
    return str(rank_html(found, rank, stack))


def _asked(path: Path) -> str:
    from paceline.recording.submitted import brought_up_to_date

    return brought_up_to_date(path, os.environ) or ""


@dataclass(slots=True)
class Engines:
    """Asks the engines of submitted runs in a thread of its own, so that no page waits for one."""

    ask_now: Callable[[Path], str]
    """Asks about one run. Returns why that failed, or ""."""
    _said: dict[Path, str] = field(default_factory=dict)
    _asked_at: dict[Path, float] = field(default_factory=dict)
    _wanted: list[Path] = field(default_factory=list)
    _change: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def ask(self, path: Path) -> str:
        """Have the engine asked soon, if it was not lately. Returns why that failed the last time, or ""."""
        if not is_submitted(path):
            return ""
        with self._change:
            if time.monotonic() - self._asked_at.get(path, -1e9) > _ENGINE_SECONDS and path not in self._wanted:
                self._wanted.append(path)
                self._change.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._ask_all, daemon=True)
                self._thread.start()
            return self._said.get(path, "")

    def _ask_all(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._wanted))
                path = self._wanted[0]
            try:
                said = self.ask_now(path)
            except Exception as error:
                # An engine is a plug-in, and what it raises is not known here.
                said = f"{type(error).__name__}: {error}"
            with self._change:
                self._said[path], self._asked_at[path] = said, time.monotonic()
                self._wanted.remove(path)
