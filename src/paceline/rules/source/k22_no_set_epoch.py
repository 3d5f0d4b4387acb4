"""K22: a shuffling DistributedSampler that is never told of the epoch."""

import ast
from collections.abc import Iterator

from paceline.findings import Finding, Rule
from paceline.rules.job_facts import BeforeRun
from paceline.rules.script import Script, argument, script_of

PAGE = """\
The same order of samples in every epoch

What it means: The script makes a DistributedSampler, trains several epochs, and no file of it calls set_epoch.
Why it matters: The sampler shuffles by its seed and the epoch's number. Without set_epoch every epoch has the same order, and each rank
  sees the same part of the data in it. Training works, and is worse than it could be (M18).
What to do: `sampler.set_epoch(epoch)` at the head of each epoch. A sampler with shuffle=False is not reported, nor a script of
  Lightning, Accelerate or the Transformers Trainer, which call it themselves.
Source: torch.utils.data.distributed.DistributedSampler, "Warning".
"""

_SAMPLER = ("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler")
_CALL_IT = (
    "lightning",
    "accelerate",
    "transformers",
    "ignite",
    "composer",
    "fairseq",
    "detectron2",
    "mmcv",
    "mmengine",
    "catalyst",
)


def find(before: BeforeRun) -> Iterator[Finding]:
    """The first such sampler, if the script has epochs."""
    if before.rank_count == 1:
        return
    script = script_of(before)
    if not _has_epochs(script):
        return
    if any("set_epoch" in text or any(name in text for name in _CALL_IT) for text in before.texts):
        return
    for call in script.calls(*_SAMPLER):
        shuffle = argument(call, "shuffle", 3)
        if shuffle is None or (isinstance(shuffle, ast.Constant) and shuffle.value is True):
            yield script.finding(
                call,
                "K22",
                "nothing calls set_epoch on this sampler: every epoch has the same order",
                next="sampler.set_epoch(epoch) at the head of each epoch",
            )
            return


def _has_epochs(script: Script) -> bool:
    """Whether a loop counts epochs and contains a loop over data."""
    return any(
        isinstance(loop.target, ast.Name)
        and "epoch" in loop.target.id.lower()
        and any(isinstance(part, ast.For) for body in loop.body for part in ast.walk(body))
        for loop in script.every(ast.For)
    )


RULE = Rule(code="K22", page=PAGE, find=find)
