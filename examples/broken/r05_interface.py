"""R05: rank 1 gives gloo an interface in NCCL's spelling "^lo" (every one but lo), which gloo takes for a name.

paceline run --nproc-per-node 2 examples/broken/r05_interface.py
"""

import os

from training import RANK, Training, arguments

args = arguments(__doc__, interface="^lo")
if args.rank == RANK:
    os.environ["GLOO_SOCKET_IFNAME"] = args.interface
with Training(args) as training:
    for _ in training.steps():
        training.step()
