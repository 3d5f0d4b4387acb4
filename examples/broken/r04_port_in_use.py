"""R04: another process listens on the port on which rank 0 wants to meet the others.

paceline run --nproc-per-node 2 examples/broken/r04_port_in_use.py
"""

import os
import subprocess
import sys

from training import RANK, Training, arguments

# The process that holds the port leaves with the rank that started it: its standard input ends.
HOLD = (
    "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print('held', flush=True); sys.stdin.read()"
)

args = arguments(__doc__)
port = int(os.environ["MASTER_PORT"]) % 60000 + 1
os.environ["MASTER_PORT"] = str(port)
if RANK == 0:
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(port)], stdin=pipe, stdout=pipe)
    holder.stdout.readline()
with Training(args) as training:
    for _ in training.steps():
        training.step()
