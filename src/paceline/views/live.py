"""Messages of a running job on the terminal: one text per event that a person wants to see at once. Value in, string out."""

import re
from collections.abc import Mapping
from typing import Any

from paceline.diagnosis.case import Forecast, Stall
from paceline.diagnosis.restart_costs import EVENT as ATTEMPT_BEGAN
from paceline.diagnosis.restart_costs import RESUMED, Restart, Resumption
from paceline.diagnosis.time_limit import forecast_text, will_be_cut
from paceline.errors import PacelineError
from paceline.facts import SecondaryStatus
from paceline.findings import CauseFinding, Finding, Severity
from paceline.part import parts
from paceline.recording.fact_json import fact_or_none
from paceline.recording.rank_sets import named_ranks
from paceline.views.error import error_text
from paceline.views.restarts import restart_finding, restart_line, resumed_line
from paceline.views.transfer import transfer_doing, transfer_text
from paceline.views.units import duration
from paceline.views.why import WhyPage, finding_lines, stall_over_text, stall_text

_EXCEPTION = "C01"
_LOOPBACK = re.compile(r"127\.|localhost$|::1$|\[::1\]$")


def event_text(event: Mapping[str, Any], *, color: bool = False) -> str | None:
    """The lines for one recorded event, without a final newline; None for an event that only the recording keeps."""
    name = str(event.get("event"))
    if (writer := _WRITERS.get(name)) is not None:
        return writer(event, color)
    for part in parts():
        if (line := part.lines().get(name)) is not None:
            return line(event) or None
    return None


def end_text(run: str, exit_code: int, reason: str) -> str:
    """The last line on a host that is not the first one; the summary is on the first."""
    return f"paceline  run {run} ended with {exit_code}: {reason}"


def doing(event: Mapping[str, Any]) -> str | None:
    """What the status line says while there are no steps; None when the event does not change it."""
    match event.get("event"):
        case "attempt_started":
            return "starting"
        case "waiting":
            return "waiting for " + ", ".join(str(entry.get("host")) for entry in event.get("missing") or ())
        case "restart":
            return "restarting"
        case "stopping" | "stop_asked":
            return "stopping"
        case "transfer":
            return transfer_doing(event)
        case "status" if event.get("secondary_status") == SecondaryStatus.TRAINING:
            return "starting"
        case _:
            return None


def _started(event: Mapping[str, Any], color: bool) -> str:
    return f"paceline  run {event.get('run')}  {event.get('directory')}"


def _attempt(event: Mapping[str, Any], color: bool) -> str | None:
    hosts = event.get("hosts") or []
    if len(hosts) < 2:
        return None
    listed = ", ".join(
        f"{h['host']} ({named_ranks(range(h['first_rank'], h['first_rank'] + h['ranks']))})" for h in hosts[:4]
    )
    more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
    return f"paceline  {event.get('world_size')} ranks on {len(hosts)} hosts: {listed}{more}"


def _waiting(event: Mapping[str, Any], color: bool) -> str:
    lines = [f"paceline  waiting for hosts ({event.get('waited_seconds')} s)"]
    for entry in event.get("missing") or ():
        ranks = entry.get("ranks")
        who = f"{entry.get('host')}" + (f" ({named_ranks(range(ranks[0], ranks[1] + 1))})" if ranks else "")
        lines.append(f"  missing   {who}: {entry.get('saw')}")
    return "\n".join(lines)


def _token_needed(event: Mapping[str, Any], color: bool) -> str:
    file, address = event.get("file"), str(event.get("address"))
    if _LOOPBACK.match(address):
        address = "NAME-OF-THE-FIRST-HOST"
    return (
        f"paceline  the other hosts need this user's token, {file}; where they do not share it, on each of them:\n"
        f"  scp {address}:{file} ~/paceline-token\n"
        "  paceline run --set token_file=~/paceline-token ...   the same arguments as here, with its own --node-rank"
    )


def _joined(event: Mapping[str, Any], color: bool) -> str:
    return f"paceline  joined run {event.get('run')} as {event.get('host')}"


def _lost(event: Mapping[str, Any], color: bool) -> str:
    return f"paceline  host {event.get('host')} is lost: {event.get('reason')}"


def _leaves(event: Mapping[str, Any], color: bool) -> str:
    # A host that only waits stops no ranks, and the others may be too few.
    return f"paceline  host {event.get('host')} leaves ({event.get('reason')}): the job may go on without it"


def _restart(event: Mapping[str, Any], color: bool) -> str:
    left, step = event.get("restarts_left"), event.get("resume_step")
    if step is not None:
        return f"paceline  restart {event.get('attempt')} at step {step}: {event.get('reason')}"
    return f"paceline  restart {event.get('attempt')} ({left} left): {event.get('reason')}"


