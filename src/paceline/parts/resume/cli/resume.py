"""Say which loops of a script `paceline run --resume auto` would go on in after a killed rank; no script is executed.

With --export, write the newest saved state of a run to a file.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.job.options import VERB as RUN
from paceline.cli.job.options import parse_run
from paceline.cli.parsing import VerbParser, split_at_script
from paceline.cli.progress import ProgressLine
from paceline.cli.terminal import ascii_only, room, use_color
from paceline.cli.values import fail_on
from paceline.errors import UsageError
from paceline.findings import Severity
from paceline.option import RUN_DIR, Option, Verb

if TYPE_CHECKING:
    from paceline.rules.job_facts import SourceFile

_NEVER = "never"

VERB = Verb(
    "resume",
    __doc__ or "",
    (
        ("paceline resume train.py", "the loops that go on, and what hinders it"),
        ("paceline resume --export r-7f3a91 out.pt", "the newest saved state of a run as a file for torch.load"),
    ),
    (
        Option("show", "Print the files as they run in a job with --resume auto, as a diff."),
        Option(
            "fail-on",
            "Exit with 1 where this was found: error, warning, a code (F13), or never. May be repeated.",
            "WHAT",
            default=(),
            default_text="error",
            repeatable=True,
        ),
        Option(
            "export",
            "Read no script: write the newest saved state of this run to FILE. RUN is an id of a run, its directory, "
            "or the directory or URL of --checkpoints.",
            "RUN",
        ),
        Option("force", "With --export: replace FILE if it is there already."),
        RUN_DIR,
    ),
    script_place=1,
    usage="""\
paceline resume [OPTIONS] [-m] SCRIPT [ARGUMENTS ...]
paceline resume --export RUN [OPTIONS] FILE""",
    passed_on=tuple(row for row in RUN.options if row.name in ("module", "source-dir")),
    page="""\
The script and the user's own files that it imports are read. A loop marked `trains` is one in which an optimizer steps: at its head
the state is kept. A comment `# paceline: no-resume` on the line of a loop leaves the loop as it is; a file that imports `steps` from
`paceline.resume` names its loops itself. What the files do not show is found in the job, whose lines say it.

With `--export`, `torch.load(FILE, weights_only=True)` gives a dict: `models`, `optimizers` and `schedulers` hold state dicts by the names
of the script's variables, as their `state_dict()` gives them, `values` the other variables that are plain or tensors, and `step`, `run_id`,
`saved_ns`, `rank`, `world_size`, `torch` say what they are of. The state is that of rank 0. A job that runs is not disturbed.""",
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of `paceline resume`, and those that describe the program in `args.run_argv`.

    Raises:  UsageError U01, U03
    """
    ours, script = split_at_script((*RUN.rows, *VERB.rows), argv)
    args, run_argv = VerbParser(VERB).parse_own(ours)
    args.run_argv = [*run_argv, *script]
    if args.export is not None:
        args.file = _file_of(args.run_argv)
    elif args.force:
        raise UsageError("U03", "--force is for --export", next="paceline resume --export RUN --force out.pt")
    elif not script:
        raise UsageError("U03", "which script?", saw="no script", next="paceline resume train.py")
    return args


def _file_of(words: Sequence[str]) -> str:
    if len(words) != 1:
        saw = "no file" if not words else " ".join(words)
        raise UsageError("U03", "--export writes one file", saw=saw, next="paceline resume --export RUN out.pt")
    return words[0]


def run(args: argparse.Namespace) -> int:
    """Print loops and findings; exit code 1 if --fail-on names one of them. With --export, write a file.

    Raises:  UsageError U02: there is no such script, or it is not Python; or those of `export_state`
    """
    if args.export is not None:
        return _export(args)
    from paceline.parts.resume.resumable import look_at
    from paceline.parts.resume.views.resume import resume_facts, resume_text
    from paceline.views.documents import json_text

    _refuse_a_run(args)
    words = (*(str(one) for one in (Severity.ERROR, Severity.WARNING)), _NEVER)
    wanted = fail_on(args.fail_on or (str(Severity.ERROR),), (*words, "F11", "F13"), shown=(*words, "codes"))
    inspection = look_at(_files(args.run_argv))
    if args.json:
        print(json_text(resume_facts(inspection)))
    elif args.show:
        print("\n".join(inspection.diffs) or "no loop gets a call")
    else:
        width, plain = room(sys.stdout), ascii_only(sys.stdout)
        print(resume_text(inspection, width=width, ascii_only=plain, color=use_color(args.color, sys.stdout)))
    return int(any(found.code in wanted or str(found.severity) in wanted for found in inspection.findings))


def _refuse_a_run(args: argparse.Namespace) -> None:
    """Who names a run wants to go on with it.

    Raises:  UsageError U03: the script is the id of a run
    """
    from paceline.parts.resume.recording.saved_state import command_to_go_on
    from paceline.recording.layout import RunDirectory
    from paceline.recording.runs import find_run, read_document

    name = args.run_argv[-1] if len(args.run_argv) == 1 else ""
    if not name.startswith("r-") or os.path.exists(name):
        return
    found = find_run(name, Path(args.run_dir) if args.run_dir else None, verb="paceline run --resume")
    command = read_document(RunDirectory(found).run_file).get("command")
    words = tuple(map(str, command)) if isinstance(command, list) else ()
    is_kept = any(word.partition("=")[0] == "--resume" for word in split_at_script(RUN.rows, words[2:])[0])
    again = (
        shlex.join([*words[:2], "--resume", "auto", *words[2:]]) if words[:2] == ("paceline", "run") else "paceline ps"
    )
    raise UsageError(
        "U03",
        f"paceline resume reads a script, and {name} is a run",
        saw="a run goes on with `paceline run --resume`"
        if is_kept
        else f"{name} was started without --resume: no state of it was kept",
        next=command_to_go_on(words, found.name) if is_kept else again,
    )


def _export(args: argparse.Namespace) -> int:
    from paceline.parts.resume.export_state import export_state
    from paceline.parts.resume.views.exported_state import exported_facts, exported_text
    from paceline.views.documents import json_text

    root = Path(args.run_dir) if args.run_dir else None
    with ProgressLine(f"exporting the newest saved step of {args.export}", shown=not args.json):
        exported = export_state(args.export, args.file, force=args.force, environ=os.environ, runs_root=root)
    if args.json:
        print(json_text(exported_facts(exported)))
    else:
        print(exported_text(exported, width=room(sys.stdout), ascii_only=ascii_only(sys.stdout)))
    return 0


def _files(run_argv: Sequence[str]) -> list["SourceFile"]:
    """The script and the files that it imports."""
    from paceline.cli.job.job import job_file_of
    from paceline.launch.program import require_program
    from paceline.rules.job_facts import SourceFile
    from paceline.rules.sources import read_sources

    job = job_file_of(parse_run(list(run_argv), {})).job
    require_program(job, os.environ)
    script, path, imported = read_sources(job.program, Path(job.contract.code_dir or Path.cwd()))
    if script is None:
        raise UsageError(
            "U02",
            f"{job.program.target} is not a script or a module of Python",
            saw="its loops cannot be read",
            next="paceline resume train.py",
        )
    return [SourceFile(path, script), *imported]
