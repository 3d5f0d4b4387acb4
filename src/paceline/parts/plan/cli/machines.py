"""Selects the machines of a plan: types of the catalogue, types of a file, or machines described by hand."""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paceline.catalog.types import Accelerator, MachineType
from paceline.cli.values import above_zero, counted, counts
from paceline.errors import UsageError
from paceline.parts.plan.cli.options import EVERY_TYPE
from paceline.parts.plan.cli.recorded import RecordedInputs
from paceline.parts.plan.planner.fleet import Fleet, candidates_given, candidates_of_type
from paceline.parts.plan.planner.links import LinkClass, is_link_word, link_class
from paceline.parts.plan.planner.question import GIVEN, Candidate, Prices

if TYPE_CHECKING:
    from paceline.catalog.machine_file import MachineFile

GIB = 2**30
_CPU_WORDS = frozenset({"cpu", "none"})
_ON_CPUS = " (on CPUs --for ddp-cpu; measure one step here: paceline run, then --from-run RUN)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSelection:
    """The machines to plan for."""

    candidates: tuple[Candidate, ...]
    """Machines in every count to plan for."""
    types: tuple[MachineType, ...]
    """The machine types of the candidates; empty: the machines were described by hand."""
    whole_host: int
    """Devices of a whole host."""
    fleet: Fleet
    """The counts of each type, and the values that replace those of the catalogue."""
    warnings: tuple[str, ...] = ()
    """Doubts about the machines, in words."""
    not_judged: tuple[str, ...] = ()
    """Facts about the machines that are unknown, in words."""

    @property
    def most_devices_per_host(self) -> int:
        """Devices of the candidates' largest host; 1 for hosts without an accelerator."""
        of_types = [kind.accelerator_count or 1 for kind in self.types]
        return max(self.fleet.devices_per_host or of_types, default=1)


