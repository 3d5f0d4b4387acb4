"""Strategies for the exchange of gradients on emulated networks of four hosts, beside plain DDP on gloo. Needs root. Hours, and resumable.

    .venv/bin/python bench/exchange_network.py                      what is missing in the file, for at most 3 hours in all
    .venv/bin/python bench/exchange_network.py --only 100mbit+10ms  one network
    .venv/bin/python bench/exchange_network.py --report             the tables of what is there

Step times: each strategy has a model of its own, and all of them train in turn, in blocks of 8 steps, 7 rounds, in the same processes;
a ratio is plain DDP's block over the strategy's block of the same round, and the median of the rounds counts. Time to the same loss: the
character GPT of examples/, plain DDP for a number of steps first, then each strategy until its validation loss is as low as plain DDP's
was with the same seed; only training counts. The network is measured before and after each go, and what is more than 10 % off makes its
cells void: they are measured again by the next call. Each finished cell is one line of the file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from paceline.errors import PacelineError  # noqa: E402
from paceline.parts.comm.planner.strategies import EXACT, NAMES  # noqa: E402
from paceline.parts.lab.emulate.hosts import Hosts  # noqa: E402
from paceline.parts.lab.emulate.measure import measure_network  # noqa: E402
from paceline.parts.lab.emulate.network import Delivered, Network, wrong_paths  # noqa: E402

PLAIN = "ddp"
HOSTS = 4
ROUNDS, BLOCK = 7, 8
NETWORKS = {
    "1gbit": Network(rate_mbit=1000.0),
    "100mbit": Network(rate_mbit=100.0),
    "100mbit+10ms": Network(rate_mbit=100.0, delay_ms=10.0),
}
# Network -> sizes of the model: one in which latency rules, one in which bytes do.
SIZES = {"1gbit": (50_000, 5_000_000), "100mbit": (50_000, 1_000_000), "100mbit+10ms": (50_000, 1_000_000)}
# With the bench's own, which shows what is wrong with one server for all.
STRATEGIES = (
    *NAMES,
    "parameter_server_central",
    "bf16",
    "int8",
    "powersgd",
    "direct+bf16",
    "direct+int8",
    "direct+powersgd",
    "local_sgd",
)
TRAINED_ON = "100mbit"
TRAINED = (PLAIN, "best exact", "bf16", "int8", "powersgd", "local_sgd")
SEEDS = (0, 1, 2)
# Of training: steps of plain DDP, and how many times as many another strategy may take.
STEPS, MOST_TIMES = 608, 3
TRIES, PAUSE_SECONDS = 3, 20.0
GO_SECONDS = 1800.0

Cell = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".paceline/bench/exchange_network.jsonl"), metavar="FILE")
    parser.add_argument("--hours", type=float, default=3.0, help="of all calls with this file together")
    parser.add_argument("--only", default="", help=f"of {', '.join(NETWORKS)}, training")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--again", action="store_true", help="measure also what failed in an earlier call")
    parser.add_argument("--report", action="store_true", help="print the tables, measure nothing")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else [*NETWORKS, "training"]
    if unknown := set(only) - {*NETWORKS, "training"}:
        parser.error(f"--only {','.join(unknown)}: there are {', '.join(NETWORKS)}, training")
    results = Results(options.out, again=options.again)
    if not options.report:
        try:
            measure(results, only, options.strategies.split(","), options.hours * 3600)
        except PacelineError as error:
            print(f"{error}: {error.saw}", file=sys.stderr)
            return error.exit_code
    print(report(results.cells))
    return 0


class Results:
    """The file: one finished cell a line, the last one of a cell counts."""

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.cells: list[Cell] = [json.loads(line) for line in lines]
        self.old = frozenset(range(len(lines))) if again else frozenset()

    def add(self, cell: Cell) -> None:
        self.cells.append(cell)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cell) + "\n")
        said = cell.get("failed") or cell.get("void") or "done"
        print(
            f"{cell['kind']} {cell['network']} {cell.get('size', '')} {cell['strategy']} {cell.get('seed', '')}: {said}",
            flush=True,
        )

    def has(self, **key: Any) -> bool:
        """Whether a cell is there and not void. One that failed is there, unless it is old and to be measured again."""
        return any(
            not cell.get("void") and not ("failed" in cell and place in self.old)
            for place, cell in enumerate(self.cells)
            if all(cell.get(name) == value for name, value in key.items())
        )

    @property
    def seconds(self) -> float:
        """Spent so far, by every call."""
        return sum(cell.get("go_seconds", 0.0) for cell in self.cells)


def measure(results: Results, only: list[str], strategies: list[str], most_seconds: float) -> None:
    """What is missing, step times first, while there is time. What becomes void is left to the next call."""
    for network in (name for name in only if name != "training"):
        for size in SIZES[network]:
            tried: set[str] = set()
            while results.seconds < most_seconds:
                missing = [
                    strategy
                    for strategy in strategies
                    if strategy not in tried
                    and not results.has(kind="step", network=network, size=size, strategy=strategy)
                ]
                if not missing:
                    break
                tried |= step_go(results, network, size, missing)
    for seed in SEEDS if "training" in only else ():
        for wanted in TRAINED:
            if results.seconds < most_seconds and not results.has(kind="train", wanted=wanted, seed=seed):
                train_go(results, wanted, seed)


# -- one go: four hosts, one rank each


def step_go(results: Results, network: str, size: int, strategies: list[str]) -> set[str]:
    """The strategies on one network, in one set of processes; those that have a cell now. One that fails takes the others along."""
    argv = ["step", "--parameters", str(size), "--strategies", ",".join(strategies)]
    said, around = go(network, [*argv, "--rounds", str(ROUNDS), "--block", str(BLOCK)])
    cells = [line for line in said if "step_seconds" in line and line["strategy"] != PLAIN]
    failed = [line for line in said if "failed" in line]
    if not cells and not failed:
        at = next((line["at"] for line in reversed(said) if "at" in line), PLAIN)
        failed = [{"failed": at, "text": around["ended"] or "the ranks ended without a word"}]
    seconds = around.pop("go_seconds")
    for line in failed:
        cell = {"kind": "step", "network": network, "size": size, **around, "strategy": line["failed"]}
        results.add({**cell, "failed": line["text"], "void": "", "go_seconds": seconds})
        seconds = 0.0
    for line in cells:
        results.add({"kind": "step", "network": network, "size": size, **around, **line, "go_seconds": seconds})
        seconds = 0.0
    named = {line["failed"] for line in failed} | {line["strategy"] for line in cells}
    # Where plain DDP itself does not run, nothing will.
    return set(strategies) if PLAIN in named else named


def train_go(results: Results, wanted: str, seed: int) -> None:
    """One strategy with one seed, until it has plain DDP's loss."""
    strategy = best_exact(results.cells) if wanted == "best exact" else wanted
    target = next(
        (
            cell["loss"]
            for cell in results.cells
            if cell["kind"] == "train" and (cell["wanted"], cell["seed"]) == (PLAIN, seed)
            if not cell["void"] and "loss" in cell
        ),
        None,
    )
    if wanted != PLAIN and target is None:
        return
    argv = ["train", "--strategy", strategy, "--seed", str(seed), "--target", str(target or 0.0)]
    said, around = go(TRAINED_ON, [*argv, "--steps", str(STEPS), "--most-steps", str(STEPS * MOST_TIMES)])
    cell = next((line for line in said if "curve" in line), None)
    common = {"kind": "train", "network": TRAINED_ON, "wanted": wanted, "strategy": strategy, "seed": seed, **around}
    failed = next(
        (line["text"] for line in said if "failed" in line), around["ended"] or "the ranks ended without a word"
    )
    results.add({**common, **cell} if cell else {**common, "failed": failed, "void": ""})


