"""The catalogue as typed values: machine types, accelerators, prices of spare capacity, measured collectives. Read once, then kept."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from paceline.catalog.names import accelerator_keys, nearest_accelerators, nearest_types, stated_memory_gib, type_key
from paceline.catalog.types import Accelerator, MachineType
from paceline.errors import UsageError

_DATA = Path(__file__).parent / "data"
_GIB = 2**30
_NUMBERS = (
    "memory_gib",
    "accelerator_memory_gib",
    "network_gbps",
    "network_burst_gbps",
    "local_storage_gb",
    "ebs_mbps",
    "usd_per_hour",
    "sagemaker_usd_per_hour",
)
_COUNTS = ("vcpu_count", "accelerator_count", "efa_interface_count")
_FIGURES = (
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "bf16_tflops",
    "memory_gib",
    "memory_gb_per_second",
    "nvlink_gb_per_second",
    "measured_matmul_tflops",
)
_WHOLE_FIGURES = ("pcie_generation", "power_watts")
# Figures that sources state for a family only, not for each size.
_FAMILY_SOURCE = "the accelerator's own form factor and the family's page (docs/instances.md)"
_SAGEMAKER_SOURCE = "botocore 1.43.11, sagemaker CreateTrainingJob, TrainingInstanceType"
_SAGEMAKER_PRICE_SOURCE = "syne-tune, an old snapshot: differs from today's list"
_SMDDP_SOURCE = "SMDDP release notes and SageMaker developer guide; sagemaker-python-sdk, fw_utils"
_EC2_GUIDE = "EC2 user guide, network bandwidth, 2023"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPrice:
    """Price of spare capacity in one availability zone when the snapshot was taken."""

    zone: str
    """Availability zone."""
    usd_per_hour: float
    """Price at the time of the snapshot."""
    source: str
    """Where it is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One published measurement of a collective. `points`: (bytes of the message, seconds), by size."""

    system: str
    gpu: str
    nodes: int
    gpus_per_node: int
    interconnect: str
    operation: str
    points: tuple[tuple[int, float], ...]
    source: str
    note: str = ""


@cache
def machine_types() -> tuple[MachineType, ...]:
    """Every instance type of the catalogue, in the order of its file."""
    return tuple(_machine_type(row) for row in _rows("instances"))


def machine_type(name: str) -> MachineType:
    """The type of this EC2 or `ml.` name.

    Raises:  UsageError P01: there is none; with the nearest names
    Holds:   machine_type("ml.p4d.24xlarge") is machine_type("p4d.24xlarge")
    """
    found = find_machine_type(name)
    if found is None:
        raise _unknown("instance type", name, nearest_types(name, tuple(_types_by_name())), "paceline plan --instances")
    return found


def find_machine_type(name: str) -> MachineType | None:
    """The same; None if the catalogue has no such type."""
    return _types_by_name().get(type_key(name))


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator of the catalogue, in the order of its file."""
    return tuple(_accelerator(row) for row in _rows("accelerators"))


def accelerator(name: str) -> Accelerator:
    """The accelerator of this name, as drivers, tables and people spell it.

    Raises:  UsageError P01: there is none; with the nearest names
    """
    found = find_accelerator(name)
    if found is None:
        near = nearest_accelerators(name, [one.name for one in accelerators()])
        raise _unknown("accelerator", name, near, "paceline plan --instances --accelerators")
    return found


def find_accelerator(name: str) -> Accelerator | None:
    """The same; None if the catalogue has no such accelerator.

    A memory in the name ("V100-32GB") chooses among those that differ by it, and refuses one of another size.
    """
    index = _accelerators_by_key()
    exact, *without_memory = accelerator_keys(name)
    if exact in index:
        return index[exact]
    found = next((index[key] for key in without_memory if key in index), None)
    return found if found is not None and _memory_agrees(name, found) else None


def capacity_bytes(machine_type: MachineType) -> int | None:
    """Memory of one accelerator as a driver reports it: the smaller of EC2's and the accelerator's own figure."""
    of_device = find_accelerator(machine_type.accelerator) if machine_type.accelerator else None
    known = [gib for gib in (machine_type.accelerator_memory_gib, of_device.memory_gib if of_device else None) if gib]
    return int(min(known) * _GIB) if known else None


def spot_prices(name: str) -> tuple[SpotPrice, ...]:
    """Prices of one type in the snapshot, the cheapest zone first; empty if it has none, which says nothing about today."""
    return _spot_by_name().get(type_key(name), ())


@cache
def collective_curves() -> tuple[Curve, ...]:
    """Every published curve; those that are one message size long are of the same system under several settings."""
    points: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    keys = ("system", "gpu", "nodes", "gpus_per_node", "interconnect", "operation", "source", "note")
    for row in _rows("collectives"):
        points.setdefault(tuple(row[key] for key in keys), []).append((int(row["size_bytes"]), _seconds(row)))
    return tuple(_curve(dict(zip(keys, key, strict=True)), sizes) for key, sizes in points.items())


