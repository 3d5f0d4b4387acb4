"""What emulated networks deliver, beside what was asked for: throughput and round trip between hosts on this machine. Needs root.

    .venv/bin/python bench/links.py               about two minutes
    .venv/bin/python bench/links.py --json

Each row of the first table asks for a rate, a delay or a loss on the link of the second of two hosts and measures with plain TCP programs
in both. "Expected" is the rate less the headers of full segments (1448 of 1514 bytes), and twice the delay. The second table is of
four hosts that all send to the next one, as `paceline run --local-hosts 4` measures them.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from paceline.errors import PacelineError
from paceline.parts.lab.emulate.hosts import Hosts
from paceline.parts.lab.emulate.measure import measure_network, round_trip_ms, throughput_mbit
from paceline.parts.lab.emulate.network import Delivered as DeliveredNetwork
from paceline.parts.lab.emulate.network import Network

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
NETWORKS = (
    Network(rate_mbit=1000.0),
    Network(rate_mbit=100.0),
    Network(rate_mbit=10.0),
    Network(rate_mbit=100.0, delay_ms=10.0),
    Network(rate_mbit=1000.0, delay_ms=5.0),
    Network(rate_mbit=1000.0, delay_ms=5.0, zone_count=2, zone_delay_ms=1.0),
    Network(zone_count=2, zone_delay_ms=1.0),
    Network(rate_mbit=100.0, loss_fraction=0.001),
    Network(rate_mbit=100.0, delay_ms=5.0, loss_fraction=0.01),
)
HOSTS = 4


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
        networks = [(network, delivered(network, args.seconds)) for network in NETWORKS]
    except PacelineError as error:
        print(f"{error}: {error.saw}", file=sys.stderr)
        return error.exit_code
    if args.json:
        found = [{"asked": asdict(asked), "delivered": asdict(delivered)} for asked, delivered in networks]
        results = {"results": [asdict(row) for row in rows], "networks": found}
        print(json.dumps({"schema": "paceline.bench.links/1", **results}, indent=2))
    else:
        print(as_table(rows))
        print()
        print(as_network_table(networks))
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


def delivered(network: Network, seconds: float) -> DeliveredNetwork:
    with Hosts(HOSTS, network) as hosts:
        return measure_network(hosts, seconds=seconds)


def as_network_table(rows: list[tuple[Network, DeliveredNetwork]]) -> str:
    """The slowest and the fastest link of each network."""
    lines = [
        "| 4 hosts, asked: rate | delay | loss | zones | throughput of a link | round trip in a zone, between zones | loss | relay |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for asked, found in rows:
        rates = sorted(path.rate_mbit for path in found.paths)
        near = [path.round_trip_ms for path in found.paths if path.round_trip_ms_asked <= 2 * asked.delay_ms]
        far = [path.round_trip_ms for path in found.paths if path.round_trip_ms_asked > 2 * asked.delay_ms]
        trips = ", ".join(f"{min(some):.2f} to {max(some):.2f} ms" for some in (near, far) if some)
        lost = sum((path.lost_fraction or 0.0) * path.sent_count for path in found.paths)
        sent = sum(path.sent_count for path in found.paths)
        relay = "-" if found.relay_cpu_fraction is None else f"{found.relay_cpu_fraction:.0%} of a CPU"
        lines.append(
            f"| {'-' if asked.rate_mbit is None else f'{asked.rate_mbit:g} Mbit/s'} | {asked.delay_ms:g} ms | {asked.loss_fraction:.1%} "
            f"| {f'2, {asked.zone_delay_ms:g} ms' if asked.zone_count > 1 else '-'} | {rates[0]:.1f} to {rates[-1]:.1f} Mbit/s "
            f"| {trips} | {f'{lost / sent:.2%}' if sent else '-'} | {relay} |"
        )
    return "\n".join(lines)


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
