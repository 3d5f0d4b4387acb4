"""N06: rank 1 enters a loop that never ends; with `--kind regex` a regular expression that explodes, which holds Python's lock too.

paceline run --nproc-per-node 2 examples/broken/n06_busy_loop.py
"""

import re

from training import Training, arguments


def wait_until_ready(flags: dict[str, bool]) -> None:
    while not flags["ready"]:
        pass


args = arguments(__doc__, kind="loop")
with Training(args) as training:
    for step in training.steps():
        if training.breaks(step):
            if args.kind == "regex":
                re.match(r"(a+)+$", "a" * 40 + "c")
            else:
                wait_until_ready({"ready": False})
        training.step()
