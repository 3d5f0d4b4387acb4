"""Whatever a recording, a log, an engine or another host says: no verb and no running job prints a control character that is not ours."""

import json
import os
import time
from dataclasses import replace

import pytest

from paceline.cli import main
from paceline.cli.run.terminal import RunTerminal
from paceline.diagnosis.case import Level, Stall
from paceline.diagnosis.snapshots import Child, Frame, RankSnapshot, ThreadStack
from paceline.findings import CauseFinding, Confidence, Severity
from paceline.launch.agent.output import Pump
from paceline.recording.fact_json import to_plain
from paceline.terminal_text import BOLD, BOLD_GREEN, BOLD_RED, BOLD_YELLOW, DIM
from paceline.views.live import _WRITERS
from paceline.views.logs import log_line, log_line_json

TRICKS = {
    "a title": "\x1b]0;mine\x07",
    "the clipboard": "\x1b]52;c;Y3VybA==\x1b\\",
    "a clear screen": "\x1b[2J\x1b[H",
    "our own red": "\x1b[1;31merror[U04]\x1b[0m",
    "C1": "\x9b2J\x90q\x9c",
    "a line painted over": "good\rbad\x08\x7f",
    "text turned around": "\u202egnp.\u2066x\u2069\u200f\u061c",
    "lines of others": "one\u2028two\u2029three\x0b\x0c\x1c\x85",
}
NOT_PRINTED = {chr(number) for number in (*range(0x20), *range(0x7F, 0xA0))} - {"\n", "\t"}
NOT_PRINTED |= {*map(chr, (0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)))}
OURS = [f"\x1b[{style}m" for style in (BOLD, DIM, BOLD_RED, BOLD_GREEN, BOLD_YELLOW, "0")]
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("PACELINE_HOME", raising=False)


@pytest.fixture(params=TRICKS.values(), ids=TRICKS)
def trick(request):
    return request.param


def finding(trick):
    return CauseFinding(
        code="N01", title=f"asleep{trick}", level=Level.STALL, ranks=(0,), hosts=(trick,), confidence=Confidence.HIGH,
        since_step=3, saw=(f"saw{trick}",), ruled_out=(f"not{trick}",), next=(f"do{trick}",),
    )  # fmt: skip


def snapshot(trick, rank=0):
    frames = (Frame(file=f"/home/{trick}.py", line=3, function=f"f{trick}", users=True),)
    return RankSnapshot(
        host=f"algo-1{trick}", rank=rank, pid=5, at_ns=time.time_ns(), state="S", system_call=f"read{trick}",
        blocked_on=f"/mnt{trick}", native=(f"native{trick}",), not_judged=(f"nothing{trick}",),
        stacks=(ThreadStack(pid=5, thread=f"MainThread{trick}", main=True, frames=frames),
            ThreadStack(pid=5, thread=f"io{trick}", main=False, frames=frames)),
        children=(Child(pid=9, name=f"child{trick}", state="S", cpu_fraction=None, stack=frames),),
    )  # fmt: skip


def stall(trick):
    return Stall(
        level=Level.STALL, since_ns=SECOND, detected_ns=9 * SECOND, threshold_seconds=3.0, late=(1,), waiting=(0,),
        operation=f"all_reduce{trick}", index=3,
    )  # fmt: skip


def error(trick):
    return {
        "type": f"ValueError{trick}", "message": f"bad{trick}", "file": f"/x{trick}.py", "line": 3,
        "function": f"f{trick}", "source": f"raise {trick}",
    }  # fmt: skip


@pytest.fixture
def hostile(recording, trick):
    """A run that has failed, in whose recording every text is a trick."""
    made = recording("r-aaaaaa")
    made.identity(name=f"train{trick}", reason=f"because{trick}")
    host = f"algo-1{trick}"
    made.event("rank_started", host=host, rank=0, attempt=0, pid=1000, t_ns=SECOND)
    made.event("sensor_missing", host=host, sensor=f"gpu{trick}", reason=f"none{trick}")
    made.event("notice", host=host, text=f"notice{trick}")
    made.event("look", host=host, rank=0, look=to_plain(snapshot(trick)))
    made.event("standstill", standstill=to_plain(stall(trick)))
    made.event("cause", finding=to_plain(finding(trick)), attempt=0)
    made.segment(host, 0)
    made.log(host, 0, b"log " + trick.encode() + b"\nend " + trick.encode())
    made.telemetry(host, {"t_ns": SECOND, "cpu_fraction": 0.5, "name": trick})
    made.event("rank_exited", host=host, rank=0, attempt=0, code=1, note=f"note{trick}", error=error(trick))
    made.finish(code=1, status="Failed", reason=f"reason{trick}")
    return made


def foreign(text, ours=OURS):
    """The control characters of a text that are not part of our own codes."""
    for code in ours:
        text = text.replace(code, "")
    return sorted(NOT_PRINTED & set(text))


