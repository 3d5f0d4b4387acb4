"""On which kinds of evidence a case lets a finding rest, and whether these suffice for a sure sentence."""

from dataclasses import replace

from paceline.diagnosis.case import Case
from paceline.diagnosis.hang.wait_graph import CALLS, EXCHANGES, FLIGHT_RECORDER
from paceline.findings import Cause, CauseFinding, Confidence, Ground


def grounds_of(case: Case, finding: CauseFinding) -> frozenset[Ground]:
    """What the case has about the ranks and hosts that the finding names; about all of them, if it names none."""
    ranks, hosts = set(finding.ranks), set(finding.hosts)

    def names(rank: int) -> bool:
        return not ranks or rank in ranks

    exits = [exit for exit in case.exits if names(exit.rank)]
    still = case.stall
    of = {
        Ground.EXIT: bool(exits),
        Ground.WORDS: any(exit.error is not None or exit.tail for exit in exits)
        or any(text and names(rank) for rank, text in case.tails.items()),
        Ground.SNAPSHOT: any(map(names, case.snapshots))
        or any(not hosts or host in hosts for host in case.host_snapshots),
        Ground.CALLS: bool(case.divergences or case.mixed_groups)
        or (still is not None and still.basis in (CALLS, EXCHANGES, FLIGHT_RECORDER))
        or any(heartbeat.groups or heartbeat.last_call for heartbeat in case.heartbeats.values()),
        Ground.MARKS: bool(case.samplers) or any(map(names, case.replicas)),
        Ground.TIMES: case.timing is not None
        or any(record.steps and names(rank) for rank, record in case.ranks.items()),
        Ground.EVENTS: bool(case.events or case.missing_hosts),
    }
    return frozenset(ground for ground, is_there in of.items() if is_there)


def not_surer_than_its_grounds(case: Case, cause: Cause, finding: CauseFinding) -> CauseFinding:
    """The finding; of high confidence only if the case has a kind of evidence that the cause declares sufficient for that."""
    if finding.confidence is Confidence.HIGH and grounds_of(case, finding).isdisjoint(cause.sure_by):
        return replace(finding, confidence=Confidence.LIKELY)
    return finding