def _curve(of: Mapping[str, str], points: list[tuple[int, float]]) -> Curve:
    return Curve(
        system=of["system"],
        gpu=of["gpu"],
        nodes=int(of["nodes"]),
        gpus_per_node=int(of["gpus_per_node"]),
        interconnect=of["interconnect"],
        operation=of["operation"],
        points=tuple(sorted(points)),
        source=of["source"],
        note=of["note"],
    )


def _seconds(row: Mapping[str, str]) -> float:
    """The time itself if it was published, else computed from the bandwidth (nccl-tests' definitions)."""
    if row["time_us"]:
        return float(row["time_us"]) / 1e6
    if row["algbw_gb_per_second"]:
        return int(row["size_bytes"]) / (float(row["algbw_gb_per_second"]) * 1e9)
    ranks = int(row["nodes"]) * int(row["gpus_per_node"])
    return int(row["size_bytes"]) * 2 * (ranks - 1) / ranks / (float(row["busbw_gb_per_second"]) * 1e9)


def _machine_type(row: Mapping[str, str]) -> MachineType:
    return MachineType(
        name=row["name"],
        accelerator=row["accelerator"] or None,
        intra_link=row["intra_link"] or None,
        efa=_yes(row["efa"]),
        sagemaker_training=_yes(row["sagemaker_training"]),
        smddp=row["smddp"],
        note=row["note"],
        sources=_sources(row),
        **_read(row, _NUMBERS, float),
        **_read(row, _COUNTS, int),
    )


def _sources(row: Mapping[str, str]) -> dict[str, str]:
    known = {
        "": row["spec_source"],
        "usd_per_hour": row["price_source"],
        "intra_link": _FAMILY_SOURCE,
        "sagemaker_training": _SAGEMAKER_SOURCE,
        "sagemaker_usd_per_hour": _SAGEMAKER_PRICE_SOURCE,
        "smddp": _SMDDP_SOURCE,
        "network_burst_gbps": _EC2_GUIDE,
    }
    return {name: source for name, source in known.items() if source and (name == "" or name == "smddp" or row[name])}


def _accelerator(row: Mapping[str, str]) -> Accelerator:
    return Accelerator(
        name=row["name"],
        source=row["source"],
        note=row["note"],
        doubtful=frozenset(row["doubtful"].split()),
        **_read(row, _FIGURES, float),
        **_read(row, _WHOLE_FIGURES, int),
    )


@cache
def _types_by_name() -> dict[str, MachineType]:
    return {one.name: one for one in machine_types()}


@cache
def _accelerators_by_key() -> dict[str, Accelerator]:
    """Exact spellings first: an alias never takes a name from its owner, nor does a name without its memory."""
    named = list(zip(accelerators(), (row["aliases"].split("|") for row in _rows("accelerators")), strict=True))
    index: dict[str, Accelerator] = {}
    for one, _ in named:
        index.setdefault(accelerator_keys(one.name)[0], one)
    for one, aliases in named:
        for alias in filter(None, aliases):
            index.setdefault(accelerator_keys(alias)[0], one)
    return index


@cache
def _spot_by_name() -> dict[str, tuple[SpotPrice, ...]]:
    prices: dict[str, list[SpotPrice]] = {}
    for row in _rows("spot"):
        if row["usd_per_hour"]:
            price = SpotPrice(zone=row["zone"], usd_per_hour=float(row["usd_per_hour"]), source=row["source"])
            prices.setdefault(row["name"], []).append(price)
    return {name: tuple(sorted(known, key=lambda price: price.usd_per_hour)) for name, known in prices.items()}


def _memory_agrees(name: str, found: Accelerator) -> bool:
    """Whether a memory matches a name. Names round: a "24GB" card reports 22.4 GiB, an "80GB" one 79.3."""
    stated = stated_memory_gib(name)
    return stated is None or found.memory_gib is None or 0.88 * stated <= found.memory_gib <= 1.05 * stated


def _read(row: Mapping[str, str], names: Sequence[str], kind: Callable[[str], float]) -> dict[str, Any]:
    return {name: kind(row[name]) if row[name] else None for name in names}


def _yes(text: str) -> bool | None:
    return {"yes": True, "no": False}.get(text)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (_DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _unknown(kind: str, name: str, near: tuple[str, ...], listing: str) -> UsageError:
    return UsageError(
        "P01",
        f"there is no {kind} {name!r} in the catalogue",
        saw=f"the nearest are {', '.join(near)}" if near else "the catalogue has no similar name",
        next=near[0] if near and kind == "accelerator" else f"paceline plan --instances {near[0]}" if near else listing,
    )
