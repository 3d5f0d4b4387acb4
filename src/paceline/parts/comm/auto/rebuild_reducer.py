"""Sets up the exchange of a DistributedDataParallel anew between two steps: with other buckets and no communication hook.

DDP takes a hook once and never gives it back, and fixes its buckets when it is made. Both belong to its reducer, which DDP itself
makes anew when a module is unpickled; this module does the same. The training state does not change: parameters, gradients, buffers, the
optimizer and the module's own hooks stay. The first step afterwards exchanges all gradients as one bucket, as the first step of any DDP.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def why_fixed(ddp: Any) -> str | None:
    """Why the exchange of this module cannot be set up anew; None if it can. The answer is the same on every rank of one script."""
    if ddp._comm_hooks:
        return f"it registered {getattr(ddp._comm_hooks[0][0], '__name__', 'a hook')} as its communication hook"
    if getattr(ddp, "_use_python_reducer", False):
        return "it is compiled with a reducer in Python"
    if getattr(ddp, "_delay_all_reduce_params", ()):
        return "it delays the exchange of some parameters"
    if any(hasattr(parameter, "_in_backward_optimizers") for parameter in ddp._module_parameters):
        return "its optimizer steps during backward"
    if not (hasattr(ddp, "_ddp_init_helper") and hasattr(ddp.reducer, "_remove_autograd_hooks")):
        return "this torch keeps its reducer elsewhere"
    return None


def may_change_buckets(ddp: Any) -> bool:
    """Whether the script left DDP's bucket size as it is."""
    return bool(getattr(ddp, "bucket_bytes_cap_default", False)) and not getattr(ddp, "bucket_bytes_cap_list", ())


def renew(ddp: Any, *, bucket_cap_bytes: int) -> None:
    """Make the reducer of a module anew, between two steps. Every rank calls it between the same two steps.

    Holds:   a step afterwards gives bitwise the same gradients as a module that was made with these settings
    Raises:  what DDP raises; the module then exchanges as before
    """
    before, logger, config = ddp.reducer, ddp.logger, getattr(ddp, "_bucket_config", None)
    cap = ddp.bucket_bytes_cap
    try:
        if bucket_cap_bytes != cap:
            ddp.bucket_bytes_cap = bucket_cap_bytes
            if config is not None:
                first = min(config.first_bucket_bytes_cap, bucket_cap_bytes)
                ddp._bucket_config = replace(config, bucket_bytes_cap=bucket_cap_bytes, first_bucket_bytes_cap=first)
        parameters, expect_sparse = ddp._build_params_for_reducer()
        names = ddp._build_debug_param_to_name_mapping(parameters)
        ddp._ddp_init_helper(parameters, expect_sparse, names, ddp.static_graph)
    except BaseException:
        ddp.reducer, ddp.logger, ddp.bucket_bytes_cap = before, logger, cap
        if config is not None:
            ddp._bucket_config = config
        raise
    before._remove_autograd_hooks()
    ddp._has_rebuilt_buckets = False
    if ddp.static_graph:
        ddp._static_graph_delay_allreduce_enqueued = False
        ddp.reducer._set_static_graph()
        ddp.logger._set_static_graph()
