"""Translates Slurm's states of a job: parsers of scontrol and sacct, and the table of states. Pure."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.clone import install_command
from paceline.errors import PacelineError
from paceline.facts import SecondaryStatus, Status
from paceline.part import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """Slurm's description of one job, or of one task of an array."""

    id: str
    """The job's number."""
    state: str
    """State of the job, in Slurm's word."""
    reason: str = ""
    """The reason of the state, in Slurm's word; empty: Slurm gives no reason."""
    exit_code: int | None = None
    """Exit code of the job's script; None: not known."""
    signal: int = 0
    """The signal that ended the job; 0: no signal."""
    restarts: int = 0
    """Number of restarts."""
    nodes: tuple[str, ...] = ()
    """Names of the job's nodes; empty: the job has no nodes yet."""
    task: str | None = None
    """Number of the array's task; None: the job is not an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The job script's note about the end of one attempt."""

    number: int
    """Number of the attempt, counted from 1."""
    code: int
    """The run's exit code."""
    asked: str
    """What ended the attempt from outside: "cancelled", "time limit", or empty."""
    next: str
    """What follows: "end" or "requeue"."""


@dataclass(frozen=True, slots=True)
class StateMapping:
    """The meaning of one Slurm state."""

    status: Status
    """Status in SageMaker's words."""
    secondary: SecondaryStatus
    """Secondary status in SageMaker's words."""
    code: int | None = None
    """The run's exit code if the job's script has written none; None: Slurm's exit code counts."""
    text: str = ""
    """The reason, for people; empty: the recording or Slurm gives the reason."""


_WORKING, _FAILED, _STOPPED = Status.IN_PROGRESS, Status.FAILED, Status.STOPPED

STATES: Mapping[str, StateMapping] = {
    "PENDING": StateMapping(_WORKING, SecondaryStatus.PENDING),
    "CONFIGURING": StateMapping(_WORKING, SecondaryStatus.STARTING, text="its nodes are being made ready"),
    "RUNNING": StateMapping(_WORKING, SecondaryStatus.TRAINING),
    "SIGNALING": StateMapping(_WORKING, SecondaryStatus.TRAINING),
    "RESIZING": StateMapping(_WORKING, SecondaryStatus.TRAINING),
    "SUSPENDED": StateMapping(_WORKING, SecondaryStatus.INTERRUPTED, text="suspended by Slurm"),
    "STOPPED": StateMapping(_WORKING, SecondaryStatus.INTERRUPTED, text="stopped by a signal, its nodes are kept"),
    "COMPLETING": StateMapping(_WORKING, SecondaryStatus.STOPPING, text="its nodes are being cleared"),
    "STAGE_OUT": StateMapping(_WORKING, SecondaryStatus.UPLOADING, text="its burst buffer is being copied"),
    "REQUEUED": StateMapping(_WORKING, SecondaryStatus.RESTARTING),
    "REQUEUE_FED": StateMapping(_WORKING, SecondaryStatus.RESTARTING),
    "REQUEUE_HOLD": StateMapping(_WORKING, SecondaryStatus.PENDING, text="held after a requeue: scontrol release"),
    "RESV_DEL_HOLD": StateMapping(_WORKING, SecondaryStatus.PENDING, text="held, its reservation was deleted"),
    "SPECIAL_EXIT": StateMapping(_WORKING, SecondaryStatus.PENDING, text="held after a special exit: scontrol release"),
    "COMPLETED": StateMapping(Status.COMPLETED, SecondaryStatus.COMPLETED, 0),
    "FAILED": StateMapping(_FAILED, SecondaryStatus.FAILED),
    "CANCELLED": StateMapping(_STOPPED, SecondaryStatus.STOPPED, 143, "cancelled"),
    "REVOKED": StateMapping(_STOPPED, SecondaryStatus.STOPPED, 143, "taken by another cluster of the federation"),
    "TIMEOUT": StateMapping(_STOPPED, SecondaryStatus.MAX_RUNTIME_EXCEEDED, 204, "Slurm's time limit was reached"),
    "DEADLINE": StateMapping(_STOPPED, SecondaryStatus.MAX_RUNTIME_EXCEEDED, 204, "Slurm's deadline was reached"),
    "PREEMPTED": StateMapping(_STOPPED, SecondaryStatus.INTERRUPTED, 204, "preempted by another job"),
    "NODE_FAIL": StateMapping(_FAILED, SecondaryStatus.FAILED, 200, "Slurm lost a node of the job"),
    "BOOT_FAIL": StateMapping(_FAILED, SecondaryStatus.FAILED, 201, "a node of the job did not boot"),
    "LAUNCH_FAILED": StateMapping(_FAILED, SecondaryStatus.FAILED, 201, "a node could not start the job"),
    "RECONFIG_FAIL": StateMapping(_FAILED, SecondaryStatus.FAILED, 201, "a node could not be reconfigured"),
    "OUT_OF_MEMORY": StateMapping(_FAILED, SecondaryStatus.FAILED, 137, "out of memory"),
}
"""Every state of squeue(1), "JOB STATE CODES", and its meaning."""

