"""The option of `paceline run` for a job that goes on, and the fields of the job that it sets."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from paceline.errors import UsageError
from paceline.option import Option, section, switch

OPTIONS = (
    *section(
        "of the part resume (preview)",
        Option(
            "resume",
            "auto: keep the state of every rank outside of it, so that all ranks go on after a killed one. A run, URL or directory: begin"
            " at the newest step that is saved there.",
            "auto|off|RUN",
            default="off",
            more="See [running.md](running.md#resume-preview).",
        ),
    ),
    switch("resume_anyway", "Go on from a saved state although the script or torch is another one."),
)
_NO_RUNS = ("yes", "no", "on", "true", "false", "none")


def job_fields(args: Namespace) -> Mapping[str, Any]:
    """Raises:  UsageError U03: --resume names nothing that can be resumed, or no saved state where one is to be taken anyway."""
    if args.resume.lower() in _NO_RUNS:
        raise UsageError("U03", f"--resume {args.resume} is not auto, off or a run", next="--resume auto")
    named = None if args.resume in ("auto", "off") else str(args.resume)
    if args.resume_anyway and not named:
        raise UsageError(
            "U03",
            "--set resume_anyway says which saved state may be used, and --resume names none",
            saw=f"--resume {args.resume}",
            next="paceline run --resume RUN --set resume_anyway=true ...",
        )
    return {"resume": args.resume != "off", "resume_from": named, "resume_anyway": args.resume_anyway}
