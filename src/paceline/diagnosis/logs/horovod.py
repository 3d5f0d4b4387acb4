"""What Horovod's stall inspector prints: the tensors that some ranks wait for, and the ranks that have not submitted them. Pure.

Source: horovod/common/stall_inspector.cc, 0.16 ("Stalled ranks") to 0.28 ("Missing ranks")
"""

import re
from collections.abc import Sequence

from paceline.diagnosis.case import Level
from paceline.diagnosis.logs.lines import Log, RankLine
from paceline.findings import CauseFinding, Confidence
from paceline.recording.rank_sets import named_ranks
from paceline.spelling import plural

_HEAD = re.compile(r"(?:Missing|Stalled) ranks:")
_RANK = re.compile(r"(\d{1,6}): \[([^\]\n]*)\]?\s*\Z")
_SHOWN_NAMES = 2
_LOOKED_BACK = 10_000


def judge_stalls(logs: Sequence[Log]) -> list[CauseFinding]:
    """One finding of all stalls in these logs; none where there is none."""
    missing: dict[int, list[str]] = {}
    first: RankLine | None = None
    for log in logs:
        for match in _HEAD.finditer(log.text):
            head = log.line_at(match.start())
            first = first or head
            for number in range(head.number + 1, log.line_count + 1):
                row = _RANK.match(log.line(number).text)
                if row is None:
                    break
                missing.setdefault(int(row[1]), [name.strip() for name in row[2].split(",") if name.strip()])
    if first is None or not missing:
        return []
    names = list(dict.fromkeys(name for of_rank in missing.values() for name in of_rank))
    who = named_ranks(sorted(missing))
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
    return [
        CauseFinding(
            code="N01",
            title="ranks that do not come to a collective of Horovod",
            level=Level.STALL,
            ranks=tuple(sorted(missing)),
            confidence=Confidence.LIKELY,
            saw=(
                f"{first.log}:{first.number}: {who} did not come to {len(names)} {plural(len(names), 'tensor')}: {shown}",
                *_last_words(logs, sorted(missing)[0]),
                f"the lines do not say why: work of {who} alone (N04), fewer batches (M05), a call of the others alone (M06)",
            ),
            next=(
                f"py-spy dump --nonblocking --pid PID, on {who} while it hangs",
                "the same number of batches on every rank, and nothing collective inside `if hvd.rank() == 0:`",
            ),
        )
    ]


def _last_words(logs: Sequence[Log], rank: int) -> list[str]:
    """The last line of a rank, which says what it does instead."""
    for log in logs:
        for number in range(log.line_count, max(log.line_count - _LOOKED_BACK, 0), -1):
            line = log.line(number)
            if line.rank == rank and line.text.strip():
                return [f"the last line of rank {rank}: {line.text.strip()[:120]}"]
    return []
