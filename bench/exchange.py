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


def main(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if words and words[0] in PARTS:
        return run(words[0], words[1:])
    if words[:1] == ["--device"] or words[:1] == ["--device=cuda"]:
        return run("hooks", words)
    if words:
        print(f"{words[0]}: there are {', '.join(PARTS)} and --device cuda", file=sys.stderr)
        return 2
    return run("host", []) or run("network", [])


def run(part: str, words: list[str]) -> int:
    return subprocess.run([sys.executable, str(HERE / f"exchange_{part}.py"), *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
