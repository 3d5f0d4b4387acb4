"""All-reduce among the ranks of one host: shared memory beside gloo, OpenMPI and one plain copy of the buffer, which is the limit.

    .venv/bin/python bench/exchange_host.py                  2 and 4 ranks, 4 KiB to 100 MiB, bare and inside DDP's backward
    .venv/bin/python bench/exchange_host.py --ranks 2 --sizes 1024,1048576 --no-ddp --json FILE

Bare: in each round every contender exchanges float32 buffers for a while, in an order that is drawn anew; the slowest rank's time per
call counts. A ratio is that of two contenders of the same round, and the median of the rounds counts. The buffers are taken in turn and
amount to more than the caches hold, as gradients come from a backward and not from the exchange before (--same-buffer: always one buffer).
*copy* is torch's copy_ of the buffer to another one, on all ranks at once, since an exchange keeps all of them busy.
Inside DDP: forward and backward of a row of linear layers with so many bytes of gradients, over each backend, and with a hook that
exchanges nothing, so that what is exposed is the exchange alone and not DDP's own copies.

One thread a rank (OMP_NUM_THREADS=1). OpenMPI takes part where mpirun and mpi4py are installed, DeepSpeed's shared memory collective where
deepspeed is and the ranks are not more than the cores.
"""

import argparse
import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RANK_PROGRAM = Path(__file__).with_name("exchange_host_rank.py")
KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 25 * MIB, 100 * MIB)
DDP_SIZES = (MIB, 25 * MIB, 100 * MIB)
RANKS = (2, 4)
GO_SECONDS = 900.0
# Wanted from 1 MiB on: at least so many times as fast as gloo, and at most so many copies.
WANTED_FROM = MIB
WANTED_TIMES_GLOO = {2: 5.0, 4: 3.0}
WANTED_COPIES = {2: 1.5}
WITHIN = 1.05


CONTENDERS = ("copy", "gloo", "OpenMPI", "DeepSpeed", "shared memory", "paceline", "paceline, asynchronous")
RATIOS = (
    ("gloo", "shared memory"),
    ("OpenMPI", "shared memory"),
    ("DeepSpeed", "shared memory"),
    ("shared memory", "copy"),
    ("paceline", "gloo"),
    ("paceline, asynchronous", "gloo"),
)


