"""What emulated networks deliver, beside what was asked for: throughput and round trip between two hosts on this machine. Needs root.

    .venv/bin/python bench/links.py               about a minute
    .venv/bin/python bench/links.py --json

Each row asks for a rate, a delay or a loss on the link of the second host and measures with plain TCP programs in both hosts.
"Expected" is the rate less the headers of full segments (1448 of 1514 bytes), and twice the delay.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from paceline.emulate.hosts import Hosts
from paceline.emulate.measure import round_trip_ms, throughput_mbit
from paceline.errors import PacelineError

PAYLOAD_FRACTION = 1448 / 1514
ASKED = (
    (None, 0.0, 0.0),
    (10.0, 0.0, 0.0),
    (50.0, 0.0, 0.0),
    (200.0, 0.0, 0.0),
    (1000.0, 0.0, 0.0),
    (None, 1.0, 0.0),
    (None, 10.0, 0.0),
    (None, 50.0, 0.0),
    (200.0, 10.0, 0.0),
    (200.0, 0.0, 0.01),
    (200.0, 10.0, 0.01),
)


@dataclass(frozen=True)
class Delivered:
    """One setting of a link. `rate_mbit` None: not limited. The delay and the loss are each direction's."""

    rate_mbit: float | None
    delay_ms: float
    loss_fraction: float
    throughput_mbit: float
    round_trip_ms: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each throughput is measured")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        rows = [measured(*asked, seconds=args.seconds) for asked in ASKED]
    except PacelineError as error:
        print(f"{error}: {error.saw}", file=sys.stderr)
        return error.exit_code
    if args.json:
        print(json.dumps({"schema": "paceline.bench.links/1", "results": [asdict(row) for row in rows]}, indent=2))
    else:
        print(as_table(rows))
    return 0


def measured(rate_mbit: float | None, delay_ms: float, loss_fraction: float, *, seconds: float) -> Delivered:
    """Two new hosts, one link shaped, both measures."""
    with Hosts(2) as hosts:
        hosts.shape(1, rate_mbit=rate_mbit, delay_ms=delay_ms or None, loss_fraction=loss_fraction or None)
        return Delivered(
            rate_mbit=rate_mbit,
            delay_ms=delay_ms,
            loss_fraction=loss_fraction,
            throughput_mbit=throughput_mbit(hosts, 0, 1, seconds=seconds),
            round_trip_ms=round_trip_ms(hosts, 0, 1, count=50),
        )


def as_table(rows: list[Delivered]) -> str:
    lines = [
        "| asked: rate | delay | loss | throughput | expected | round trip | expected |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rate = "-" if row.rate_mbit is None else f"{row.rate_mbit:g} Mbit/s"
        # What loss leaves of a TCP connection is TCP's doing, not the link's.
        known = row.rate_mbit is not None and not row.loss_fraction
        expected = f"{row.rate_mbit * PAYLOAD_FRACTION:.1f}" if known and row.rate_mbit is not None else "-"
        lines.append(
            f"| {rate} | {row.delay_ms:g} ms | {row.loss_fraction:.0%} | {row.throughput_mbit:.1f} Mbit/s | {expected} "
            f"| {row.round_trip_ms:.2f} ms | {2 * row.delay_ms:g} ms |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
