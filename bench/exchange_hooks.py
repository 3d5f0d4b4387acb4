"""Hooks of DDP on tensors of one device: paceline's strategies beside plain DDP and torch's own hooks, on this machine.

    .venv/bin/python bench/exchange_hooks.py --device cuda              NCCL where every rank has a device, else gloo among those that share
    .venv/bin/python bench/exchange_hooks.py --device cpu --ranks 4     the same on CPU tensors over gloo

Each has a model of its own, and all train in turn, in blocks of 8 steps, 7 rounds, in the same processes; a ratio is plain DDP's block
over the hook's of the same round, and the median of the rounds counts. A hook that refuses this device, or breaks off, is listed with what
it said; the others are then measured without it.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RANK_PROGRAM = Path(__file__).with_name("exchange_network_rank.py")
PLAIN = "ddp"
HOOKS = ("torch's bf16", "torch's powersgd", "ring", "hierarchical", "direct", "bf16", "int8", "powersgd")
SIZES = (50_000, 5_000_000)
ROUNDS, BLOCK = 7, 8
GO_SECONDS = 90.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--parameters", default=",".join(map(str, SIZES)), metavar="N,...")
    parser.add_argument("--hooks", default=",".join(HOOKS), metavar="NAME,...")
    options = parser.parse_args()
    try:
        backend, on = where(options.device, options.ranks)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    for parameters in map(int, options.parameters.split(",")):
        cells = measured(options, parameters, backend)
        print(table(f"{parameters:,} parameters, {options.ranks} ranks on {on}, over {backend}", cells), flush=True)
    return 0


def where(device: str, ranks: int) -> tuple[str, str]:
    """The backend, and the device in words.

    Raises:  LookupError: there is no such device
    """
    import torch

    if device == "cpu":
        return "gloo", f"{os.cpu_count()} CPU cores"
    if not torch.cuda.is_available():
        raise LookupError("--device cuda: torch finds no CUDA device here; --device cpu runs the same on CPU tensors")
    count = torch.cuda.device_count()
    return "nccl" if ranks <= count else "gloo", f"{count} x {torch.cuda.get_device_name(0)}"


def measured(options: argparse.Namespace, parameters: int, backend: str) -> list[dict[str, Any]]:
    """A cell for each hook. One that ends its ranks is left out of the next try."""
    missing, cells = options.hooks.split(","), []
    while missing:
        said = go(options, parameters, backend, missing)
        failed = {line["failed"]: line for line in said if "failed" in line}
        found = [line for line in said if "step_seconds" in line and line["strategy"] != PLAIN]
        if not failed and not found:
            at = next((line["at"] for line in reversed(said) if "at" in line), PLAIN)
            failed = {at: {"failed": at, "text": "the ranks ended without a word, or not in time"}}
        cells += [*failed.values(), *found]
        done = {*failed, *(line["strategy"] for line in found)}
        missing = [name for name in missing if name not in done and PLAIN not in failed]
    return cells


def go(options: argparse.Namespace, parameters: int, backend: str, hooks: list[str]) -> list[dict[str, Any]]:
    """The lines of rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    argv = ["step", "--parameters", str(parameters), "--strategies", ",".join(hooks), "--rounds", str(ROUNDS)]
    argv += ["--block", str(BLOCK), "--device", options.device, "--backend", backend]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(RANK_PROGRAM), *argv],
                env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
                stdout=out if rank == 0 else subprocess.DEVNULL,
                stderr=err,
            )
            for rank in range(options.ranks)
        ]
        try:
            ranks[0].wait(GO_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for rank in ranks[1:]:
                # Those that rank 0 left behind wait for it in a collective.
                if ranks[0].poll() == 0:
                    rank.wait(30)
            for rank in ranks:
                rank.kill()
                rank.wait()
        out.seek(0)
        return [json.loads(line) for line in out if line.startswith("{")]


def table(title: str, cells: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        f"**{title}**",
        "",
        "| hook | ms per step | plain DDP | times as fast | of the rounds |",
        "|---|---|---|---|---|",
    ]
    for cell in cells:
        if "failed" in cell:
            lines.append(f"| {cell['failed']} | refused: {cell['text'][:120]} ||||")
            continue
        ratios = [plain / ours for plain, ours in zip(cell["plain_seconds"], cell["step_seconds"], strict=True)]
        lines.append(
            f"| {cell['strategy']} | {statistics.median(cell['step_seconds']) * 1e3:.2f} "
            f"| {statistics.median(cell['plain_seconds']) * 1e3:.2f} | {statistics.median(ratios):.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    raise SystemExit(main())