@pytest.mark.parametrize(
    "argv",
    ["ps", "ps --all", "logs", "logs --grep log", "top --once", "top --interval 0.01", "why", "stack", "stop r-aaaaaa"],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_verb_prints_what_a_recording_wants_to_do(hostile, trick, argv, as_json, capsys):
    main([*argv.split(), *(["--json"] if as_json else [])])
    shown = capsys.readouterr()
    assert not foreign(shown.out, ours=()) and not foreign(shown.err, ours=())
    if as_json and argv != "stop r-aaaaaa":
        assert all(json.loads(line) for line in shown.out.splitlines())


@pytest.mark.parametrize("argv", ["why", "stack", "top --once", "ps"])
def test_in_colour_only_our_own_codes_are_printed(hostile, trick, argv, capsys):
    main(["--color=always", *argv.split()])
    shown = capsys.readouterr()
    assert not foreign(shown.out + shown.err)
    # A red that is not ours is shown as text, whatever it looks like.
    assert TRICKS["our own red"] not in shown.out + shown.err


def test_the_text_of_a_trick_is_there_to_be_read(recording, capsys):
    made = recording("r-aaaaaa")
    made.identity(name=TRICKS["a title"])
    main(["ps"])
    assert r"\x1b]0;mine\x07" in capsys.readouterr().out


def test_plain_logs_of_elsewhere_are_quoted_as_text(tmp_path, trick, capsys):
    log = tmp_path / "job.log"
    log.write_text(
        f'[rank0]: Traceback (most recent call last):\n[rank0]:   File "t{trick}.py", line 3, in f\nValueError: {trick}\n'
    )
    main(["why", "--log", str(log)])
    shown = capsys.readouterr()
    assert not foreign(shown.out + shown.err, ours=())


def test_a_refusal_that_names_what_was_given_is_text(trick, capsys):
    for argv in (
        ["why", f"r-{trick}"],
        ["help", trick],
        [trick],
        ["run", f"{trick}.py"],
        ["logs", "--rank", trick],
    ):
        assert main([word.replace("\0", "") for word in argv])
        assert not foreign(capsys.readouterr().err, ours=())


@pytest.mark.parametrize("raw", [False, True])
def test_of_a_log_only_the_ranks_own_bytes_are_raw_and_only_on_request(trick, raw):
    line = log_line(f"algo{trick}", 3, trick.encode(), raw=raw)
    who, _, text = line.rstrip(b"\n").partition(b" | ")
    assert not foreign(who.decode())
    assert text == trick.encode() if raw else not foreign(text.decode())
    assert not foreign(log_line_json("r-1", f"algo{trick}", 0, 3, "out", trick.encode(), None).decode())


def events(trick):
    """Of each kind that a running job prints one whose every text is a trick."""
    texts = {
        key: f"{key}{trick}"
        for key in (
            "run",
            "directory",
            "host",
            "reason",
            "text",
            "what",
            "saw",
            "next",
            "more",
            "signal",
            "url",
            "code",
        )
    }
    hosts = [{"host": f"algo-{n}{trick}", "first_rank": n, "ranks": 1} for n in range(2)]
    missing = [{"host": f"algo-3{trick}", "ranks": [2, 3], "saw": f"nothing{trick}"}]
    special = {
        "finding": {"severity": str(Severity.WARNING)},
        "attempt_started": {"hosts": hosts, "world_size": 2},
        "waiting": {"missing": missing, "waited_seconds": 5},
        "cause": {"finding": to_plain(replace(finding(trick), code="N02"))},
        "standstill": {"standstill": to_plain(stall(trick))},
        "transfer": {"state": "done", "direction": "upload", "files": 3, "bytes": 7, "seconds": 1.0},
        "network": {"asked": {}, "delivered": {}, "zones": [[trick], [trick]]},
    }
    for name in _WRITERS:
        yield {"event": name, **texts, **special.get(name, {})}


@pytest.mark.parametrize("color", ["always", "never"])
def test_a_running_job_says_nothing_that_the_terminal_would_obey(trick, color, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    terminal = RunTerminal(mode="off", color=color, environ={"TERM": "xterm"})
    pump = Pump(erase=terminal.erase, repaint=terminal.repaint)
    terminal.attach(lambda fd, text: pump.say(theirs, text))
    for event in events(trick):
        if event["event"] not in ("network", "forecast"):
            terminal.event(event)
    pump.say(theirs, "the last one\n")
    seen = b""
    while b"the last one" not in seen:
        seen += os.read(ours, 65536)
    pump.close()
    os.close(ours), os.close(theirs)
    text = seen.decode().replace("\r\n", "\n")
    assert not foreign(text)
    assert TRICKS["our own red"] not in text
    assert text.count("\x1b[1;3") == (0 if color == "never" else 4)


def test_what_hosts_wait_for_stands_on_the_status_line_as_text(trick):
    terminal = RunTerminal(mode="auto", color="never", environ={"TERM": "xterm"})
    terminal._live = True
    terminal.attach(lambda fd, text: None)
    terminal.event({"event": "waiting", "missing": [{"host": f"algo-2{trick}", "saw": ""}], "waited_seconds": 5})
    terminal.progress({})
    assert b"waiting for algo-2" in terminal.repaint() and not foreign(terminal.repaint().decode())
