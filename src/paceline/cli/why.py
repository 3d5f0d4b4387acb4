"""Say why a job hangs, failed, computes wrong numbers or is slow, from its recording or from the plain logs of any job."""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.cli.parsing import say_where
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import ascii_only, room, use_color
from paceline.cli.values import fail_on
from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.verdict import Diagnosis, diagnose
from paceline.errors import NotEnoughEvidence, UsageError
from paceline.facts import Evidence, Run, SecondaryStatus, Status
from paceline.findings import CauseFinding
from paceline.option import FURTHER_DIRECTORIES, RUN_DIR, Option, Verb
from paceline.part import GoesOn, first_answer, parts
from paceline.recording.jsonl import ReadJsonLines, read_json_lines

_ANY = "any"
_PROCESS = re.compile(r"(?:pid:)?[0-9]{1,10}")
VERB = Verb(
    "why",
    __doc__ or "",
    (
        ("paceline why", "why the newest run here is in trouble; without one, the job that runs here"),
        ("paceline why 4711", "why the job of this process hangs, whatever started it"),
    ),
    (
        Option(
            "runs",
            "Id of a run, the beginning of an id, or its directory. Further ones are directories of the same run, as with --dir. "
            "A number, or pid:NUMBER, is a process: a rank of any job on this machine, its launcher, or a shell above it.",
            "RUN",
            default_text="the newest run here",
            count="*",
            is_positional=True,
        ),
        Option("all", "Look at every training job of this user on this machine, whatever started it."),
        Option(
            "hosts",
            "Look at the other hosts of the process's job as well: NODE or USER@NODE by ssh, slurm:JOB, pod:NAME; commas between them.",
            "PLACES",
        ),
        Option(
            "record", "Keep what is seen of a job as a run, for paceline stack, report and web, and for a colleague."
        ),
        Option("everybody", "With --all: also at those of other users, as far as it is allowed."),
        Option(
            "log",
            "Read plain logs and flight-recorder dumps of a job that ran without paceline; - is standard input, gzip is unpacked.",
            "FILE",
            count="+",
            stored_as="logs",
        ),
        RUN_DIR,
        FURTHER_DIRECTORIES,
        Option(
            "fail-on",
            "Exit with 1 if this was found: a code (N01), a level (stall), or any. May be repeated.",
            "WHAT",
            default=(),
            repeatable=True,
        ),
    ),
    page="""\
The answer has the state of the job, each finding in four parts with how sure it is, and what could not be judged. The
job may still run, may have ended, or may have lost its agent. It is read here, or from copied run directories. How
causes are found is in [diagnosis.md](diagnosis.md).""",
    notes="""\
`--json` prints `paceline.why/2`: [its keys](schemas.md#pacelinewhy2). `status` is `Failed` and `finished_ns` is null if
the agent is gone and said nothing. `status` is null if another host's directory alone does not say it, and of plain
logs. `earlier` has findings that were told while the job ran and are none now.""",
)


def run(args: argparse.Namespace) -> int:
    wanted = _fail_on(args.fail_on)
    if args.logs is not None:
        if beside := [*args.runs, *args.directories, *filter(None, [args.run_dir])]:
            raise UsageError(
                "U03",
                "--log reads files, and a RUN is given beside it",
                saw=" ".join(beside),
                next=f"paceline why --log {' '.join(args.logs)}",
            )
        from paceline.cli.why_log import answer_logs

        findings = answer_logs(args)
    elif args.all or (args.runs and _PROCESS.fullmatch(args.runs[0])):
        from paceline.cli.why_process import answer_processes

        findings = answer_processes(args)
    elif args.runs and (
        of_a_process := [f"--{name}" for name in ("hosts", "record", "everybody") if getattr(args, name)]
    ):
        raise UsageError(
            "U03",
            f"{of_a_process[0]} is about a job that runs, and {args.runs[0]} is a recorded one",
            saw=" ".join((*args.runs, *of_a_process)),
            next=f"paceline why {args.runs[0]}, or paceline why PID {of_a_process[0]}",
        )
    else:
        findings = _answer_run(args)
    return 1 if any(_is_wanted(finding, wanted) for finding in findings) else 0


