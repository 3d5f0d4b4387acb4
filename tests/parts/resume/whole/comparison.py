"""Is what the ranks of a killed run wrote what they write undisturbed? Pure: lines in, complaints out.

A script appends one line for each step ("step 12 ..."), and others between them ("epoch 3 ...", "final ..."). A rank that was killed may
make a step again: its line may stand there again, with exactly the same text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

STEP = "step "
_SHOWN = 100


@dataclass(frozen=True)
class RankLines:
    """What the lines of one rank say."""

    complaints: tuple[str, ...]
    """Why they are not those of an undisturbed run; empty: they are."""
    redone_steps: tuple[int, ...]
    """For each time that the rank went back: how many steps it had made before and made again."""


def compare(reference: Sequence[str], made: Sequence[str], *, most_redone: int) -> RankLines:
    """Compare the lines of one rank with those of the undisturbed run.

    Units:   most_redone: steps that one kill may cost
    Holds:   compare(x, x, most_redone=0) has no complaint; a line left out, put in, or changed has one
    """
    complaints: list[str] = []
    redone: list[int] = []
    place = {line: at for at, line in enumerate(reference)}
    if len(place) < len(reference):
        return RankLines(("two lines of the reference are the same, so that nothing can be said",), ())
    furthest, before = 0, -1
    for number, line in enumerate(made, 1):
        at = place.get(line)
        if at is None:
            complaints.append(f"line {number}: {_unknown(line, reference, furthest)}")
            break
        if at > furthest:
            complaints.append(f"line {number}: {at - furthest} lines are missing before {_short(line)}")
            break
        if at != before + 1:
            # The beginning of the script runs again; from there on it goes to where it was. Nothing else leaves lines out.
            if at < before + 1:
                redone.append(0)
            elif reference[before].startswith(STEP):
                complaints.append(f"line {number}: {_short(line)} follows {_short(reference[before])}")
                break
        if at < furthest and line.startswith(STEP):
            redone[-1] += 1
        furthest, before = max(furthest, at + 1), at
    else:
        if furthest < len(reference):
            complaints.append(
                f"{len(reference) - furthest} lines are missing at the end, from {_short(reference[furthest])}"
            )
        elif before + 1 != len(reference):
            complaints.append(f"went back after the last line and ended at {_short(reference[before])}")
    complaints.extend(f"{steps} steps made again after one kill" for steps in redone if steps > most_redone)
    return RankLines(tuple(complaints), tuple(redone))


def compare_ranks(
    reference: Mapping[int, Sequence[str]], made: Mapping[int, Sequence[str]], *, most_redone: int, restarts: int
) -> tuple[list[str], list[int]]:
    """Complaints about all ranks, and the steps that each restart made again: those of the rank that lost most.

    Units:   restarts: times that the ranks were started again
    """
    complaints: list[str] = []
    redone: list[int] = []
    for rank in sorted(reference.keys() | made.keys()):
        lines = compare(reference.get(rank, ()), made.get(rank, ()), most_redone=most_redone)
        complaints.extend(f"rank {rank}: {complaint}" for complaint in lines.complaints)
        if len(lines.redone_steps) > restarts * _jumps_of_one_restart(reference.get(rank, ())):
            complaints.append(f"rank {rank}: went back {len(lines.redone_steps)} times, with {restarts} restarts")
        redone.extend([0] * (len(lines.redone_steps) - len(redone)))
        redone = [max(pair) for pair in _padded(redone, lines.redone_steps)]
    return complaints, redone


def _jumps_of_one_restart(reference: Sequence[str]) -> int:
    """To the script's beginning, and for each part of it that is no loop once more."""
    return 1 + sum(not line.startswith(STEP) for line in reference)


def _padded(longer: Sequence[int], shorter: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(longer, [*shorter, *[0] * (len(longer) - len(shorter))], strict=True)


def _unknown(line: str, reference: Sequence[str], furthest: int) -> str:
    name = _name(line)
    for at, other in enumerate(reference):
        if _name(other) == name:
            again = ", made again" if at < furthest else ""
            place = next(
                (i for i, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), min(len(line), len(other))
            )
            left = max(0, place - 30)
            return f"{name!r}{again} differs: {line[left : left + _SHOWN]!r} and not {other[left : left + _SHOWN]!r}"
    return f"{_short(line)} is no line of the undisturbed run"


def _name(line: str) -> str:
    return " ".join(line.split()[:2])


def _short(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...")
