"""Installs all replacements of the trace for the machine before the script's first line."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from paceline.parts.plan.trace import checkpoints, cuda, distributed, patches, precision, values
from paceline.parts.plan.trace.fake import TraceMode
from paceline.parts.plan.trace.functions import TraceFunctions
from paceline.parts.plan.trace.loading import Loading
from paceline.parts.plan.trace.modules import Modules
from paceline.parts.plan.trace.outcome import TraceOutcome
from paceline.parts.plan.trace.patch import replace
from paceline.parts.plan.trace.replicas import Replicas
from paceline.parts.plan.trace.session import TraceSession
from paceline.parts.plan.trace.sharded import Shards
from paceline.parts.plan.trace.steps import Steps


@contextlib.contextmanager
def installed(session: TraceSession) -> Iterator[TraceMode]:
    """Patch torch for tracing for the duration of the block. The process exits inside it, after the first optimizer step."""
    values.tell(session)
    # Recurrent layers step by step: oneDNN's own layer hides what it keeps for backward.
    torch._C._set_mkldnn_enabled(False)
    mode = TraceMode()
    if session.device_type == "cuda":
        cuda.install(session)
    else:
        replace(torch.cuda, is_available=lambda: False)
    precision.install(session)
    distributed.install(session)
    modules, loading, replicas = Modules(mode), Loading(session), Replicas(session)
    steps = Steps(session, mode, modules)
    parts: tuple[Any, ...] = (modules, loading, steps)
    for part in parts:
        part.install()
    shards = Shards(session, mode)
    if torch.distributed.is_available():
        replicas.install()
        shards.install()
    patches.install(session)
    checkpoints.install(session)
    session.on_finish.append(TraceOutcome(session, modules, steps, loading, replicas).facts)
    session.on_finish.append(shards.facts)
    if session.world_size == 1:
        session.assume("world size 1: what the script divides by the number of ranks is undivided", anywhere=True)
    with TraceFunctions(session, mode):
        yield mode
