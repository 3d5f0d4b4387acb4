"""The section on exchanges: times between the sizes of a probe, and from specifications alone, against published curves."""

from statistics import fmean

from paceline.catalog.lookup import Curve, collective_curves
from paceline.parts.plan.planner.collective import MIB, Link, all_reduce_seconds
from paceline.parts.plan.planner.links import inter_link, intra_link, link_from_curve

FROM_BYTES = 64 * 1024
# What a probe of a minute measures: every fourfold from 64 KiB, up to so much; a curve's other sizes are asked.
PROBES = (("64 KiB to 1 GiB", 1024 * MIB), ("64 KiB to 64 MiB", 64 * MIB))
EVERY_SECOND = 2
# torch's own model, `_inductor/comm_analysis.py`, from 1 MiB up. Called once for each curve, on torch 2.13.
TORCH = {"8x A100 node": 0.32, "8x H200 node": 0.12, "AWS p6-b200.48xlarge": 0.30, "AWS p4de.24xlarge": 0.54}


def curves() -> list[Curve]:
    """The published all-reduce curves that have sizes to leave out."""
    return [curve for curve in collective_curves() if curve.operation == "all_reduce" and len(curve.points) >= 10]


def probed(curve: Curve, to_bytes: int) -> tuple[float, float, int]:
    """Mean absolute error at the sizes that the probe left out, from 1 MiB: (inside the probe's sizes, all, sizes asked).

    Both ways of leaving out every second size count.
    """
    ranks = curve.nodes * curve.gpus_per_node
    inside, every = [], []
    sizes = [point for point in curve.points if FROM_BYTES <= point[0] <= to_bytes]
    for start in range(EVERY_SECOND):
        kept = sizes[start::EVERY_SECOND]
        if kept[-1] != sizes[-1]:
            kept.append(sizes[-1])
        link = link_from_curve(kept, ranks)
        for size, seconds in curve.points:
            if size >= MIB and (size, seconds) not in kept:
                error = abs(all_reduce_seconds(size, ranks, link) / seconds - 1)
                every.append(error)
                if size <= to_bytes:
                    inside.append(error)
    return fmean(inside), fmean(every), len(every)


def specified(curve: Curve) -> float | None:
    """Mean absolute error from 1 MiB with what is known without a probe; None where the link is not named."""
    link = _link(curve)
    if link is None:
        return None
    ranks = curve.gpus_per_node if curve.nodes == 1 else curve.nodes
    asked = [(size, seconds) for size, seconds in curve.points if size >= MIB]
    within = intra_link("nvlink3", None, curve.gpus_per_node) if curve.nodes > 1 else None

    def predicted(size: int) -> float:
        inside = all_reduce_seconds(size, curve.gpus_per_node, within) if within is not None else 0.0
        return inside + all_reduce_seconds(size, ranks, link)

    return fmean(abs(predicted(size) / seconds - 1) for size, seconds in asked)


def headline() -> float:
    """Mean over the curves of the error at sizes inside the probe to 1 GiB."""
    return fmean(probed(curve, PROBES[0][1])[0] for curve in curves())


def section() -> str:
    """Markdown."""
    lines = [
        "## Exchanges",
        "",
        "All-reduces of published curves from 1 MiB up (`catalog/data/collectives.csv`). A probe has every second size of a curve (each",
        "four times the one before), the others are asked; both halves in turn. Target: 8 %.",
        "",
        f"**Between the sizes of a probe up to 1 GiB: {headline():.1%}.**",
        "",
        "| curve | ranks | probe 64 KiB to 1 GiB | and beyond | probe to 64 MiB | and beyond | specification | torch's own model |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for curve in curves():
        cells = []
        for _, to_bytes in PROBES:
            inside, every, _ = probed(curve, to_bytes)
            cells += [f"{inside:.1%}", f"{every:.1%}"]
        alone = specified(curve)
        torch = TORCH.get(curve.system)
        cells += ["" if alone is None else f"{alone:.0%}", "" if torch is None else f"{torch:.0%}"]
        ranks = curve.nodes * curve.gpus_per_node
        lines.append(f"| {curve.system}, {curve.gpu} | {ranks} | {' | '.join(cells)} |")
    lines += [
        "",
        "A probe's largest size matters more than its number of sizes: beyond it the curve is continued by latency, root and rate",
        "fitted to the probe. Torch's model was called once for each curve, on torch 2.13; an empty cell was not tried.",
        "",
    ]
    return "\n".join(lines)


def _link(curve: Curve) -> Link | None:
    if curve.nodes > 1:
        return inter_link(400, "efa") if "EFA 4x100" in curve.interconnect else None
    word = curve.interconnect if "NVLink" in curve.interconnect else "nvlink4" if "H100" in curve.gpu else ""
    return intra_link(word, None, curve.gpus_per_node) if word else None
