"""Turns names and rates of links between devices and hosts into the `Link` that a collective's time is computed with."""

import math
import re
from collections.abc import Sequence
from enum import StrEnum

from paceline.catalog.types import PCIE_GB_PER_SECOND, TCP_FLOW_GBPS, TCP_FLOW_OUTSIDE_GBPS, Accelerator
from paceline.errors import UsageError
from paceline.parts.plan.planner.collective import Link

GB = 1e9
# A ring of NVLinks reaches this share of the specified rate of one direction; so taken for PCIe too, of which no curve was published.
# Source: stas00 ml-engineering network/README.md, 8x A100 (235 of 300 GB/s) and B200 without NVLS (682 of 900 GB/s).
RING_FRACTION = 0.78


class LinkClass(StrEnum):
    """Kinds of links inside a host whose multi-device tax was fitted apart."""

    NVSWITCH = "nvswitch"
    CUBE_MESH = "cube-mesh"
    BRIDGE = "bridge"
    PCIE = "pcie"
    UNKNOWN = "unknown"


# Generation -> GB/s of one direction and device over all its links. Source: NVIDIA datasheets of P100, V100, A100, H100, B200.
NVLINK_GB_PER_SECOND = {1: 80.0, 2: 150.0, 3: 300.0, 4: 450.0, 5: 900.0}
# A bridge joins pairs; beyond the pair the exchange goes over PCIe. One direction. Source: NVIDIA datasheet of RTX 8000.
BRIDGE_GB_PER_SECOND = 50.0
# Words that say that a link is not known.
_NO_LINK = frozenset({"", "none", "unknown", "n/a", "?"})
# Latency of a small all-reduce among 8 devices. Source: collectives.csv, 8x A100 (32 KiB: 44 us), H100 (17 us), p6-b200.
NVLINK_LATENCY_SECONDS = 40e-6
# No curve over PCIe was published; that of an exchange without peer access passes the host's memory, so it is not taken to be less.
PCIE_LATENCY_SECONDS = 60e-6

# Smallest all-reduce between two hosts. Source: collectives.csv, p4de x2 over EFA (8 bytes: 164 us); 4-node cluster (32 KiB: 69 us); of
# TCP: two round trips inside a zone, of about 0.45 ms (ping, a public gist of 2014). Unknown: as EFA.
INTER_LATENCY_SECONDS = {"efa": 160e-6, "infiniband": 70e-6, "roce": 70e-6, "tcp": 450e-6}
# Share of a host's specified rate that large exchanges reach. Source: collectives.csv, p4de x2: 1 GiB in 26.2 ms over 400 Gbit/s. The
# other fabrics are taken to reach as much.
INTER_FRACTION = 0.82
# Connections that NCCL opens to a neighbour on AWS: 2 threads of 8 sockets. Source: NCCL user guide, NCCL_SOCKET_NTHREADS,
# NCCL_NSOCKS_PERTHREAD. gloo has one.
NCCL_CONNECTIONS = 16
# What a message between zones of a region takes longer than inside one. Source: pings of a public
# gist of 2014, 1.3 to 2.1 ms between zones and 0.45 ms inside; no newer figure was found.
ZONE_LATENCY_SECONDS = 1.25e-3


def link_class(kind: str | None) -> LinkClass:
    """The class of a link inside a host, from any word that data files and people use for it."""
    word = (kind or "").strip().lower()
    if word in _NO_LINK:
        return LinkClass.UNKNOWN
    if "bridge" in word and "not stated" not in word:
        return LinkClass.BRIDGE
    if "pci" in word:
        return LinkClass.PCIE
    if "cube" in word or "mesh" in word:
        return LinkClass.CUBE_MESH
    if "nvlink" in word or "nvswitch" in word or "xgmi" in word or "infinity" in word or "neuronlink" in word:
        return LinkClass.NVSWITCH
    return LinkClass.UNKNOWN


