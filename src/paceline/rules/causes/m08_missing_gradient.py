"""M08: on some ranks the loss does not depend on every parameter, so DDP waits for gradients that never come."""

import re
from collections.abc import Iterator

from paceline.diagnosis.case import Case, Level
from paceline.diagnosis.crash.exits import crash, ended, log_command, place_of, saying, words_of
from paceline.findings import Cause, CauseFinding, Ground

TITLE = "a parameter got no gradient"
PAGE = """\
A parameter got no gradient

What it means: DDP exchanges a bucket once every gradient in it is ready. On this rank the loss did not use some
  parameter (a branch, a frozen part, a loss of zero), so DDP never sent that bucket. The other ranks wait in their
  exchange of it. This rank's next forward pass detects it and raises.
Why it matters: DDP's message is about one rank's graph. It does not mention the other ranks, which wait.
Deciding evidence: The rank printed "Expected to have finished reduction in the prior iteration" with the indices of
  the parameters, while the other ranks wait in their backward pass.
Not to be confused with: M09, where the models differ; N01, where the rank is asleep in its own code.
What to do: Use DistributedDataParallel(..., find_unused_parameters=True), or add `0 * sum(p.sum() for p in unused)`
  to the loss. TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters.
How to inject it: examples/broken/m08_unused_parameter.py, examples/broken/m08_everywhere.py,
  examples/broken/m08_frozen.py
Source: torch/csrc/distributed/c10d/reducer.cpp.
"""


_UNFINISHED = re.compile(r"Expected to have finished reduction in the prior iteration")
_INDICES = re.compile(r"did not receive grad for rank (?P<rank>\d+): (?P<indices>[\d ]+)")
_NAMES = re.compile(r"Parameters which did not receive grad for rank \d+: (?P<names>[^\n]+)")


def find(case: Case) -> Iterator[CauseFinding]:
    told = [exit for exit, _ in saying(case, _UNFINISHED)]
    if not told:
        return
    everybody = case.world_size is not None and len(told) == case.world_size
    saw = []
    for exit in told:
        words = words_of(case, exit)
        indices, names = _INDICES.search(words), _NAMES.search(words)
        which = f": no gradient for parameters {indices['indices'].strip()}" if indices else ""
        saw.append(f"{ended(exit)}: DDP still waited for gradients of the previous step{which}")
        saw += [f"their names: {names['names'].strip()[:200]}"] if names else []
    where = place_of(told[0])
    yield crash(
        case,
        told,
        code="M08",
        title=TITLE,
        level=Level.DIVERGENCE,
        saw=(
            *saw[:6],
            "every rank lacks some gradients"
            if everybody
            else "the other ranks had all their gradients and waited in backward",
        ),
        next=(
            "DistributedDataParallel(model, find_unused_parameters=True), or add 0 * sum(p.sum() for p in unused) to the loss",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters",
            f"the forward pass that raised is at {where}" if where else "",
            log_command(case, told[0].rank),
        ),
    )


RULE = Cause(code="M08", title=TITLE, page=PAGE, find=find, beats=("C01",), sure_by=(Ground.WORDS,))
