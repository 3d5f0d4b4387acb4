"""`paceline bench --rehearse`: trains a few steps at growing sizes, and predicts larger sizes from them."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cli.parsing import VerbParser
from paceline.cli.picture_file import SVG, refuse_impossible, write_picture
from paceline.option import MODULE, Option, Verb

if TYPE_CHECKING:
    from paceline.errors import UsageError
    from paceline.parts.plan.planner.rehearsal import Prediction, Rehearsal

USAGE = "paceline bench --rehearse [OPTIONS] SCRIPT [ARGUMENTS ...]"
STEPS = Option("steps", "Steps of each try after its warm-up of 5.", "N", default="30")
REHEARSE = Option("rehearse", "Train a few steps of a script at growing sizes, and predict larger ones.")
OWN = (
    REHEARSE,
    Option("sizes", "Ranks of each try, or HOSTSxRANKS.", "N,...", default_text="1,2"),
    Option(
        "predict", "Sizes to predict, written as --sizes.", "N,...", default_text="twice and four times the largest"
    ),
    Option("no-probe", "Do not time the exchange itself."),
    Option(
        "run-options",
        "Further options of `paceline run`, quoted as one word.",
        "TEXT",
        default="",
        more="Such as `--run-options '--hp lr=0.1 --channel train=data'`.",
    ),
    Option("out", "Write the rehearsal to this file as well.", "FILE"),
)
"""The options that no other form of the bench has."""
FORM = Verb(
    "bench",
    "Train a few steps at growing sizes on the machines that you have, and predict larger sizes from them.",
    (
        (
            "paceline bench --rehearse --sizes 1,2 train.py --lr 3e-4",
            "30 steps with 1 and with 2 ranks, then what 4 and 8 would do",
        ),
        (
            "paceline bench --rehearse --sizes 1x2,2x2 --predict 8x2 train.py",
            "1 and 2 hosts of 2 ranks, made on this machine; then 8",
        ),
    ),
    (
        *OWN,
        STEPS,
        Option(
            "local-hosts",
            "Numbers of hosts, made on this machine, each with --nproc-per-node ranks. In place of --sizes.",
            "N,...",
        ),
        Option("nproc-per-node", "Ranks of each host, with --local-hosts.", "N", default="1"),
        Option("timeout", "How long to wait for a step.", "DURATION", default="10m"),
        SVG,
        MODULE,
    ),
    script_place=1,
    usage=USAGE,
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options before the script. Words after the script belong to the script.

    Raises:  UsageError U01 to U03: an unknown or invalid option, or no script
    """
    from paceline.parts.lab.cli.rehearse.options import with_script

    return with_script(VerbParser(FORM), argv)


def run(args: argparse.Namespace) -> int:
    """Try each size, write the measurements, print the prediction for larger sizes.

    Raises:  UsageError X05: a size failed; the measurements before it are kept. U22: a file could not be written; the page was printed
             KeyboardInterrupt, SystemExit: the user ended it; the measurements are kept
    """
    from paceline.cli.progress import ProgressLine
    from paceline.cli.run import verb as run
    from paceline.errors import UsageError
    from paceline.parts.lab.cli.rehearse.options import wanted_of
    from paceline.parts.lab.rehearsal import Rehearser
    from paceline.parts.plan.rehearsal_file import FILE, new_folder, rehearsals_root

    wanted = wanted_of(args)
    refuse_impossible(args.svg)
    progress = ProgressLine("rehearsing", len(wanted.sizes), "sizes", shown=not args.json)

    def tell(line: str) -> None:
        progress.add()
        with progress.hidden():
            _tell(line)

    rehearser = Rehearser(wanted, os.environ, tell=tell)
    rehearser.refuse(lambda argv: run.would_run(argv, os.environ))
    folder = new_folder(rehearsals_root())
    path = folder / FILE
    paths = (path, *((Path(args.out),) if args.out else ()))
    try:
        with progress:
            rehearsal = rehearser.rehearse(folder)
    except UsageError as failure:
        kept = _kept(rehearser.so_far(folder), paths)
        raise UsageError(failure.code, failure.what, saw=failure.saw + kept, next=failure.next) from failure
    except (KeyboardInterrupt, SystemExit):
        if kept := _kept(rehearser.so_far(folder), paths):
            _tell(kept.removeprefix("; "))
        raise
    refused = _write(rehearsal, paths)
    _show(rehearsal, wanted.predict, path, args)
    if refused is not None:
        raise refused
    return 0


def _write(rehearsal: "Rehearsal", paths: Sequence[Path]) -> "UsageError | None":
    """Write every file that can be written. Returns the error of the first file that cannot."""
    from paceline.errors import UsageError
    from paceline.parts.plan.rehearsal_file import write_rehearsal

    refused = None
    for path in paths:
        try:
            write_rehearsal(path, rehearsal)
        except UsageError as error:
            refused = refused or error
    return refused


def _kept(rehearsal: "Rehearsal", paths: Sequence[Path]) -> str:
    """What happened to the sizes measured before the end, as the rest of a sentence; "" if there are none."""
    if not rehearsal.sizes:
        return ""
    refused = _write(rehearsal, paths)
    return f"; what was measured is in {paths[0]}" if refused is None else f"; {refused.what}: {refused.saw}"


def _tell(text: str) -> None:
    print(f"paceline  {text}", file=sys.stderr, flush=True)


def _show(rehearsal: "Rehearsal", shapes: Sequence[tuple[int, int]], path: Path, args: argparse.Namespace) -> None:
    from paceline.cli.terminal import ascii_only, columns
    from paceline.parts.lab.views.rehearsal_picture import rehearsal_svg
    from paceline.parts.lab.views.rehearse import rehearsal_json, rehearsal_text
    from paceline.parts.plan.planner.rehearsal import predict

    predicted: tuple[Prediction, ...] = predict(rehearsal, shapes)
    if args.json:
        print(json.dumps(rehearsal_json(rehearsal, predicted, str(path))))
    else:
        width, plain = columns(sys.stdout), ascii_only(sys.stdout)
        print(rehearsal_text(rehearsal, predicted, str(path), width=width, ascii_only=plain))
    if args.svg:
        write_picture(args.svg, rehearsal_svg(rehearsal, predicted), as_json=args.json)