def best_exact(cells: list[Cell]) -> str:
    """The exact strategy that was fastest on the network that is trained on, with the larger model; `direct` while nothing is known."""
    found = [
        (statistics.median(cell["step_seconds"]), cell["strategy"])
        for cell in cells
        if cell["kind"] == "step" and cell["network"] == TRAINED_ON and cell["size"] == SIZES[TRAINED_ON][-1]
        if cell["strategy"] in EXACT and not cell.get("void") and "step_seconds" in cell
    ]
    return min(found)[1] if found else "direct"


def go(network: str, argv: list[str]) -> tuple[list[Cell], Cell]:
    """What rank 0 said, and what was around it: the network before and after, the relay's share, the time, why it ended."""
    began = time.monotonic()
    with Hosts(HOSTS, NETWORKS[network]) as hosts:
        before = quiet_network(hosts)
        use, started = hosts.relay_use(), time.monotonic()
        said, ended = run_ranks(hosts, argv)
        used, passed = hosts.relay_use(), time.monotonic() - started
        after = measure_network(hosts)
    wrong = [
        f"{when}: {path.source} to {path.target}: {text}"
        for when, found in (("before", before), ("after", after))
        for path, text in wrong_paths(found.paths)
    ]
    return said, {
        "void": "; ".join(wrong),
        "delivered": asdict(before),
        "delivered_after": asdict(after),
        "relay_cpu_fraction": None if use is None or used is None else (used.cpu_seconds - use.cpu_seconds) / passed,
        "ended": ended,
        "load": os.getloadavg()[0],
        "go_seconds": time.monotonic() - began,
    }


def quiet_network(hosts: Hosts) -> Delivered:
    """The first measurement that is right, or the last one tried."""
    for _ in range(TRIES - 1):
        found = measure_network(hosts)
        if not wrong_paths(found.paths):
            return found
        time.sleep(PAUSE_SECONDS)
    return measure_network(hosts)