def look(args: argparse.Namespace, *, has_workload: bool, before: RecordedInputs | None = None) -> MachineSelection:
    """The candidates that the options name.

    `has_workload`: a script or a trace is given. Then, without machines by hand, every type is a candidate. `before`: earlier measurements
    and recordings; their links replace specified links.

    Raises:  UsageError P01: a type that the catalogue does not have; U03: an impossible count; U27: a file that cannot be read
    """
    fleet = _fleet(args)
    before = before or RecordedInputs()
    by_hand = args.device or args.devices_per_host or before.measurements
    by_type = args.instance is not None or args.where or args.file or (has_workload and not by_hand)
    if by_type and args.device:
        raise UsageError(
            "U03",
            "--device makes machines by hand, and types of machines are named beside it",
            saw=f"--device {args.device}; where a step was measured is said by --measured-device",
            next="leave --device out",
        )
    if args.curve or not by_type:
        # A rehearsal's own probe measured the machine on which it ran.
        fleet = replace(fleet, within=before.within, among=before.among)
    doubted = _doubted_link(args.intra)
    if by_type:
        own = _own(args)
        types, unknown = _types(args, own)
        candidates = tuple(candidate for kind in types for candidate in of_type(kind, fleet, args, own))
        whole = max(fleet.devices_per_host, default=types[0].accelerator_count if types else None) or 1
        return MachineSelection(
            candidates=candidates, types=types, whole_host=whole, fleet=fleet, warnings=doubted, not_judged=unknown
        )
    if before.measurements and not fleet.devices_per_host:
        fleet = replace(fleet, devices_per_host=(max(one.devices // one.hosts for one in before.measurements),))
    name = args.device or before.device
    device, warnings = given_device(name)
    candidates = tuple(
        candidates_given(name or "as given", device, _with_memory(fleet, device), prices=_given_prices(args))
    )
    return MachineSelection(
        candidates=candidates,
        types=(),
        whole_host=max(fleet.devices_per_host, default=1),
        fleet=fleet,
        warnings=(*warnings, *doubted),
    )


def _doubted_link(word: str | None) -> tuple[str, ...]:
    if word is None or is_link_word(word):
        return ()
    if link_class(word) is LinkClass.UNKNOWN:
        return (f"--intra {word!r} names no link that is known: it is taken for PCIe",)
    return (f"--intra {word!r} is of a generation that is not known: another one was taken",)


def given_device(name: str | None) -> tuple[Accelerator | None, tuple[str, ...]]:
    """The accelerator with this name, without figures if the catalogue does not have it; None for a CPU."""
    from paceline.catalog.lookup import find_accelerator

    if name is None or name.strip().lower() in _CPU_WORDS:
        return None, ()
    found = find_accelerator(name)
    if found is not None:
        return found, ()
    return Accelerator(name=name), (
        f"the catalogue has no accelerator {name!r}: its memory and what it computes are not judged",
    )


def of_type(
    kind: MachineType, fleet: Fleet, args: argparse.Namespace, own: "MachineFile | None" = None
) -> Iterator[Candidate]:
    """One type in every count, with the catalogue's memory and price, and what may run on it."""
    from paceline.catalog.lookup import capacity_bytes

    refused, together, unknown = _refusals(kind, args)
    device, gib = accelerator_of(kind, own), kind.accelerator_memory_gib
    if own is not None and not gib and device is not None:
        gib = device.memory_gib
    ours = round(gib * GIB) if own is not None and gib else None
    yield from candidates_of_type(
        kind,
        device,
        fleet,
        capacity_bytes=ours or capacity_bytes(kind),
        prices=_prices(kind, args),
        refused=refused,
        refused_together=together,
        warnings=unknown,
    )


def accelerator_of(kind: MachineType, own: "MachineFile | None" = None) -> Accelerator | None:
    """The type's accelerator; the user's own file comes first. Without figures if they are unknown; None if the type has no accelerator."""
    from paceline.catalog.lookup import find_accelerator

    if not kind.accelerator:
        return None
    known = own.accelerator(kind.accelerator) if own is not None else None
    return known or find_accelerator(kind.accelerator) or Accelerator(name=kind.accelerator)


def named_type(args: argparse.Namespace, name: str) -> "tuple[MachineType, MachineFile | None]":
    """One type by its name, and the user's own file if one is given. The user's own file comes first.

    Raises:  UsageError P01: neither has the type
    """
    from paceline.catalog.lookup import machine_type

    own = _own(args)
    known = {kind.name: kind for kind in own.machines} if own is not None else {}
    return known.get(name) or machine_type(name), own


def _own(args: argparse.Namespace) -> "MachineFile | None":
    if not args.file:
        return None
    from paceline.catalog.machine_file import read_machines

    return read_machines(args.file)


def _fleet(args: argparse.Namespace) -> Fleet:
    memory = above_zero("--device-memory-gib", args.device_memory_gib) if args.device_memory_gib else None
    # A refusal names the option that was typed, so that its advice is the typed command, corrected.
    spelling = "--hosts" if args.hosts == args.hosts_before else "--host-counts"
    return Fleet(
        hosts=counts(spelling, args.hosts) if args.hosts else (1,),
        devices_per_host=counts("--devices-per-host", args.devices_per_host) if args.devices_per_host else (),
        zones=counted("--zones", args.zones) if args.zones else 1,
        intra=args.intra,
        network_gbps=above_zero("--inter-gbps", args.inter_gbps) if args.inter_gbps else None,
        network_kind=args.inter_kind,
        capacity_bytes=round(memory * GIB) if memory is not None else None,
    )


def _with_memory(fleet: Fleet, device: Accelerator | None) -> Fleet:
    if fleet.capacity_bytes is not None or device is None or device.memory_gib is None:
        return fleet
    return replace(fleet, capacity_bytes=round(device.memory_gib * GIB))


def _types(args: argparse.Namespace, own: "MachineFile | None") -> tuple[tuple[MachineType, ...], tuple[str, ...]]:
    """The types to plan for: by name, else those of the file, else of the catalogue; of these, those that match --where. Also what is
    unknown about the other types.

    Raises:  UsageError P01: there is no such type; P08: no type matches the conditions
    """
    from paceline.catalog.lookup import machine_type, machine_types

    known = {kind.name: kind for kind in own.machines} if own is not None else {}
    found: Iterable[MachineType] = known.values() if known else machine_types()
    unknown: list[str] = []
    if args.instance is not None and args.instance != EVERY_TYPE:
        found = [known[name] if name in known else machine_type(name) for name in args.instance]
    if args.where:
        from paceline.catalog.filters import conditions, matches

        wanted = conditions(args.where)
        answers = [(kind, matches(kind, wanted)) for kind in found]
        found = [kind for kind, answer in answers if answer]
        unknown = [kind.name for kind, answer in answers if answer is None]
    types = tuple({kind.name: kind for kind in found}.values())
    left_out = f"{', '.join(unknown)}: a figure that --where asks for is not in the catalogue (--instance)"
    if not types:
        raise UsageError(
            "P08",
            "no machine type is left to plan for",
            saw=f"--where '{args.where}'" if args.where else f"--instance '{','.join(args.instance)}'",
            next=f"paceline plan --instances --where '{args.where}'" if args.where else "paceline plan --instances",
        )
    return types, (left_out,) if unknown else ()


def _refusals(kind: MachineType, args: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Why the job may not run on one host of this type; why not on several hosts; and what is unknown about the first answer."""
    from paceline.catalog.compatibility import support

    job = getattr(args, "for") or "ddp-gpu"
    wanted = support(kind, job, nearest=False)
    besides = _ON_CPUS if job == "ddp-gpu" and not kind.accelerator and kind.accelerator_count == 0 else ""
    together = support(kind, "multi-host", nearest=False)
    return (
        tuple(reason.text + besides for reason in wanted.reasons if reason.forbids),
        tuple(reason.text for reason in together.reasons if reason.forbids),
        tuple(f"{kind.name}: {reason.text}" for reason in wanted.reasons if reason.forbids is None),
    )


def _prices(kind: MachineType, args: argparse.Namespace) -> Prices:
    if args.usd_per_hour:
        return _given_prices(args)
    from paceline.catalog.lookup import spot_prices

    spot = spot_prices(kind.name)
    return Prices(
        on_demand=kind.usd_per_hour,
        sagemaker=kind.sagemaker_usd_per_hour,
        spot=spot[0].usd_per_hour if spot else None,
        spot_zone=spot[0].zone if spot else "",
        source=spot[0].source if spot and args.spot else kind.sources.get("usd_per_hour", ""),
    )


def _given_prices(args: argparse.Namespace) -> Prices:
    if not args.usd_per_hour:
        return Prices()
    price = above_zero("--usd-per-hour", args.usd_per_hour)
    return Prices(
        on_demand=price,
        spot=price if args.spot else None,
        source=GIVEN,
    )