@dataclass(frozen=True)
class Row:
    """One size at one number of ranks. `seconds`: {contender: [a round]}; `what`: bare, DDP."""

    what: str
    ranks: int
    bytes: int
    seconds: dict[str, list[float]]

    def median(self, name: str) -> float | None:
        return statistics.median(self.seconds[name]) if self.seconds.get(name) else None

    def ratio(self, above: str, below: str) -> float | None:
        """Median of the rounds' ratios."""
        if not self.seconds.get(above) or not self.seconds.get(below):
            return None
        return statistics.median(a / b for a, b in zip(self.seconds[above], self.seconds[below], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=RANKS, metavar="N,M")
    parser.add_argument("--sizes", type=numbers, default=SIZES, metavar="BYTES,...")
    parser.add_argument("--ddp-sizes", type=numbers, default=DDP_SIZES, metavar="BYTES,...")
    parser.add_argument("--no-ddp", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=3, help="of a round inside DDP")
    parser.add_argument("--same-buffer", action="store_true", help="exchange one buffer again and again")
    parser.add_argument("--pin", action="store_true", help="rank r stays on core r modulo the number of cores")
    parser.add_argument("--without", default="", metavar="NAME,...", help="contenders to leave out, such as OpenMPI")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = measure(options)
    print(report(rows))
    if options.json:
        results = {"schema": "paceline.bench.exchange_host/1", "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def measure(options: argparse.Namespace) -> list[Row]:
    """One job for each number of ranks."""
    given = {
        "sizes": options.sizes,
        "ddp_sizes": () if options.no_ddp else options.ddp_sizes,
        "rounds": options.rounds,
        "steps": options.steps,
        "same_buffer": options.same_buffer,
        "pin": options.pin,
        "without": options.without.split(","),
    }
    rows = []
    for ranks in options.ranks:
        rows += [
            Row(ranks=ranks, **json.loads(line)) for line in run(ranks, given).splitlines() if line.startswith("{")
        ]
    return rows


def run(ranks: int, given: dict[str, Any]) -> str:
    """What rank 0 printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, str(RANK_PROGRAM), str(port), str(ranks), json.dumps(given)]
    if shutil.which("mpirun") and importlib.util.find_spec("mpi4py"):
        mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        commands = [[*mpirun, *(["--allow-run-as-root"] if os.getuid() == 0 else []), *program]]
    else:
        commands = [[*program, "--rank", str(rank)] for rank in range(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        printed = [process.communicate(timeout=GO_SECONDS)[0] for process in started]
    finally:
        for process in started:
            # mpirun ends its ranks and takes their files away, if it is asked.
            process.terminate()
        for process in started:
            process.wait()
    if any(process.returncode for process in started):
        raise SystemExit(f"{ranks} ranks did not finish: exit codes {[process.returncode for process in started]}")
    return "".join(printed)


# -- report


def report(rows: list[Row]) -> str:
    """Tables in Markdown, and where the wanted figures were not reached."""
    parts = []
    for ranks in sorted({row.ranks for row in rows}):
        of_ranks = [row for row in rows if row.ranks == ranks]
        parts += bare_table(ranks, [row for row in of_ranks if row.what == "bare"])
        parts += ddp_table(ranks, [row for row in of_ranks if row.what == "DDP"])
    return "\n".join(parts)


def bare_table(ranks: int, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    contenders = [name for name in CONTENDERS if name in rows[0].seconds]
    ratios = [pair for pair in RATIOS if set(pair) <= set(contenders)]
    lines = [
        f"### {ranks} ranks, bare",
        "",
        f"| size | {' | '.join(contenders)} | {' | '.join(f'{above} / {below}' for above, below in ratios)} |",
        "|---:" * (1 + len(contenders) + len(ratios)) + "|",
    ]
    for row in rows:
        times = [milliseconds(row.median(name)) for name in contenders]
        figures = [figure(row.ratio(*pair)) for pair in ratios]
        lines.append(f"| {size_text(row.bytes)} | {' | '.join((*times, *figures))} |")
    return [*lines, "", crossover_text(rows), *missed(ranks, rows), ""]


def crossover_text(rows: list[Row]) -> str:
    """From which size on shared memory is the faster one."""
    slower = [row.bytes for row in rows if (ratio := row.ratio("gloo", "shared memory")) is not None and ratio < 1]
    if not slower:
        return f"Shared memory is faster than gloo at every size measured, from {size_text(rows[0].bytes)} on."
    return f"Shared memory is faster than gloo above {size_text(max(slower))}."


def missed(ranks: int, rows: list[Row]) -> list[str]:
    lines = []
    for row in rows:
        times, copies = row.ratio("gloo", "shared memory"), row.ratio("shared memory", "copy")
        if row.bytes >= WANTED_FROM and times is not None and times < WANTED_TIMES_GLOO.get(ranks, 0):
            lines.append(
                f"MISSED at {size_text(row.bytes)}: {times:.1f} times gloo, wanted {WANTED_TIMES_GLOO[ranks]:g}."
            )
        if row.bytes >= WANTED_FROM and copies is not None and copies > WANTED_COPIES.get(ranks, 1e9):
            lines.append(f"MISSED at {size_text(row.bytes)}: {copies:.2f} copies, wanted {WANTED_COPIES[ranks]:g}.")
        if (against := row.ratio("paceline", "gloo")) is not None and against > WITHIN:
            lines.append(
                f"MISSED at {size_text(row.bytes)}: backend paceline takes {against:.2f} times as long as gloo."
            )
    return lines


def ddp_table(ranks: int, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = [
        f"### {ranks} ranks, forward and backward under DDP",
        "",
        "| gradients | no exchange | gloo | paceline | gloo / paceline | exposed: gloo | exposed: paceline |",
        "|---:" * 7 + "|",
    ]
    for row in rows:
        alone, gloo, ours = (row.median(name) or 0.0 for name in ("no exchange", "gloo", "paceline"))
        lines.append(
            f"| {size_text(row.bytes)} | {milliseconds(alone)} | {milliseconds(gloo)} | {milliseconds(ours)} "
            f"| {figure(row.ratio('gloo', 'paceline'))} | {milliseconds(gloo - alone)} | {milliseconds(ours - alone)} |"
        )
    return [*lines, ""]


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.3g} ms"


def figure(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def size_text(size_bytes: int) -> str:
    if size_bytes >= MIB:
        return f"{size_bytes / MIB:.4g} MiB"
    return f"{size_bytes / KIB:.4g} KiB" if size_bytes >= KIB else f"{size_bytes} B"


if __name__ == "__main__":
    sys.exit(main())