def run_ranks(hosts: Hosts, argv: list[str]) -> tuple[list[Cell], str]:
    """The lines of rank 0, and how it ended where that was not well."""
    common = {
        **os.environ,
        "WORLD_SIZE": str(HOSTS),
        "MASTER_ADDR": hosts.names[0],
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(HERE / "exchange_network_rank.py"), *argv]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        ranks = [
            hosts.run_in(
                rank,
                command,
                env={**common, "RANK": str(rank), "LOCAL_RANK": "0"},
                stdout=out if rank == 0 else subprocess.DEVNULL,
                stderr=err,
            )
            for rank in range(HOSTS)
        ]
        ended = ""
        try:
            codes = list(watched(ranks))
            if any(codes):
                err.seek(0)
                ended = f"exit codes {codes}: {err.read()[-600:]}"
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        out.seek(0)
        return [json.loads(line) for line in out if line.startswith("{")], ended


def watched(ranks: list[subprocess.Popen[bytes]]) -> Iterator[int]:
    """The exit code of each, in order; all are ended once one has failed, or when the time for one go is over."""
    deadline = time.monotonic() + GO_SECONDS
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks) or time.monotonic() > deadline:
            for rank in ranks:
                rank.kill()
        time.sleep(0.2)
    for rank in ranks:
        yield rank.wait()


# -- tables


def report(cells: list[Cell]) -> str:
    """Markdown: a table for each network and size, and one for the losses. The last line of a cell counts; void and failed ones say so."""
    parts = [step_table(cells, network, size) for network in NETWORKS for size in SIZES[network]]
    return "\n\n".join([*filter(None, parts), train_table(cells)])


def step_table(cells: list[Cell], network: str, size: int) -> str:
    last = {c["strategy"]: c for c in cells if c["kind"] == "step" and (c["network"], c["size"]) == (network, size)}
    if not last:
        return ""
    some = next((c for c in last.values() if "step_seconds" in c), next(iter(last.values())))
    rates = [path["rate_mbit"] for path in some["delivered"]["paths"]]
    trips = [path["round_trip_ms"] for path in some["delivered"]["paths"]]
    relay = (
        "no relay"
        if some["relay_cpu_fraction"] is None
        else f"the relay took {some['relay_cpu_fraction']:.0%} of a CPU"
    )
    lines = [
        f"**{network}, {some.get('parameters', size):,} parameters**: {min(rates):.0f} to {max(rates):.0f} Mbit/s delivered, "
        f"round trip {statistics.median(trips):.2f} ms, {relay}",
        "",
        "| strategy | ms per step | plain DDP | times as fast | of the rounds | KiB sent per step |",
        "|---|---|---|---|---|---|",
    ]
    for strategy, cell in last.items():
        if "step_seconds" not in cell or cell.get("void"):
            lines.append(
                f"| {strategy} | {'void: ' + cell['void'] if cell.get('void') else 'failed: ' + cell.get('failed', '')[:100]} |||||"
            )
            continue
        ratios = [plain / ours for plain, ours in zip(cell["plain_seconds"], cell["step_seconds"], strict=True)]
        sent = "-" if cell.get("sent_bytes") is None else f"{cell['sent_bytes'] / 1024:.0f}"
        lines.append(
            f"| {strategy} | {statistics.median(cell['step_seconds']) * 1e3:.1f} | {statistics.median(cell['plain_seconds']) * 1e3:.1f} "
            f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | {sent} |"
        )
    return "\n".join(lines)


def train_table(cells: list[Cell]) -> str:
    last = {(c["wanted"], c["seed"]): c for c in cells if c["kind"] == "train"}
    if not last:
        return ""
    losses = [c["loss"] for (wanted, _), c in last.items() if wanted == PLAIN and "loss" in c]
    spread = f"{min(losses):.3f} to {max(losses):.3f}" if losses else "-"
    lines = [
        f"**Character GPT, {TRAINED_ON}**: plain DDP's validation loss after {STEPS} steps is {spread} over {len(losses)} seeds",
        "",
        f"| strategy | seconds to plain DDP's loss, by seed | times as fast, median | loss after {STEPS} steps, by seed | void |",
        "|---|---|---|---|---|",
    ]
    for wanted in TRAINED:
        mine = [
            (c, last.get((PLAIN, seed), {}))
            for (name, seed), c in sorted(last.items(), key=lambda item: item[0][1])
            if name == wanted
        ]
        if not mine:
            continue
        spent = [c["curve"][-1][1] if wanted == PLAIN and "curve" in c else c.get("target_seconds") for c, _ in mine]
        ratios = [p["curve"][-1][1] / s for s, (_, p) in zip(spent, mine, strict=True) if s and "curve" in p]
        shown = ", ".join("not reached" if s is None else f"{s:.0f}" for s in spent)
        name = f"{mine[0][0]['strategy']} ({wanted})" if wanted != mine[0][0]["strategy"] else wanted
        losses_shown = ", ".join(f"{cell['loss']:.3f}" if "loss" in cell else "failed" for cell, _ in mine)
        times = f"{statistics.median(ratios):.2f}" if ratios else "-"
        void = sum(bool(cell.get("void")) for cell, _ in mine)
        lines.append(f"| {name} | {shown} | {times} | {losses_shown} | {void or ''} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
