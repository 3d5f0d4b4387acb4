"""Recordings small enough to be written by hand, and an application over them."""

import json

from paceline.facts import Run
from paceline.parts.web.cli import web
from paceline.parts.web.serve.access import Access
from paceline.parts.web.serve.app import App
from paceline.parts.web.serve.exchange import HttpRequest
from paceline.parts.web.serve.run_list import RunList
from paceline.recording.runs import create_run, write_run

TOKEN = "a-token-of-192-bits-or-so"
SECRET = "nobody-else-may-read-this-line"


def record(root, run_id, name="train", *, ended=True, started_ns=1_000_000_000_000):
    """A run of one rank with an event and a line of output."""
    directory = create_run(root, run_id)
    write_run(
        Run(
            id=run_id, name=name, directory=str(directory.path), command=("paceline", "run", f"{name}.py"),
            started_ns=started_ns, first_host="a", agent_pid=1, hosts_wanted=(1, 1), version="0.1.0",
        )
    )  # fmt: skip
    events = [
        {"t_ns": started_ns, "event": "run_started", "run": run_id, "host": "a"},
        {
            "t_ns": started_ns,
            "event": "attempt_started",
            "attempt": 0,
            "world_size": 1,
            "hosts": [{"host": "a", "first_rank": 0, "ranks": 1}],
        },
        {"t_ns": started_ns + 1, "event": "rank_started", "host": "a", "rank": 0, "attempt": 0, "pid": 7},
        {"t_ns": started_ns + 2, "event": "notice", "text": SECRET, "host": "a"},
    ]
    if ended:
        events.append(
            {
                "t_ns": started_ns + 10**9,
                "event": "run_finished",
                "exit_code": 0,
                "status": "Completed",
                "secondary_status": "Completed",
            }
        )
    directory.events_file.write_text("".join(json.dumps(event) + "\n" for event in events))
    log = directory.log_file("a", 0, 0, "out")
    log.parent.mkdir(parents=True)
    log.write_text(f"{SECRET}\nstep 1 of 2\nStep 2 of 2\n")
    return directory.path


def make_app(root, **access):
    return App(Access(TOKEN, **access), RunList(root, web.listed), web.readers(), [str(root)])


def get(app, target, *, token=TOKEN, method="GET", host="127.0.0.1:8642", body=b"", **more):
    headers = [("Host", host), *((name.replace("_", "-"), value) for name, value in more.items())]
    if token is not None:
        headers.append(("Authorization", f"Bearer {token}"))
    return app.answer(HttpRequest(method, target, tuple(headers), body))