def is_link_word(word: str) -> bool:
    """Whether a word names a link inside a host, or says that it is unknown; False if the link was only guessed from it."""
    text = word.strip().lower()
    if text in _NO_LINK:
        return True
    generations = (
        (_generation(text, "nvlink"), NVLINK_GB_PER_SECOND),
        (_generation(text, "pci(?:e|-e)?"), PCIE_GB_PER_SECOND),
    )
    return link_class(text) is not LinkClass.UNKNOWN and all(
        found is None or found in known for found, known in generations
    )


def intra_link(word: str | None, accelerator: Accelerator | None, devices: int) -> Link | None:
    """The link between the devices of one host, from a word such as nvlink3, nvswitch, nvlink2-cube-mesh, nvlink-bridge, pcie4.

    A word without a generation gets the accelerator's. No word, or an unknown word, counts as the accelerator's PCIe, or as PCIe 3
    if that is unknown too.

    Holds:   devices == 1 -> None
    """
    if devices <= 1:
        return None
    text = (word or "").strip().lower()
    if text in _NO_LINK:
        return _pcie(accelerator, None, kind="unknown")
    kind = link_class(text)
    if kind in (LinkClass.NVSWITCH, LinkClass.CUBE_MESH):
        return _nvlink(text, accelerator, kind)
    if kind is LinkClass.BRIDGE and devices == 2:
        rate = _bridge_rate(accelerator)
        return Link(
            kind="nvlink-bridge",
            bytes_per_second=rate * RING_FRACTION * GB,
            latency_seconds=NVLINK_LATENCY_SECONDS,
            source="NVIDIA datasheets, share of a ring from collectives.csv",
        )
    return _pcie(
        accelerator, _generation(text, "pci(?:e|-e)?"), kind="nvlink-bridge" if kind is LinkClass.BRIDGE else None
    )


def inter_link(gbps: float, kind: str | None = None, *, zones: int = 1, connections: int = NCCL_CONNECTIONS) -> Link:
    """The link of a host to other hosts from its specified rate.

    Units:   `gbps`: 10^9 bits a second of the whole host, one direction; `connections`: to one neighbour, where TCP caps each
    Holds:   more gbps is never slower; several zones are never faster than one, and always TCP
    Raises:  UsageError U03: a rate that is not above 0
    """
    if not gbps > 0:
        raise UsageError(
            "U03",
            f"a network of {gbps:g} Gbit/s",
            saw=f"--inter-gbps {gbps:g}",
            next="give the rate of one host in 10^9 bits a second",
        )
    name = (kind or "unknown").lower()
    latency = INTER_LATENCY_SECONDS.get(name, INTER_LATENCY_SECONDS["efa"])
    flow = None
    if zones > 1:
        # Traffic that bypasses the kernel stays in one subnet, so between zones it is TCP, whatever is there.
        name, flow = "tcp", TCP_FLOW_OUTSIDE_GBPS
        latency = max(latency, INTER_LATENCY_SECONDS["tcp"]) + 2 * ZONE_LATENCY_SECONDS
    elif name == "tcp":
        flow = TCP_FLOW_GBPS
    return Link(
        kind=name,
        bytes_per_second=gbps * GB / 8 * INTER_FRACTION,
        latency_seconds=latency,
        flow_bytes_per_second=None if flow is None else flow * connections * GB / 8,
        source=f"{gbps:g} Gbit/s as specified, {INTER_FRACTION:.0%} of it reached (collectives.csv, p4de x2)",
    )


def link_from_curve(
    points: Sequence[tuple[float, float]], ranks: int, *, kind: str = "measured", source: str = "measured here"
) -> Link:
    """A link from measured all-reduces of several sizes, used as measured: between sizes by interpolation.

    Units:   points: (bytes of the whole buffer, seconds)
    Raises:  UsageError U27: no point, a size or time that is not above 0, a size twice, or fewer than 2 ranks
    """
    usable = sorted((float(size), float(seconds)) for size, seconds in points)
    sound = all(0 < size < math.inf and 0 < seconds < math.inf for size, seconds in usable)
    if not usable or ranks < 2 or not sound or len(dict(usable)) < len(usable):
        raise UsageError(
            "U27",
            "a curve of exchange times that cannot be used",
            saw=f"{len(usable)} points among {ranks} ranks; sizes and times must be above 0, each size once, ranks at least 2",
            next="measure again: paceline bench --rehearse",
        )
    latency, ramp, per_byte = _three_terms(usable)
    size, seconds = usable[-1]
    passes = 2 * (ranks - 1) / ranks
    return Link(
        kind=kind,
        bytes_per_second=passes / per_byte if per_byte > 0 else size * passes / seconds,
        latency_seconds=latency,
        ramp_seconds_per_root_byte=ramp,
        source=source,
        points=tuple(usable),
        ranks=ranks,
    )