# For these states the table's code counts, whatever the job's script has written before.
_SLURM_KNOWS = frozenset(
    {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"}
)

WAITS: Mapping[str, str] = {
    "Resources": "waits for nodes that are free",
    "Priority": "waits, jobs with a higher priority come first",
    "BeginTime": "waits for its begin; a job that starts again waits for AuthInfo's cred_expire, 120 s unless set",
    "Dependency": "waits for another job",
    "PartitionTimeLimit": "asks for more time than the partition gives, and will never start: --option time=MINUTES",
    "PartitionNodeLimit": "asks for more nodes than the partition gives, and will never start: fewer hosts",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes jobs and starts none",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "JobHeldUser": "held: scontrol release",
    "JobHeldAdmin": "held by an administrator, or because a node could not start it",
    "launch_failed_requeued_held": "held, because a node could not start it: scontrol release",
    "ReservationDeleted": "its reservation was deleted",
    "InvalidAccount": "its account is not valid any more",
    "InvalidQOS": "its QOS is not valid any more",
}
"""Slurm's reason of a pending job -> its meaning. Reasons about limits of QOS and association are passed on without a change."""

# slurmd's code if it could not open the job's output: ESLURMD_... of job_io, which appears as a "signal".
_NO_OUTPUT = (0, 53)


def parse_scontrol(text: str) -> tuple[SlurmJob, ...]:
    """The jobs in the output of `scontrol show job -o`, one per line.

    Raises:  PacelineError U19: a line is not a job
    """
    return tuple(_scontrol_job(line) for line in text.splitlines() if line.strip())


_ID = re.compile(r"JobId=(\d+)(?: ArrayJobId=\d+ ArrayTaskId=(\S+))?")
# A job's name may contain any text, even a text that looks like a state. The real state comes after the user.
_STATE = re.compile(
    r" UserId=\S+ GroupId=\S+ .*? JobState=(\S+) Reason=(.*?) Dependency=\S* .*?Restarts=(\d+) .*?ExitCode=(\d+):(\d+) "
)
_NODES = re.compile(r" ExcNodeList=\S* NodeList=(\S+) ")


def _scontrol_job(line: str) -> SlurmJob:
    identity, state = _ID.match(line), _STATE.search(line)
    if identity is None or state is None:
        raise unreadable("scontrol", line)
    nodes = _NODES.search(line)
    return SlurmJob(
        id=identity[1],
        task=identity[2],
        state=state[1],
        reason=_own(state[2]),
        restarts=int(state[3]),
        exit_code=int(state[4]),
        signal=int(state[5]),
        nodes=expand(_own(nodes[1] if nodes else "")),
    )


SACCT_FIELDS = "JobID,State,ExitCode,NodeList,Reason"


def parse_sacct(text: str) -> tuple[SlurmJob, ...]:
    """The jobs of `sacct -X -D -n -P --format=SACCT_FIELDS`: one line per attempt. The last line counts, the others are restarts.

    Raises:  PacelineError U19: a line is not a job
    """
    found: dict[str, SlurmJob] = {}
    for line in filter(str.strip, text.splitlines()):
        fields = line.split("|")
        if len(fields) != 5 or not re.fullmatch(r"\d+:\d+", fields[2]):
            raise unreadable("sacct", line)
        # "CANCELLED by 1000"
        state = fields[1].partition(" ")[0].rstrip("+")
        code, signal = map(int, fields[2].split(":"))
        number, _, task = fields[0].partition("_")
        before = found.get(fields[0])
        found[fields[0]] = SlurmJob(
            id=number,
            task=task or None,
            state=state,
            reason=_own(fields[4]),
            exit_code=code,
            signal=signal,
            restarts=before.restarts + 1 if before else 0,
            nodes=expand("" if fields[3] == "None assigned" else fields[3]),
        )
    return tuple(found.values())


def _own(word: str) -> str:
    return "" if word in ("None", "(null)", "N/A") else word


def unreadable(command: str, line: str) -> PacelineError:
    """The error U19: Slurm's answer is not in a known form."""
    return PacelineError("U19", f"{command}'s answer cannot be read", saw=line[:200], next="sinfo --version")


def expand(nodes: str) -> tuple[str, ...]:
    """The node names of a list in Slurm's short form.

    Holds:   "gpu[08-10],login" -> gpu08, gpu09, gpu10, login; "r[1-2]n[1,4]" -> r1n1, r1n4, r2n1, r2n4
    Source:  scontrol(1), "show hostnames"
    """
    return tuple(name for part in _parts(nodes) for name in _expand_part(part))


def _parts(text: str) -> Iterator[str]:
    part, depth = "", 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            yield part
            part = ""
        else:
            part += letter
    if part:
        yield part


def _expand_part(part: str) -> Iterator[str]:
    pieces = re.split(r"\[([^]]*)\]", part)
    choices = [list(_numbers(piece)) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return ("".join(choice) for choice in itertools.product(*choices))


def _numbers(text: str) -> Iterator[str]:
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"


def parse_end(text: str) -> AttemptEnd:
    """Parse the job script's note about an attempt.

    Raises:  PacelineError U19: the text is not in the script's form
    """
    try:
        note = json.loads(text)
        return AttemptEnd(
            number=int(note["try"]), code=int(note["code"]), asked=str(note["asked"]), next=str(note["next"])
        )
    except (ValueError, TypeError, KeyError) as error:
        raise unreadable("the job's script", text) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFiles:
    """The data from the files that a job left in its directory."""

    ends: Sequence[AttemptEnd] = ()
    """How the job's attempts ended, as far as its script has noted it."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Name of a host in the job -> name of its node."""
    reason: str = ""
    """Why the run ended, from the attempt's recording; empty: the run has not ended, or the reason was not recorded."""
    secondary: SecondaryStatus | None = None
    """Secondary status of that end; None: the run has not ended, or the status was not recorded."""

    def end_of(self, number: int) -> AttemptEnd | None:
        """How attempt `number` ended; None: the script has not noted it."""
        return next((end for end in self.ends if end.number == number), None)


def observed(own: SlurmJob, left: AttemptFiles) -> Observation:
    """The state of one job, from Slurm's word and from the files that the job left.

    Raises:  PacelineError U19: the table has no such state; the error names it
    """
    meaning = STATES.get(own.state)
    if meaning is None:
        raise PacelineError(
            "U19",
            f"Slurm says that job {own.id} is {own.state}",
            saw="a state that this paceline does not know",
            next=f"git pull in the clone, then {install_command()}",
        )
    nodes = left.nodes or {name: name for name in own.nodes}
    tries = own.restarts + 1
    end = left.end_of(tries)
    if meaning.status is _WORKING:
        # For the script a preemption looks like a cancellation, and another attempt may follow.
        if end is not None and end.next == "end" and end.asked != "cancelled":
            return of_end(end, own.state, nodes, left)
        again = (end is not None and end.next == "requeue") or (own.state == "PENDING" and own.restarts > 0)
        secondary = SecondaryStatus.RESTARTING if again else meaning.secondary
        reason = meaning.text or _waits(own.reason)
        return Observation(
            status=_WORKING, secondary_status=secondary, own_word=own.state, reason=reason, nodes=nodes, tries=tries
        )
    if end is not None and own.state not in _SLURM_KNOWS:
        return of_end(end, own.state, nodes, left)
    code = meaning.code if meaning.code is not None else _code(own)
    reason = meaning.text or left.reason or _why(own, code)
    if own.state == "NODE_FAIL" and own.nodes:
        reason = f"{reason} ({', '.join(own.nodes)})"
    return Observation(
        status=meaning.status,
        secondary_status=meaning.secondary,
        own_word=own.state,
        reason=reason,
        exit_code=code,
        nodes=nodes,
        tries=tries,
    )


def is_working(state: str) -> bool:
    """Whether a job in this state can still be cancelled. In an unknown state, the answer is yes."""
    return state not in STATES or STATES[state].status is _WORKING


def of_end(end: AttemptEnd, own_word: str, nodes: Mapping[str, str], left: AttemptFiles) -> Observation:
    """The state of a job whose script has noted how the last attempt ended."""
    status, secondary, reason = Status.FAILED, SecondaryStatus.FAILED, left.reason or f"ended with {end.code}"
    if end.code == 0:
        status, secondary = Status.COMPLETED, SecondaryStatus.COMPLETED
    elif end.asked == "cancelled":
        status, secondary, reason = Status.STOPPED, SecondaryStatus.STOPPED, "cancelled"
    elif end.asked == "time limit" and end.code == 204:
        status, secondary = Status.STOPPED, SecondaryStatus.MAX_RUNTIME_EXCEEDED
        reason = STATES["TIMEOUT"].text
    elif end.code == 204:
        status, secondary = Status.STOPPED, left.secondary or SecondaryStatus.INTERRUPTED
    return Observation(
        status=status,
        secondary_status=secondary,
        own_word=own_word,
        reason=reason,
        exit_code=end.code,
        nodes=nodes,
        tries=end.number,
    )


def of_array(tasks: Iterable[tuple[str, Observation]]) -> Observation:
    """One observation for an array. The array runs as long as one of its tasks runs, and fails with the first failed task."""
    seen = list(tasks)
    lasting = [entry for entry in seen if not entry[1].ended]
    bad = [entry for entry in seen if entry[1].exit_code != 0]
    task, chosen = next((entry for entry in lasting if entry[1].own_word == "RUNNING"), (lasting or bad or seen)[0])
    nodes = {host: node for _, one in seen for host, node in one.nodes.items()}
    return Observation(
        status=chosen.status,
        secondary_status=chosen.secondary_status,
        own_word=chosen.own_word,
        reason=f"task {task}: {chosen.reason}" if chosen.reason else "",
        exit_code=chosen.exit_code,
        nodes=nodes,
        tries=max(one.tries for _, one in seen),
    )


def _waits(reason: str) -> str:
    return f"{WAITS[reason]} ({reason})" if reason in WAITS else reason


def _code(own: SlurmJob) -> int:
    if own.exit_code:
        return own.exit_code
    return 128 + own.signal if 0 < own.signal < 65 and (own.exit_code, own.signal) != _NO_OUTPUT else 1


def _why(own: SlurmJob, code: int) -> str:
    if (own.exit_code, own.signal) == _NO_OUTPUT:
        return (
            "its first node could not open slurm/job.out; is the run's directory on a file system that every node sees?"
        )
    return f"ended with {code}" + (f" ({own.reason})" if own.reason else "")
