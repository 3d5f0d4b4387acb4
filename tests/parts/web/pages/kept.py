"""Kept recordings, and recordings made from them that lack something."""

import json
import os
import shutil
from pathlib import Path

RUNS = Path(__file__).parents[3] / "data" / "runs"
NAMES = (
    "healthy",
    "hang",
    "straggler",
    "restart",
    "lost_host",
    "two_hosts",
    "one_of_two_hosts",
    "torn",
    "later",
    "agent_gone",
    "running",
)


def kept(name, folder):
    """The directories of a recording: its own copy below `folder`."""
    if name == "two_hosts":
        return [shutil.copytree(RUNS / name / part, folder / part) for part in ("first", "second")]
    if name == "one_of_two_hosts":
        return [shutil.copytree(RUNS / "two_hosts" / "first", folder / "first")]
    made = {
        "torn": torn,
        "later": of_a_later_version,
        "agent_gone": with_a_lost_agent,
        "running": that_runs,
        "hanging": that_runs,
    }.get(name)
    source = {"later": "hang", "hanging": "hang", "running": "straggler"}.get(name, "straggler") if made else name
    copy = shutil.copytree(RUNS / source, folder / name)
    if made:
        made(copy)
    return [copy]


def torn(run):
    """As a full disk leaves it: each file that grows ends in the middle of a record, and one segment has lost its head."""
    end = (run / "events.jsonl").read_bytes().splitlines(keepends=True)[-1]
    for path in [run / "events.jsonl", *run.glob("hosts/*/telemetry.jsonl"), *run.glob("hosts/*/attempt_0/rank_0.*")]:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) * 3 // 5 - 7])
    # There was room again before the end: without it, the state of the run is a matter of the machine it ran on.
    with open(run / "events.jsonl", "ab") as file:
        file.write(b"\n" + end)
    next(run.glob("hosts/*/attempt_0/rank_3.seg")).write_bytes(b"not a segment")


def of_a_later_version(run):
    """Keys and events that nobody knows yet."""
    rewrite(
        run / "run.json", lambda document: {**document, "paceline_version": "99.0.0", "colour": {"of": ["the", "sky"]}}
    )
    lines = [{**json.loads(line), "colour": "blue"} for line in (run / "events.jsonl").read_text().splitlines()]
    lines.insert(3, {"t_ns": lines[2]["t_ns"], "event": "teleported", "rank": 1, "to": "mars"})
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def with_a_lost_agent(run):
    """The machine was switched off in the middle, and is up again."""
    _until_the_end(run)
    rewrite(run / "run.json", lambda document: {**document, "machine": os.uname().nodename})


def that_runs(run):
    """The agent of this run is this process."""
    _until_the_end(run)
    from paceline.process_identity import boot_id, start_ticks

    rewrite(
        run / "run.json",
        lambda document: {
            **document,
            "machine": os.uname().nodename,
            "boot_id": boot_id(),
            "pid_namespace": os.readlink("/proc/self/ns/pid"),
            "agent_pid": os.getpid(),
            "agent_start_ticks": start_ticks(os.getpid()),
        },
    )


def rewrite(path, change):
    """The document of a file, changed."""
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def _until_the_end(run):
    ends = {"stopping", "rank_exited", "last_pulses", "attempt_ended", "run_finished"}
    lines = [
        line
        for line in (run / "events.jsonl").read_text().splitlines(keepends=True)
        if json.loads(line)["event"] not in ends
        and json.loads(line).get("secondary_status") not in ("Completed", "Failed")
    ]
    (run / "events.jsonl").write_text("".join(lines))