def _three_terms(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Latency, seconds per root of a byte, seconds per byte: none below zero, with the least squared relative error."""
    best: tuple[float, tuple[float, float, float]] = (math.inf, (points[0][1], 0.0, 0.0))
    for used in ((0, 1, 2), (0, 2), (1, 2), (0, 1), (2,), (1,), (0,)):
        columns = [[(1.0, math.sqrt(size), size)[term] / seconds for term in used] for size, seconds in points]
        solved = _solve(
            [[sum(row[i] * row[j] for row in columns) for j in range(len(used))] for i in range(len(used))],
            [sum(row[i] for row in columns) for i in range(len(used))],
        )
        if solved is None or min(solved) < 0:
            continue
        error = sum((sum(part * value for part, value in zip(row, solved, strict=True)) - 1) ** 2 for row in columns)
        terms = dict(zip(used, solved, strict=True))
        best = min(best, (error, (terms.get(0, 0.0), terms.get(1, 0.0), terms.get(2, 0.0))))
    return best[1]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gauss, with the columns scaled first since bytes and seconds are far apart; None where they depend on each other."""
    scale = [math.sqrt(matrix[at][at]) for at in range(len(right))]
    rows = [
        [*(value / scale[i] / scale[j] for j, value in enumerate(row)), right[i] / scale[i]]
        for i, row in enumerate(matrix)
    ]
    for at in range(len(rows)):
        pivot = rows[at][at]
        if abs(pivot) < 1e-9:
            return None
        for other in range(len(rows)):
            if other != at:
                factor = rows[other][at] / pivot
                rows[other] = [value - factor * part for value, part in zip(rows[other], rows[at], strict=True)]
    return [row[-1] / row[at] / scale[at] for at, row in enumerate(rows)]


def _nvlink(text: str, accelerator: Accelerator | None, kind: LinkClass) -> Link:
    generation = _generation(text, "nvlink")
    if generation in NVLINK_GB_PER_SECOND:
        rate = NVLINK_GB_PER_SECOND[generation]
    elif accelerator is not None and accelerator.nvlink_gb_per_second:
        rate = accelerator.nvlink_gb_per_second / 2
    else:
        rate = NVLINK_GB_PER_SECOND[2]
    name = "nvlink-cube-mesh" if kind is LinkClass.CUBE_MESH else "nvlink"
    return Link(
        kind=name + (str(generation) if generation and kind is not LinkClass.CUBE_MESH else ""),
        bytes_per_second=rate * RING_FRACTION * GB,
        latency_seconds=NVLINK_LATENCY_SECONDS,
        source="NVIDIA datasheets, share of a ring from collectives.csv",
    )


def _pcie(accelerator: Accelerator | None, generation: int | None, *, kind: str | None) -> Link:
    found = generation or (accelerator.pcie_generation if accelerator is not None else None) or 3
    rate = PCIE_GB_PER_SECOND.get(found, PCIE_GB_PER_SECOND[3])
    return Link(
        kind=kind or f"pcie{found}",
        bytes_per_second=rate * RING_FRACTION * GB,
        latency_seconds=PCIE_LATENCY_SECONDS,
        source="PCI-SIG base specification, share of a ring from collectives.csv",
    )


def _bridge_rate(accelerator: Accelerator | None) -> float:
    if accelerator is not None and accelerator.nvlink_gb_per_second:
        return accelerator.nvlink_gb_per_second / 2
    return BRIDGE_GB_PER_SECOND


def _generation(text: str, name: str) -> int | None:
    found = re.search(name + r"\D{0,3}(\d)(?!\d)", text)
    return int(found.group(1)) if found else None
