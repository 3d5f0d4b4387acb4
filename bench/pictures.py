"""The pictures of README and docs, from measurements in this repository: writes docs/pictures/ and docs/pictures.md.

.venv/bin/python bench/pictures.py            under a minute, no GPU, no torch
.venv/bin/python bench/pictures.py --check    exit 1 where a picture is not what the data give
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import accuracy_step  # noqa: E402

from paceline.parts.plan.cli.options import parse_plan  # noqa: E402
from paceline.parts.plan.cli.question import question_of  # noqa: E402
from paceline.parts.plan.planner.evaluate import evaluate  # noqa: E402
from paceline.parts.plan.views.plan_picture import plan_svg  # noqa: E402
from paceline.parts.web.views.svg import DARK, LIGHT, Axis, Bar, Bars, Chart, Draw, Palette, Point, Series, picture  # noqa: E402

DOCS = HERE.parent / "docs"
FOLDER, PAGE = DOCS / "pictures", DOCS / "pictures.md"
PALETTES = {"light": LIGHT, "dark": DARK}
# MPT-760m of the llm-foundry benchmarks: the two smallest host counts, of 8 A100 of 40 GB each.
PLAN = (
    *("--instance", "p4d.24xlarge", "--host-counts", "1,2,4,8,16", "--parameters", "760M", "--batch", "12"),
    *("--measured-step-ms-at", "1=814.5", "--measured-step-ms-at", "2=830.1", "--measured-batch", "12"),
    *("--epochs", "1", "--samples", "4000000", "--max-run", "6h"),
)
MIB = {"KiB": 2**-10, "MiB": 1.0}
# The experiments of most sizes, and the one whose worst row is the worst of all.
SCALING = (
    ("llm-foundry", "MPT-760m", "bf16", 12.0),
    ("NVIDIA examples", "Transformer-XL large", "FP32", 4.0),
    ("NVIDIA examples", "BioBERT (BERT-Base)", "AMP-FP16", 128.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One picture of the page."""

    name: str
    """Beginning of its files' names."""
    title: str
    """Heading on the page."""
    made_by: str
    """The command or the data."""
    draw: Callable[[Palette], str]
    """Makes the picture in the colours of a palette."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    args = parser.parse_args()
    files = contents()
    if not args.check:
        FOLDER.mkdir(exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
        print(f"wrote {len(files)} files: {PAGE} and {FOLDER}")
        return 0
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path} is not what the data give: make pictures", file=sys.stderr)
    return 1 if stale else 0


def contents() -> dict[Path, str]:
    """Every file with its text."""
    found = {
        FOLDER / f"{one.name}-{ground}.svg": one.draw(palette)
        for one in PICTURES
        for ground, palette in PALETTES.items()
    }
    return {**found, PAGE: page()}


def page() -> str:
    """The whole of docs/pictures.md."""
    parts = [
        "# Pictures",
        "",
        "Made by `make pictures` from measurements in this repository. `paceline plan` and `paceline bench` draw such",
        "pictures of your own job with `--svg FILE`, beside the table of the same numbers.",
    ]
    for one in PICTURES:
        parts += ["", f"## {one.title}", "", html(one, ""), "", one.made_by]
    return "\n".join(parts) + "\n"


def html(one: Picture, before: str) -> str:
    """The element that shows a picture on light and on dark. `before`: the way to the docs."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{before}pictures/{one.name}-dark.svg">'
        f'<img src="{before}pictures/{one.name}-light.svg" alt="{one.title}"></picture>'
    )


# ----------------------------------------------------------------------------------------------------------------- pictures


def plan_of_two_types(palette: Palette) -> str:
    return plan_svg(evaluate(question_of(parse_plan(PLAN))), palette=palette)


