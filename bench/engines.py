"""From submission to the first optimizer step: `paceline submit --engine E` beside the engine's own way, in turn, on this machine.

    .venv/bin/python bench/engines.py                        every row that can be measured here, 5 pairs
    .venv/bin/python bench/engines.py ray ray-cluster -n 3   some rows
    .venv/bin/python bench/engines.py --venv /tmp/ray-train  makes that environment for Ray Train on first use

The clock starts before the command is executed and is read again by rank 0 after its first optimizer step; both sides train the same two
ranks in the same way. The two take turns (A B A B ...), after one round that only warms the page cache; the ratio is the median of the
ratios of the pairs. A row that cannot be measured here is shown as skipped, with what is missing.

A row is an `Offer` in `offers` below: what it needs, our command, theirs, and the ratio that is wanted.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import engines_ray
import engines_slurm

Measure = Callable[[Path], float]
"""Seconds from submission to the first step; its files go below the directory."""


@dataclass(frozen=True)
class Offer:
    """One row. `missing`: why it cannot be measured here, or None. `ready`: what both sides run on, as (ours, theirs)."""

    name: str
    title: str
    wanted: float
    missing: Callable[[], str | None]
    ready: Callable[[Path], AbstractContextManager[tuple[Measure, Measure]]]


@dataclass(frozen=True)
class Row:
    """One row, measured. `skipped` is why it was not."""

    title: str
    wanted: float
    pairs: int = 0
    ours_median: float = 0.0
    theirs_median: float = 0.0
    ratio: float = 0.0
    ratio_lowest: float = 0.0
    ratio_highest: float = 0.0
    skipped: str = ""

    @property
    def reached(self) -> bool:
        return bool(self.skipped) or self.ratio <= self.wanted


def offers(args: argparse.Namespace) -> tuple[Offer, ...]:
    train = engines_ray.train_python(args.venv)
    return (
        Offer(
            "ray",
            "Ray of its own / Ray Train",
            0.6,
            lambda: engines_ray.missing(train),
            lambda folder: engines_ray.embedded(train, folder),
        ),
        Offer(
            "ray-cluster",
            "Ray that is running / Ray Train",
            0.6,
            lambda: engines_ray.missing(train),
            lambda folder: engines_ray.on_a_cluster(train, folder),
        ),
        Offer("slurm", "Slurm, 2 nodes / srun torchrun", 1.0, engines_slurm.missing, engines_slurm.on_a_cluster),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="names of rows; all of them")
    parser.add_argument("-n", "--pairs", type=int, default=5)
    parser.add_argument("--venv", type=Path, help="environment with ray[train]; made where there is none")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    known = offers(args)
    wrong = set(args.rows) - {offer.name for offer in known}
    if wrong:
        print(f"{', '.join(sorted(wrong))}: there are {', '.join(offer.name for offer in known)}", file=sys.stderr)
        return 2
    rows = [measured(offer, args.pairs) for offer in known if not args.rows or offer.name in args.rows]
    print(as_json(rows) if args.json else as_table(rows))
    return 0 if all(row.reached for row in rows) else 1


def measured(offer: Offer, pairs: int) -> Row:
    reason = offer.missing()
    if reason is not None:
        return Row(offer.title, offer.wanted, skipped=reason)
    with (
        tempfile.TemporaryDirectory(prefix="paceline-bench-", dir="/tmp") as folder,
        offer.ready(Path(folder)) as (ours, theirs),
    ):
        values = list(in_turn(ours, theirs, pairs, Path(folder)))
    ratios = [our / their for our, their in values]
    return Row(
        offer.title,
        offer.wanted,
        len(values),
        statistics.median(our for our, _ in values),
        statistics.median(their for _, their in values),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def in_turn(ours: Measure, theirs: Measure, pairs: int, folder: Path) -> Iterator[tuple[float, float]]:
    for turn in range(pairs + 1):
        both = []
        for name, measure in (("ours", ours), ("theirs", theirs)):
            own = folder / f"{turn}-{name}"
            own.mkdir()
            both.append(measure(own))
        if turn:
            print(f"  {both[0]:7.2f} s  {both[1]:7.2f} s", file=sys.stderr, flush=True)
            yield both[0], both[1]


def as_table(rows: Sequence[Row]) -> str:
    lines = [
        f"{'to the first step':32} {'n':>3} {'paceline':>9} {'theirs':>9} {'ratio':>6}  {'lowest..highest':>15}  wanted"
    ]
    for row in rows:
        if row.skipped:
            lines.append(f"{row.title:32} skipped: {row.skipped}")
            continue
        spread = f"{row.ratio_lowest:.2f}..{row.ratio_highest:.2f}"
        lines.append(
            f"{row.title:32} {row.pairs:>3} {row.ours_median:>8.2f}s {row.theirs_median:>8.2f}s {row.ratio:>6.2f}  {spread:>15}  "
            f"<= {row.wanted} {'reached' if row.reached else 'MISSED'}"
        )
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    return json.dumps({"schema": "paceline.bench.engines/1", "rows": [asdict(row) for row in rows]}, indent=2)


if __name__ == "__main__":
    sys.exit(main())
