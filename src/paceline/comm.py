"""What a script uses of the exchange of gradients, without `--gradients`: strategies, DDP's hook, backends. It is in the part comm."""

from .parts.comm.backends import register
from .parts.comm.ddp.attach import LANES, AttachedStrategy, GradientStrategy, attach, detach, parse, use
from .parts.comm.ddp.hook import HookState, hook

__all__ = [
    "LANES",
    "AttachedStrategy",
    "GradientStrategy",
    "HookState",
    "attach",
    "detach",
    "hook",
    "parse",
    "register",
    "use",
]
