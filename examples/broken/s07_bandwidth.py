"""S07: the link of one host (that of --rank) carries 200 Mbit/s, too little for the gradients. Needs root; starts its hosts itself.

python examples/broken/s07_bandwidth.py --steps 300
"""

import os
import sys

from training import Training, arguments, network

args = arguments(__doc__, hosts=2, rate_mbit=200.0)
if "RANK" not in os.environ:
    from several_hosts import start

    sys.exit(start(args.hosts, lambda hosts: hosts.shape(args.rank, rate_mbit=args.rate_mbit)))

with Training(args, lambda: network(hidden=512, layers=4), bucket_cap_mb=2) as training:
    for _ in training.steps():
        training.step()
