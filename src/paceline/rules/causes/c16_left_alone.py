"""C16: a rank is gone, and nobody has ended the others."""

from collections.abc import Iterator

from paceline.diagnosis.case import Attached, Case, Level
from paceline.diagnosis.stacks import place_of
from paceline.findings import Cause, CauseFinding, Confidence, Ground
from paceline.recording.rank_sets import named_ranks

TITLE = "rank is gone, and nobody has ended the others"
PAGE = """\
A rank is gone, and nobody has ended the others

What it means: A rank that was started on this host has no process any more. What started it has not ended the other
  ranks, which wait for it.
Why it matters: They wait until the timeout of the process group, and hold their GPUs meanwhile. torchrun and `srun
  --kill-on-bad-exit` end the others; ranks that were started by hand, by mpirun of some versions or by a script of
  one's own are on their own.
Deciding evidence: The ranks of a host are numbered, and one number has no process, while the others wait.
Not to be confused with: R01 (a rank that was never started); N15 (a rank of a host that was not looked at); C01 to C12,
  which say how a rank of paceline's own run ended: from outside nobody knows.
What to do: Ask what started it how it ended: its output, `sacct`, `kubectl describe pod`, `dmesg`. End the others.
How to inject it: start the ranks of examples/attached/c16_left_alone.py by hand, then `paceline why PID`.
Source: paceline/attach/jobs.py.
"""


def find(case: Case) -> Iterator[CauseFinding]:
    if case.stall is None:
        return
    for one in case.attached.values():
        if one.missing:
            yield _finding(case, one)


def _finding(case: Case, one: Attached) -> CauseFinding:
    host = case.host_snapshots.get(one.host)
    kernel = [
        line
        for line in (host.kernel_lines or () if host is not None else ())
        if "illed process" in line or "segfault" in line
    ]
    left = [snapshot for snapshot in case.snapshots.values() if snapshot.host == one.host]
    starter = one.launcher or "the program that started it"
    starter += f" (pid {one.launcher_pid})" if one.launcher_pid else ""
    verb = "has" if len(one.missing) == 1 else "have"
    return CauseFinding(
        code="C16",
        title=TITLE,
        level=Level.CRASH,
        ranks=one.missing,
        hosts=(one.host,),
        # Where nothing is above the ranks, their numbers alone say that they belong here.
        confidence=Confidence.HIGH if one.launcher_pid else Confidence.LIKELY,
        saw=(
            f"{named_ranks(one.missing)} of {case.world_size or '?'} {verb} no process on {one.host}",
            *(f"rank {snapshot.rank} is {place_of(snapshot)}" for snapshot in left[:3]),
            *(f"the kernel of {one.host} said: {line}" for line in kernel[-2:]),
        ),
        ruled_out=("not late: a process that has ended comes to no collective",),
        next=(
            f"how it ended: ask {starter} (its output, sacct, kubectl describe pod)",
            "end the others: kill " + " ".join(str(snapshot.pid) for snapshot in left),
        ),
    )


RULE = Cause(code="C16", title=TITLE, page=PAGE, find=find, beats=("R01",), sure_by=(Ground.EVENTS,))
