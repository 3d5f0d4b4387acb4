"""How far the planner is off, over published measurements that its constants were not fitted on: writes docs/accuracy.md.

.venv/bin/python bench/accuracy.py            under a minute, no GPU, no torch
.venv/bin/python bench/accuracy.py --check    exit 1 where the page, or parts/plan/planner/fitted_constants.py, are not what the data give
"""

import argparse
import re
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import accuracy_collective  # noqa: E402
import accuracy_step  # noqa: E402
from fit import fit  # noqa: E402
from published import experiments, rows, why_left_out  # noqa: E402

from paceline.parts.plan.planner.fitted_constants import FITTED, Fitted  # noqa: E402

PAGE = HERE.parent / "docs" / "accuracy.md"
# Modules that each write one section; those of other parts of the planner are there where their data is.
SECTIONS = ("accuracy_step", "accuracy_collective", "accuracy_memory", "accuracy_tier0", "accuracy_suspects")
# What a constant may differ from a fit by: it was rounded when it was written down.
ROUNDING = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    args = parser.parse_args()
    differing = constants_that_differ()
    for line in differing:
        print(f"parts/plan/planner/fitted_constants.py: {line}", file=sys.stderr)
    text = page()
    if args.check:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{PAGE} is not what the data gives: make accuracy", file=sys.stderr)
        return 0 if same and not differing else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}: {len(text.splitlines())} lines")
    return 1 if differing else 0


def page() -> str:
    """The whole of docs/accuracy.md."""
    parts = [opening(), left_out()]
    parts += [import_module(name).section() for name in SECTIONS if (HERE / f"{name}.py").is_file()]
    text = "\n".join(part.rstrip() + "\n" for part in parts)
    return re.sub(r"(?<=\d)%", " %", text)


def opening() -> str:
    """What the page is, and the figures that have targets."""
    lines = [
        "# How far the planner is off",
        "",
        "Written by `make accuracy` from the published measurements in `bench/data`, whose rows name their sources. Each figure is of rows",
        "that no constant was fitted on: the row's source, or its workload, was held out. Errors are mean absolute ones of step times.",
        "",
        "| asked | target | source held out | workload held out | interval covers |",
        "|---|---|---:|---:|---:|",
    ]
    headline = accuracy_step.headline()
    targets = {
        "hosts": "4 %",
        "nvlink": "6 %",
        "pcie": "9 %",
        "host-hosts": "covers 80 %",
        "device-hosts": "covers 80 %",
    }
    for tier in accuracy_step.TIERS:
        (_, by_source, covered), (_, by_workload, also) = (
            headline[tier.key][split] for split in ("source", "workload")
        )
        cells = f"{by_source:.1%} | {by_workload:.1%} | {covered:.0%}, {also:.0%}"
        lines.append(f"| {tier.title} | {targets.get(tier.key, '')} | {cells} |")
    nvlink = [
        one for one in accuracy_step.predictions(accuracy_step.TIERS[1], "source") if one.case.usual and not one.broken
    ]
    without = sum(abs(one.error) for one in nvlink) / len(nvlink)
    probe = accuracy_collective.headline()
    lines += [
        f"| An exchange between the sizes of a probe | 8 % | {probe:.1%} | | |",
        "",
        f"The NVLink figure without three boxes that keep far less of their throughput than others with the same devices: {without:.1%}",
        f"({', '.join(accuracy_step.BROKEN)}; one measured step cannot know of them, a probe of the exchange does).",
        "Memory and nothing measured at all have sections of their own below.",
        "",
    ]
    return "\n".join(lines)


def left_out() -> str:
    """Which rows take part, and why the others do not."""
    everything = rows()
    why = Counter(why_left_out(row) for row in everything)
    lines = [
        "## Rows",
        "",
        f"`bench/data/measured.csv` has {len(everything)} rows; {why.pop('')} of them are in {len(experiments())} experiments: one source,",
        "model, framework, device, precision, batch, sequence and system. Left out:",
        "",
    ]
    lines += [f"* {count}: {reason}" for reason, count in sorted(why.items(), key=lambda pair: -pair[1])]
    lines += [
        "",
        "Of the rest, experiments of one size predict nothing. Where a model's parameters are not in `bench/data/models.csv`, or the",
        "batch is not stated, the prediction does without the size of the gradients.",
        "",
    ]
    return "\n".join(lines)


def constants_that_differ() -> list[str]:
    """Constants of parts/plan/planner/fitted_constants.py that a fit on all rows does not give."""
    found = fit(experiments())
    there, given = _flat(FITTED), _flat(found)
    return [
        f"{name} is {there[name]}, the rows give {given[name]:.4g}"
        for name in there
        if abs(there[name] - given[name])
        > max(ROUNDING * abs(given[name]), 0.006 if "band" in name or "exposed" in name else 0.0001)
    ]


def _flat(constants: Fitted) -> dict[str, float]:
    one = constants.one
    flat = {f"inside_tax {kind}": value for kind, value in one.inside_tax.items()}
    flat |= {f"inside_exchange {kind}": value for kind, value in one.inside_exchange.items()}
    bands = {f"inside_band {kind}": band for kind, band in one.inside_band.items()}
    bands |= {"between_band": one.between_band, "from_device_band": one.from_device_band}
    flat |= {
        name: getattr(one, name) for name in ("inside_exposed", "between_tax", "between_exposed", "between_exchange")
    }
    for name, two in (("hosts", constants.hosts), ("devices", constants.devices)):
        flat |= {f"{name} kept": two.kept, f"{name} growth": two.growth}
        bands[f"{name} band"] = two.band
    for name, (low, high) in bands.items():
        flat |= {f"{name} low": low, f"{name} high": high}
    return flat


if __name__ == "__main__":
    sys.exit(main())
