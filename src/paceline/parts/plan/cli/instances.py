"""`paceline plan --instances`: shows machine types, each figure with its source, and which jobs they can and cannot run."""

import argparse
import json
import sys
from collections.abc import Sequence

from paceline.catalog.compatibility import JobKind, Support, support
from paceline.catalog.filters import conditions, matches
from paceline.catalog.lookup import accelerators, find_accelerator, machine_type, machine_types, spot_prices
from paceline.catalog.machine_file import MachineFile, read_machines
from paceline.catalog.types import MachineType
from paceline.cli.terminal import ascii_only, room
from paceline.errors import UsageError
from paceline.parts.plan.views import instances as view


def show(args: argparse.Namespace) -> int:
    """Print the machine types, or the accelerators, that the command line asks for.

    Raises:  UsageError P01: an unknown type; U03: a condition or a kind of job that cannot be
    """
    if args.accelerators:
        return _show_accelerators(args)
    own = read_machines(args.file) if args.file else None
    asked = _asked(args, own)
    wanted = conditions(args.where)
    answers = [(one, matches(one, wanted)) for one in asked]
    unknown = [one.name for one, answer in answers if answer is None]
    kind, version = _kind(args.kind)
    single = len(asked) == 1 and (bool(args.names) or args.here)
    shown = [_described(one, own, kind, version, whole=single) for one, answer in answers if answer]
    if args.json:
        print(json.dumps(view.instances_facts(shown, unknown)))
    elif single and shown:
        print(view.instance_text(shown[0]))
    else:
        print(
            view.instances_text(
                shown,
                width=room(sys.stdout),
                ascii_only=ascii_only(sys.stdout),
                left_out=_left_out(unknown),
                folds=not args.names,
            )
        )
    return 0


def _asked(args: argparse.Namespace, own: MachineFile | None) -> list[MachineType]:
    """The named types. If none is named, this machine and the types of the file; without a file, all types."""
    machines = {one.name.lower(): one for one in own.machines} if own is not None else {}
    named = [machines.get(name.lower()) or machine_type(name) for name in args.names]
    if args.here:
        from paceline.probes.this_machine import this_machine

        named.append(this_machine())
    if named:
        return named
    return list(own.machines) if own is not None else list(machine_types())


def _described(
    one: MachineType, own: MachineFile | None, kind: JobKind | None, version: str | None, *, whole: bool
) -> view.Described:
    find = own.accelerator if own is not None else find_accelerator
    kinds: dict[str, Support] = {}
    if kind is not None:
        kinds[kind.value] = support(one, kind, version)
    elif whole:
        kinds = {each.value: support(one, each) for each in JobKind}
    return view.Described(
        machine=one,
        accelerator=find(one.accelerator) if one.accelerator else None,
        spot=spot_prices(one.name),
        kinds=kinds or None,
    )


def _kind(text: str | None) -> tuple[JobKind | None, str | None]:
    """`smddp@2.3` is a kind and a version."""
    if text is None:
        return None, None
    word, _, version = text.partition("@")
    if word not in list(JobKind) or (version and word != JobKind.SMDDP):
        raise UsageError(
            "U03",
            f"--for {text!r} is no kind of job that types are judged for",
            saw=f"there are {', '.join(JobKind)}, and smddp@VERSION",
            next=f"--for {JobKind.SMDDP}",
        )
    return JobKind(word), version or None


def _left_out(unknown: Sequence[str]) -> str:
    if not unknown:
        return ""
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    return f"not judged, a figure is unknown: {', '.join(unknown[:8])}{more}"


def _show_accelerators(args: argparse.Namespace) -> int:
    if args.names or args.where or args.kind or args.here or args.file:
        raise UsageError(
            "U03",
            "--accelerators stands alone",
            saw="it lists all of them, of no machine",
            next="paceline plan --instances --accelerators",
        )
    if args.json:
        print(json.dumps(view.accelerators_facts(accelerators())))
    else:
        print(view.accelerators_text(accelerators(), width=room(sys.stdout), ascii_only=ascii_only(sys.stdout)))
    return 0