def scaling(palette: Palette) -> str:
    """Steps of published jobs, and what the two smallest host counts predicted, their source held out of the fit."""
    found = accuracy_step.predictions(accuracy_step.TIERS[0], "source")
    series, measured = [], []
    for source, model, precision, batch in SCALING:
        same = [
            one
            for one in found
            if (one.case.experiment.source, one.case.experiment.model) == (source, model)
            and (one.case.experiment.precision, one.case.experiment.batch) == (precision, batch)
        ]
        anchors = list(zip(same[0].case.anchors, same[0].case.anchor_seconds, strict=True))
        last, seconds = anchors[-1]
        predicted = [
            Point(one.case.target.devices, one.seconds * 1e3, one.low * 1e3, one.high * 1e3)
            for one in sorted(same, key=lambda one: one.case.target.devices)
        ]
        begin = Point(last.devices, seconds * 1e3, seconds * 1e3, seconds * 1e3)
        series.append(Series(name=f"{model}, {precision}, predicted", points=(begin, *predicted)))
        measured += [Point(anchor.devices, at * 1e3) for anchor, at in anchors]
        measured += [Point(one.case.target.devices, one.case.seconds * 1e3) for one in same]
    sizes = tuple(sorted({point.x for point in measured}))
    chart = Chart(
        title="Time of a step",
        x=Axis(title="devices", is_log=True, at=sizes),
        y=Axis(title="ms"),
        series=(*series, Series(name="measured", points=tuple(measured), draw=Draw.DOTS, is_neutral=True)),
    )
    return picture(
        "Two measured host counts predict more hosts",
        "Measured steps of published jobs, and the steps that were predicted from the two smallest host counts of each.",
        [chart],
        notes=[
            "The lines begin at the larger of the two measured counts they rest on. The job's source was held out of the fit."
        ],
        palette=palette,
    )


def one_host(palette: Palette) -> str:
    """All-reduce among two ranks of one host, from the table in docs/exchange.md."""
    rows = table_after("**2 ranks**")
    names, cells = rows[0][1:7], rows[2:]
    series = tuple(
        Series(
            name=name.removesuffix(" ms").strip("`"),
            points=tuple(Point(size_mib(row[0]), float(row[place])) for row in cells),
            draw=Draw.DASHED if name.startswith("copy") else Draw.LINE,
        )
        for place, name in enumerate(names, 1)
    )
    spelled = {size_mib(row[0]): row[0] for row in cells}
    x = Axis(title="size", is_log=True, at=tuple(spelled), spell=lambda value: spelled.get(value, ""))
    chart = Chart(title="Time of an all-reduce", x=x, y=Axis(title="ms", is_log=True), series=series)
    return picture(
        "All-reduce among two ranks of one host",
        "Time by size of a copy, gloo, OpenMPI, DeepSpeed, shared memory and the backend paceline.",
        [chart],
        notes=["Below 1 MiB OpenMPI and DeepSpeed are faster than the backend paceline."],
        palette=palette,
    )


def four_hosts(palette: Palette) -> str:
    """A step with each strategy over a slow network, from the table in docs/exchange.md."""
    rows = table_after("50,000 parameters. Latency and overhead dominate:")
    steps = [(row[0].strip("`"), row[3].strip("*").split(" ms")) for row in rows[2:]]
    plain = float(steps[0][1][0])
    bars = tuple(
        Bar(label=name, value=float(ms), text=f"{ms} ms{speed}{'×' if speed else ''}") for name, (ms, speed) in steps
    )
    return picture(
        "A step of 50,000 parameters over 100 Mbit/s with 10 ms",
        "The time of a training step on four hosts with each gradient strategy.",
        [
            Bars(
                title="Time of a step, ms; times as fast as plain DDP",
                bars=bars,
                limit=(plain, f"plain DDP {plain} ms"),
            )
        ],
        notes=["bf16, int8, powersgd and local_sgd are lossy: they do not give plain DDP's averages."],
        palette=palette,
    )


def table_after(text: str) -> list[list[str]]:
    """The cells of the first table below a line of docs/exchange.md."""
    lines = (DOCS / "exchange.md").read_text(encoding="utf-8").partition(text)[2].splitlines()
    rows = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows


def size_mib(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+) (\w+)", text).groups()  # type: ignore[union-attr]
    return float(number) * MIB[unit]


PICTURES = (
    Picture(
        name="plan",
        title="What more hosts do to pace, end and cost",
        made_by=f"`paceline plan {' '.join(PLAN)} --svg plan.svg`. Two published steps of MPT-760m (`bench/data/measured.csv`).",
        draw=plan_of_two_types,
    ),
    Picture(
        name="scaling",
        title="Predicted and measured steps of published jobs",
        made_by="`bench/data/measured.csv`, whose rows name their sources; [how far the planner is off](accuracy.md) has all of them.",
        draw=scaling,
    ),
    Picture(
        name="one-host",
        title="All-reduce on one host",
        made_by="Measured by `bench/exchange_host.py` on 2 CPU cores: the table is in [Exchange](exchange.md#one-host-measured).",
        draw=one_host,
    ),
    Picture(
        name="four-hosts",
        title="Gradient strategies on four hosts",
        made_by="Measured by `bench/exchange_network.py`, links by `tc`: the table is in [Exchange](exchange.md#four-hosts-measured).",
        draw=four_hosts,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