def _began(event: Mapping[str, Any], color: bool) -> str | None:
    found = fact_or_none(Restart, event.get("restart"))
    if found is None or found.loaded is None:
        return None
    notice = restart_finding(found)
    return f"paceline  {restart_line(found)}" if notice is None else error_text(notice, color=color)


def _resumed(event: Mapping[str, Any], color: bool) -> str | None:
    found = fact_or_none(Resumption, event)
    return None if found is None else f"paceline  {resumed_line(found)}"


def _stop_asked(event: Mapping[str, Any], color: bool) -> str:
    if event.get("now"):
        return "paceline  stopping now: SIGKILL to every rank"
    hint = "; Ctrl-C again to stop now" if event.get("signal") == "SIGINT" else ""
    return f"paceline  stopping: {event.get('reason')}; {event.get('signal')} to every rank{hint}"


def _notice(event: Mapping[str, Any], color: bool) -> str:
    return f"paceline  {event.get('text')}"


def _open_port(event: Mapping[str, Any], color: bool) -> str:
    finding = Finding(
        code="U12",
        severity=Severity.WARNING,
        what="the agents' port is open to anyone who can reach it",
        saw=str(event.get("text")),
        next="export PACELINE_TOKEN=$(openssl rand -hex 16) on every host",
    )
    return error_text(finding, color=color)


def _refused(event: Mapping[str, Any], color: bool) -> str:
    error = PacelineError(
        str(event.get("code")), str(event.get("what")), saw=str(event.get("saw")), next=str(event.get("next"))
    )
    return error_text(error, color=color)


def _finding(event: Mapping[str, Any], color: bool) -> str | None:
    finding = fact_or_none(Finding, event)
    return None if finding is None else error_text(finding, color=color)


def _cause(event: Mapping[str, Any], color: bool) -> str | None:
    finding = fact_or_none(CauseFinding, event.get("finding"))
    # The summary of the run begins with the exception; printed here too, it would appear twice. Of an attempt that another one goes on
    # from, the lines about the restart say enough.
    if finding is None or finding.code == _EXCEPTION or event.get("resumed"):
        return None
    return "\n".join([*finding_lines(finding, WhyPage(color=color), more=False), "  more      paceline why"])


def _stall(event: Mapping[str, Any], color: bool) -> str | None:
    """The first message about a stall. A later event of the same stall changes its level, and its cause is reported separately."""
    still = fact_or_none(Stall, event.get("standstill"))
    if still is None or still.progress:
        return None
    seen = f"threshold {duration(still.threshold_seconds)}"
    return f"paceline  {stall_text(still, still.detected_ns)} ({seen}); inspecting"


def _stall_over(event: Mapping[str, Any], color: bool) -> str:
    return f"paceline  {stall_over_text(event)}"


def _forecast(event: Mapping[str, Any], color: bool) -> str | None:
    found = fact_or_none(Forecast, event.get("forecast"))
    if found is None or will_be_cut(found) is False:
        return None
    return f"paceline  {forecast_text(found)}"


def _transfer(event: Mapping[str, Any], color: bool) -> str | None:
    return transfer_text(event)


_WRITERS = {
    "run_started": _started,
    "attempt_started": _attempt,
    "waiting": _waiting,
    "token_needed": _token_needed,
    "joined": _joined,
    "host_leaves": _leaves,
    "host_lost": _lost,
    "restart": _restart,
    ATTEMPT_BEGAN: _began,
    RESUMED: _resumed,
    "stop_asked": _stop_asked,
    "notice": _notice,
    "open_port": _open_port,
    "refused": _refused,
    "finding": _finding,
    "cause": _cause,
    "standstill": _stall,
    "standstill_over": _stall_over,
    "forecast": _forecast,
    "transfer": _transfer,
}

NOT_TOLD = {
    "attached": "paceline why says it",
    "attempt_ended": "the attempt's next line says it, or the summary",
    "clock": "recording/clocks.py corrects the stamps of other hosts by it",
    "divergence": "its cause is told",
    "fork_server": "only where it is refused, in a notice",
    "hang_confirmed": "the end of the attempt names it",
    "host_joined": "attempt_started names the hosts",
    "host_look": "causes read it",
    "last_pulses": "causes read it",
    "look": "causes read it; paceline stack shows it",
    "mixed_group": "its cause is told",
    "lines_lost": "the reader of the file names it",
    "process_unwatched": "not_judged names it",
    "rank_exited": "the end of the attempt names the first",
    "rank_joined": "compare and causes read it",
    "rank_started": "the number of ranks is in the live line",
    "replica": "causes read it",
    "run_finished": "the summary says it",
    "sampler": "causes read it",
    "sensor_missing": "not_judged names it",
    "source_check": "it was printed before the run; paceline why shows it",
    "status": "ps and top show it",
    "stopping": "stop_asked or the end names the reason",
    "tempo": "causes and the page read it",
}
"""Events that no line is written for, and what becomes of them."""