def judge_run(
    directories: Sequence[Path], *, now_ns: int, read: ReadJsonLines = read_json_lines
) -> tuple[Case, Diagnosis, Evidence]:
    """The case of a recording, as far as it can be read, and the findings of the causes. `read`: as in evidence().

    Raises:  NotEnoughEvidence U20: the recording has neither an event nor a rank
    """
    from paceline.attach.record import judge_again, recorded
    from paceline.diagnosis.build_case import case_of
    from paceline.recording.evidence import evidence
    from paceline.recording.layout import RunDirectory
    from paceline.recording.log_tails import stderr_tails
    from paceline.rules import all_causes
    from paceline.views.status import run_lasts

    found = evidence(directories[0], *directories[1:], recent=True, read=read)
    if not found.events and not found.ranks:
        raise NotEnoughEvidence(
            "U20",
            f"the recording of {found.run.id} has nothing to judge by",
            saw="no event and no rank: " + ("; ".join(found.not_judged) or "the files are empty"),
            next=f"ls -lR {directories[0]}",
        )
    places = tuple(RunDirectory(path) for path in directories)
    if seen := recorded(places):
        judged = judge_again(seen, found.run, all_causes())
        return judged.case, judged.diagnosis, found
    attempt = max((record.attempt for record in found.ranks), default=0)
    tails, complaints = stderr_tails(places, attempt)
    case = case_of(
        found,
        tails=tails,
        now_ns=now_ns,
        lasts=run_lasts(found.run),
    )
    diagnosis = diagnose(case, all_causes())
    return case, replace(diagnosis, not_judged=(*diagnosis.not_judged, *complaints)), found


def _answer_run(args: argparse.Namespace) -> Sequence[CauseFinding]:
    from paceline.recording.runs import at_path, find_run, of_one_run
    from paceline.views.documents import json_text
    from paceline.views.why import WhyPage, why_json, why_text

    root = Path(args.run_dir) if args.run_dir else None
    text = args.runs[0] if args.runs else None
    try:
        first = find_run(text, root)
    except UsageError:
        if text is not None or root is not None or args.directories:
            raise
        from paceline.cli.why_process import answer_only_job

        if (findings := answer_only_job(args)) is None:
            raise
        return findings
    say_where(first, text, root)
    directories = of_one_run([first, *(at_path(Path(text)) for text in (*args.runs[1:], *args.directories))])
    with ProgressLine(f"judging {directories[0].name}", shown=not args.json):
        case, diagnosis, found = judge_run(directories, now_ns=time.time_ns())
    if args.json:
        print(json_text(why_json(diagnosis, case)))
    else:
        page = WhyPage(
            width=room(sys.stdout),
            color=use_color(args.color, sys.stdout),
            ascii_only=ascii_only(sys.stdout),
            time_spent=_time_spent(found, case),
            goes_on=_goes_on(found.run, directories[0]),
        )
        print(why_text(diagnosis, case, page))
    return diagnosis.findings


def _goes_on(run: Run, directory: Path) -> GoesOn | None:
    """How a run that broke off goes on."""
    if run.status not in (Status.FAILED, Status.STOPPED):
        return None
    return first_answer(part.goes_on(run, directory) for part in parts())


def _time_spent(found: Evidence, case: Case) -> Sequence[tuple[str, float | None]]:
    """For a run that timed out: where the time went."""
    if found.run.secondary_status is not SecondaryStatus.MAX_RUNTIME_EXCEEDED:
        return ()
    from paceline.diagnosis.time_limit import where_the_time_went

    return where_the_time_went(case, found.ranks)


def _fail_on(texts: Sequence[str]) -> frozenset[str]:
    if not texts:
        return frozenset()
    from paceline.rules import all_causes

    levels = [str(level) for level in Level]
    return fail_on(texts, (_ANY, *levels, *(cause.code for cause in all_causes())), shown=(_ANY, *levels, "codes"))


def _is_wanted(finding: CauseFinding, wanted: frozenset[str]) -> bool:
    return bool(wanted & {_ANY, finding.code, str(finding.level)})
