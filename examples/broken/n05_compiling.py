"""N05: rank 1 meets a new shape and compiles for it, with a cold cache, while the others wait.

paceline run --nproc-per-node 2 examples/broken/n05_compiling.py

`--real 0` compiles with a back end that only takes its time, where there is no C++ compiler.
"""

import os
import tempfile
import time
from collections.abc import Callable

import torch
from training import FEATURES, Training, arguments, network

args = arguments(__doc__, seconds=60, real=1, layers=40)


def slow(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A back end that works for a while and changes nothing."""
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        torch.fx.symbolic_trace(network())
    return graph.forward


with Training(args) as training, tempfile.TemporaryDirectory() as cache:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    for step in training.steps():
        if training.breaks(step):
            model = network(layers=args.layers)
            compiled = torch.compile(model, backend="inductor" if args.real else slow)
            for rows in range(2, 10 if args.real else 3):
                torch._dynamo.reset()
                compiled(torch.randn(rows, FEATURES)).sum().backward()
        training.step()
