"""S08: packets to and from one host (that of --rank) take 10 ms each way. Needs root; starts its hosts itself.

python examples/broken/s08_latency.py --steps 600
"""

import os
import sys

from training import Training, arguments, network

args = arguments(__doc__, hosts=2, delay_ms=10.0)
if "RANK" not in os.environ:
    from several_hosts import start

    sys.exit(start(args.hosts, lambda hosts: hosts.shape(args.rank, delay_ms=args.delay_ms)))

with Training(args, network) as training:
    for _ in training.steps():
        training.step()
