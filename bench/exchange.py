"""The exchange of gradients, measured: on one host, on emulated networks, on a device. One front for three benches.

    .venv/bin/python bench/exchange.py                   one host, then the networks: up to 3 hours, resumable, needs root for the networks
    .venv/bin/python bench/exchange.py host ...          bench/exchange_host.py: shared memory beside gloo, OpenMPI, DeepSpeed and a copy
    .venv/bin/python bench/exchange.py network ...       bench/exchange_network.py: strategies on 4 hosts, steps and time to the same loss
    .venv/bin/python bench/exchange.py --device cuda     bench/exchange_hooks.py: hooks on CUDA tensors beside torch's own

Whatever follows the name is the bench's own; each has --help.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = ("host", "network", "hooks")


def main(argv: list[str]) -> int:
    if argv[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if argv and argv[0] in PARTS:
        return run(argv[0], argv[1:])
    if argv[:1] == ["--device"] or argv[:1] == ["--device=cuda"]:
        return run("hooks", argv)
    if argv:
        print(f"{argv[0]}: there are {', '.join(PARTS)} and --device cuda", file=sys.stderr)
        return 2
    return run("host", []) or run("network", [])


def run(part: str, argv: list[str]) -> int:
    return subprocess.run([sys.executable, str(HERE / f"exchange_{part}.py"), *argv], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
