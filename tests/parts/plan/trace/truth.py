"""Runs a script for real for a few steps, and writes what it then finds: `truth.py OUT SCRIPT [ARGUMENT ...]`."""

import gc
import json
import os
import runpy
import sys
from pathlib import Path

import torch
import torch.multiprocessing
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

# Two of each of two optimizers; DDP rebuilds its buckets after the first step and logs them with the next.
STEPS = 4


def size(tensor):
    """Bytes of its storage; of a sparse one, those of its rows and of their positions."""
    if tensor.layout is torch.sparse_coo:
        return size(tensor._values()) + size(tensor._indices())
    return tensor.numel() * tensor.element_size()


class Truth:
    """What the optimizers and the DDPs of a script hold. Gradients are those of the first step."""

    def __init__(self, out):
        self.out = out
        self.steps = 0
        self.optimizers = {}
        self.called = {}
        self.gradient_bytes = {}

    def before_call(self, module, *_):
        self.called[id(module)] = module

    def before_step(self, optimizer, *_):
        self.optimizers[id(optimizer)] = optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.gradient_bytes.setdefault(id(parameter), size(parameter.grad))

    def after_step(self, *_):
        self.steps += 1
        self.out.write_text(json.dumps(self.facts()))
        if self.steps == STEPS:
            os._exit(0)

    def parameters(self):
        """Those that an optimizer updates, and all others of the networks that were called: frozen layers, a teacher."""
        found = {id(p): p for one in self.optimizers.values() for group in one.param_groups for p in group["params"]}
        return found | {id(p): p for module in self.called.values() for p in module.parameters()}

    def facts(self):
        state = {id(v): v for one in self.optimizers.values() for kept in one.state.values() for v in kept.values()}
        return {
            "parameter_count": sum(p.numel() for p in self.parameters().values()),
            "gradient_bytes": sum(self.gradient_bytes.values()),
            "optimizer_bytes": sum(size(v) for v in state.values() if isinstance(v, torch.Tensor)),
            "bucket_bytes": buckets(),
        }


def of_type(kind):
    """All that are alive. By type: isinstance would ask objects that stand for others, and some of those are gone."""
    return [found for found in gc.get_objects() if issubclass(type(found), kind)]


def buckets():
    """Of the first DDP, as its reducer logs them; None without one or before they are settled."""
    for found in of_type(DistributedDataParallel):
        log = found._get_ddp_logging_data()
        sizes = log.get("rebuilt_bucket_sizes") or (found.find_unused_parameters and log.get("bucket_sizes"))
        return [int(text) for text in sizes.split(",")] if sizes else None
    return None


def spawn(fn, args=(), nprocs=1, *_, **__):
    """One rank needs no process of its own, in which nobody would look."""
    assert nprocs == 1
    fn(0, *args)


def main():
    truth = Truth(Path(sys.argv[1]))
    register_module_forward_pre_hook(truth.before_call)
    register_optimizer_step_pre_hook(truth.before_step)
    register_optimizer_step_post_hook(truth.after_step)
    torch.multiprocessing.spawn = spawn
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
