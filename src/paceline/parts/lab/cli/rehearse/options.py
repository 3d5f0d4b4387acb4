"""Turns a command line of `paceline bench --rehearse` into a rehearsal."""

import argparse
import re
import shlex
from collections.abc import Sequence

from paceline.cli.job.keys import keys_in
from paceline.cli.parsing import VerbParser, split_at_script
from paceline.cli.values import counted, duration, impossible
from paceline.errors import UsageError
from paceline.parts.lab.rehearsal import RehearsalSpec
from paceline.parts.plan.planner.rehearsal import sizes_to_predict

_CHOSEN_HERE = frozenset(
    {"--run-dir", "--nnodes", "--nproc-per-node", "--local-hosts", "--set progress", "--stop-grace"}
)
_DEFAULT_SIZES = "1,2"
_SIZE = re.compile(r"(?:(\d+)x)?(\d+)")


def with_script(parser: VerbParser, argv: Sequence[str]) -> argparse.Namespace:
    """The options. `script` and `script_args` have the first word that belongs to no option, and the words after it.

    Raises:  UsageError U01 or U03: an unknown option or a missing value; U02: no script
    """
    ours, script = split_at_script(parser.verb.rows, argv)
    args = parser.parse_args(ours)
    if not script:
        said = shlex.join(["paceline", parser.verb.name, *argv])
        raise UsageError("U02", "no training script was given", saw=said, next=f"{said} train.py")
    args.script, args.script_args = script[0], tuple(script[1:])
    return args


def wanted_of(args: argparse.Namespace) -> RehearsalSpec:
    """Raises:  UsageError U03: not a size, a number or a duration; an impossible value."""
    each = counted("--nproc-per-node", args.nproc_per_node)
    if args.sizes and args.local_hosts:
        raise UsageError(
            "U03",
            "--sizes and --local-hosts both say what is tried",
            saw=f"--sizes {args.sizes} --local-hosts {args.local_hosts}",
            next="leave --sizes out",
        )
    sizes = (
        _sizes("--local-hosts", args.local_hosts, each)
        if args.local_hosts
        else _sizes("--sizes", args.sizes or _DEFAULT_SIZES)
    )
    try:
        options = tuple(shlex.split(args.run_options))
    except ValueError as error:
        raise UsageError(
            "U03",
            f"--run-options cannot be taken apart: {error}",
            saw=args.run_options,
            next="--run-options '--hp lr=0.1'",
        ) from None
    names = [word.partition("=")[0].replace("_", "-") for word in options]
    for name in (*names, *(f"--set {key}" for key in keys_in(options))):
        if name in _CHOSEN_HERE:
            raise UsageError(
                "U03",
                f"{name} is chosen by the rehearsal itself",
                saw=f"--run-options {shlex.quote(args.run_options)}",
                next="leave it out; sizes are written as --sizes HOSTSxRANKS",
            )
    of_each_host = each if args.local_hosts else None
    predict = _sizes("--predict", args.predict, of_each_host) if args.predict else sizes_to_predict(sizes)
    return RehearsalSpec(
        sizes=sizes,
        predict=predict,
        steps=counted("--steps", args.steps),
        first_step_seconds=duration("--timeout", args.timeout, example="10m"),
        program=(*(("-m",) if args.module else ()), args.script, *args.script_args),
        run_options=options,
        probe=not args.no_probe,
    )


def _sizes(option: str, text: str, ranks_of_host: int | None = None) -> tuple[tuple[int, int], ...]:
    """Hosts and ranks per host of each size. `ranks_of_host`: those of a host, where a plain number counts hosts."""
    found = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                "U03",
                f"{option} {part!r} is no size",
                saw=f"sizes are numbers of {'ranks' if ranks_of_host is None else 'hosts'} (1,2), or hosts x ranks (1x2,2x2)",
                next=f"{option} 1,2",
            )
        hosts, number = match[1] and int(match[1]), int(match[2])
        if 0 in (hosts, number):
            raise impossible(option, text, "sizes of 1 or more")
        size = (hosts, number) if hosts else (1, number) if ranks_of_host is None else (number, ranks_of_host)
        if size in found:
            raise UsageError(
                "U03",
                f"{option} names a size twice",
                saw=f"{option} {text}",
                next=f"{option} {','.join(dict.fromkeys(text.split(',')))}",
            )
        found.append(size)
    # The smallest size comes first: if the script fails with 1 rank, it need not be tried with 8.
    return tuple(sorted(found, key=lambda size: (size[0] * size[1], size[0])))
