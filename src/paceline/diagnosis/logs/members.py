"""Processes that have not come, as Lightning counts them: each says which member it is, and rank 0 says when all are there. Pure."""

import re
from collections.abc import Sequence

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.lines import Log
from paceline.findings import CauseFinding, Confidence

# Source: pytorch_lightning/plugins/training_type/ddp.py (1.x), lightning/fabric/utilities/distributed.py (2.x)
_MEMBER = re.compile(
    r"(?i)(?:initializing (?:ddp|distributed)): GLOBAL_RANK: (?P<rank>\d{1,6}), MEMBER: \d{1,6}/(?P<count>\d{1,6})"
)
_ALL = re.compile(r"(?i)all (?:distributed|ddp) processes (?:registered|ready)|^distributed_backend=", re.MULTILINE)


def judge_members(logs: Sequence[Log]) -> list[CauseFinding]:
    """R01 where rank 0 has come and never said that all are there, and others have written nothing."""
    found = [(log, match) for log in logs for match in _MEMBER.finditer(log.text)]
    ranks = {int(match["rank"]) for _, match in found}
    if 0 not in ranks or any(_ALL.search(log.text) for log in logs):
        return []
    log, last = found[-1]
    count = int(last["count"])
    absent = tuple(sorted(set(range(count)) - ranks))
    if not absent:
        return []
    return [
        CauseFinding(
            code="R01",
            title="fewer ranks started than the world size says",
            level=Level.START,
            ranks=absent,
            confidence=Confidence.LIKELY,
            saw=(
                log.line_at(last.start()).shown(),
                f"{len(ranks)} of {count} processes came, and the others wrote nothing here",
            ),
            next=(
                "under Slurm: srun python SCRIPT, with --ntasks-per-node as large as devices; without srun one process starts",
                "elsewhere: the logs of the other hosts: which of them started",
            ),
        )
    ]
